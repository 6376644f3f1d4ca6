"""The single entrance to the engine: authorize, quota, audit, count.

Owns the decision whether a session may do something. Every public engine method calls `admit`
before it looks at anything else, so no protocol can forget it; a test checks all of them. Every
session is admitted until users and ACLs exist; the operations and resources are final already.
"""

from enum import Enum
from typing import Protocol

from millstream.errors import Denied
from millstream.metrics import REQUESTS, Counter, Metrics
from millstream.model import Session
from millstream.view_names import FILTER_MARK


class Operation(Enum):
    """An operation on a resource, in the words of an audit record."""

    APPEND = "append to"
    READ = "read"
    DESCRIBE = "describe"
    CREATE = "create"
    ALTER = "alter"
    DELETE = "delete"
    DELETE_RECORDS = "delete records of"
    JOIN = "join"
    COMMIT = "commit offsets of"
    TRANSACT = "write in transactions of"

    def __init__(self, words: str) -> None:
        self.words = words  # The value, without the calls that Python 3.11 makes for `value`.


class Policy(Protocol):
    """Decides which session may do what. A resource is a name such as `topic:orders`."""

    def allows(self, session: Session, operation: Operation, resource: str) -> bool: ...


class Everyone:
    """The policy of a node without users: every session may do everything."""

    def allows(self, session: Session, operation: Operation, resource: str) -> bool:
        return True


class Gate:
    def __init__(self, policy: Policy, metrics: Metrics) -> None:
        self._policy = policy
        self._metrics = metrics
        self._admitted: dict[str, Counter] = {}  # By operation.

    def admit(self, session: Session, operation: Operation, resource: str) -> None:
        """Return, or raise `Denied`; either way the call is counted."""
        if self._policy.allows(session, operation, resource):
            counter = self._admitted.get(operation.words)
            if counter is None:
                counter = self._metrics.counter(REQUESTS, operation.words, "admitted")
                self._admitted[operation.words] = counter
            counter.value += 1
            return
        self._metrics.add(REQUESTS, 1, operation.value, "denied")
        raise Denied(session.principal, operation.value, resource)

    def sees(self, session: Session, resource: str) -> bool:
        """Whether a listing may show the resource; not counted, because it is no request."""
        return self._policy.allows(session, Operation.DESCRIBE, resource)


def topic_resource(name: str) -> str:
    """A topic that is read through a filter is that topic: the filter gives no rights."""
    if FILTER_MARK in name:
        name = name.partition(FILTER_MARK)[0]
    return f"topic:{name}"


def group_resource(group_id: str) -> str:
    return f"group:{group_id}"


def transaction_resource(transactional_id: str) -> str:
    return f"transactional_id:{transactional_id}"
