"""The single entrance to the engine: authorize, quota, audit, count.

Owns the question whether a session may do something; `Policy` has the answer. Every public engine
method calls `admit` before it looks at anything else, so no protocol can forget it; a test checks
all of them. Without authorization the policy is `Everyone`.
"""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final, Protocol

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
    DESCRIBE_CONFIGS = "describe settings of"
    ALTER_CONFIGS = "alter settings of"
    IDEMPOTENT_WRITE = "take a producer id of"
    CLUSTER_ACTION = "act as a node of"

    def __init__(self, words: str) -> None:
        self.words = words  # The value, without the calls that Python 3.11 makes for `value`.


# Of a transaction that its own producer aborts, which is no act of an administrator.
OWN_END: Final[Mapping[str, object]] = MappingProxyType({"by": "producer"})
NOTHING: Final[Mapping[str, object]] = MappingProxyType({})
CLUSTER: Final = "cluster"  # The resource of what concerns all of it.

# The operations that a kind of resource has, as bits of Kafka's numbers.
EVERY_OPERATION: Final = MappingProxyType(
    {"topic": 0b1101_1111_1000, "group": 0b1101_0100_1000, "cluster": 0b1_1111_1010_0000}
)


class Policy(Protocol):
    """Decides which session may do what. A resource is a name such as `topic:orders`."""

    @property
    def version(self) -> int:
        """Another one than before: answers may have changed, open reads ask again."""

    def allows(self, session: Session, operation: Operation, resource: str) -> bool: ...

    def operations_of(self, session: Session, resource: str) -> int:
        """The operations that are allowed, as bits (KIP-430)."""

    def owns(self, session: Session, topic: str) -> bool:
        """Whether the session is the owner that the topic's settings name."""


class Everyone:
    """The policy of a node without users: every session may do everything."""

    version = 0

    def allows(self, session: Session, operation: Operation, resource: str) -> bool:
        return True

    def operations_of(self, session: Session, resource: str) -> int:
        return EVERY_OPERATION[resource.partition(":")[0]]

    def owns(self, session: Session, topic: str) -> bool:
        return True


class Gate:
    def __init__(self, policy: Policy, metrics: Metrics) -> None:
        self._policy = policy
        self._metrics = metrics
        self._admitted: dict[str, Counter] = {}  # By operation.
        self.may_change = not isinstance(policy, Everyone)  # Whether open reads watch `version`.

    def admit(self, session: Session, operation: Operation, resource: str) -> None:
        """Return, or raise `Denied`; either way the call is counted."""
        if self._policy.allows(session, operation, resource):
            counter = self._admitted.get(operation.words)
            if counter is None:
                counter = self._metrics.counter(REQUESTS, operation.words, "admitted")
                self._admitted[operation.words] = counter
            counter.value += 1
            return
        raise self.refuse(session, operation, resource)

    def refuse(self, session: Session, operation: Operation, resource: str) -> Denied:
        """The refusal of what no right allows; counted like those of `admit`."""
        self._metrics.add(REQUESTS, 1, operation.value, "denied")
        return Denied(session.principal, operation.value, resource)

    def note(
        self, event: str, session: Session, resource: str, details: Mapping[str, object] = NOTHING
    ) -> None:
        """An act for the audit trail, where there is one."""

    @property
    def version(self) -> int:
        """Changes whenever answers may have."""
        return self._policy.version

    def allows(self, session: Session, operation: Operation, resource: str) -> bool:
        """The answer alone, for what is filtered or asked about; not counted."""
        return self._policy.allows(session, operation, resource)

    def operations_of(self, session: Session, resource: str) -> int:
        """What the session may do with a resource, as bits (KIP-430); a question, not counted."""
        return self._policy.operations_of(session, resource)

    def owns(self, session: Session, topic: str) -> bool:
        return self._policy.owns(session, topic)

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
