"""Errors of the client, as types that say what to do about them.

Owns the hierarchy and the table from Kafka's error names to it. Every message is one sentence or
two: what happened, and what helps. `retriable` says whether the same call may work later.
"""

from typing import TYPE_CHECKING

from millstream.base_error import MillstreamError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError


class ClientError(MillstreamError):
    """Anything this client raises. `code` is Kafka's name of the error, where it has one."""

    def __init__(self, message: str, *, code: str = "", retriable: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.retriable = retriable


class NotFound(ClientError, LookupError):
    """There is no such topic, partition, group or transaction."""


class AlreadyExists(ClientError):
    """The name is taken."""


class Unreachable(ClientError, ConnectionError):
    """No broker answers at the address."""


class TimedOut(ClientError, TimeoutError):
    """No answer in time. What was asked may have been done all the same."""


class Fenced(ClientError):
    """Another producer or group member of the same name took over; this one must stop."""


class Denied(ClientError, PermissionError):
    """The user may not do this, or could not prove to be this user."""


class Refused(ClientError):
    """The request cannot be carried out as it was asked: a bad name, value, size or state."""


class Busy(Refused):
    """Refused while it is in use, such as deleting a group that has members."""


class NotSupported(ClientError):
    """Known, but not carried out: refused instead of accepted and ignored."""


class BadData(ClientError):
    """A key or value that the serde cannot encode or decode."""


class TransactionAborted(ClientError):
    """The transaction was undone as a whole; doing its work again is safe."""


class Undelivered(ClientError):
    """Records were given to a producer and did not arrive. `failures` holds the first of them."""

    def __init__(self, message: str, failures: list[ClientError]) -> None:
        super().__init__(message, retriable=all(failure.retriable for failure in failures))
        self.failures = failures


class Closed(ClientError):
    """Used after it was closed."""


_KINDS: dict[type[ClientError], str] = {
    NotFound: """UNKNOWN_TOPIC_OR_PART UNKNOWN_TOPIC_ID GROUP_ID_NOT_FOUND RESOURCE_NOT_FOUND
        _NOENT _UNKNOWN_TOPIC _UNKNOWN_PARTITION _UNKNOWN_GROUP TRANSACTIONAL_ID_NOT_FOUND""",
    AlreadyExists: "TOPIC_ALREADY_EXISTS DUPLICATE_RESOURCE",
    Unreachable: """_ALL_BROKERS_DOWN _TRANSPORT _RESOLVE BROKER_NOT_AVAILABLE NETWORK_EXCEPTION
        _UNKNOWN_BROKER""",
    TimedOut: "_TIMED_OUT _MSG_TIMED_OUT _TIMED_OUT_QUEUE REQUEST_TIMED_OUT _WAIT_COORD",
    Fenced: """PRODUCER_FENCED INVALID_PRODUCER_EPOCH FENCED_INSTANCE_ID FENCED_MEMBER_EPOCH _FENCED
        STALE_MEMBER_EPOCH UNKNOWN_MEMBER_ID ILLEGAL_GENERATION _MAX_POLL_EXCEEDED
        TRANSACTION_COORDINATOR_FENCED INVALID_PRODUCER_ID_MAPPING _ASSIGNMENT_LOST""",
    Denied: """TOPIC_AUTHORIZATION_FAILED GROUP_AUTHORIZATION_FAILED CLUSTER_AUTHORIZATION_FAILED
        TRANSACTIONAL_ID_AUTHORIZATION_FAILED SASL_AUTHENTICATION_FAILED _AUTHENTICATION _SSL
        UNSUPPORTED_SASL_MECHANISM ILLEGAL_SASL_STATE SECURITY_DISABLED""",
    Busy: """NON_EMPTY_GROUP GROUP_SUBSCRIBED_TO_TOPIC REASSIGNMENT_IN_PROGRESS _CONFLICT
        CONCURRENT_TRANSACTIONS REBALANCE_IN_PROGRESS""",
    NotSupported: """UNSUPPORTED_VERSION UNSUPPORTED_FOR_MESSAGE_FORMAT _UNSUPPORTED_FEATURE
        UNSUPPORTED_COMPRESSION_TYPE _NOT_IMPLEMENTED UNSUPPORTED_ASSIGNOR""",
    BadData: "_BAD_MSG _BAD_COMPRESSION INVALID_MSG",
}
KIND_OF = {name: kind for kind, names in _KINDS.items() for name in names.split()}

HINTS: dict[type[ClientError], str] = {
    TimedOut: "It may have been done all the same; look before you repeat it.",
    Fenced: "Another with the same name took over, or this one was silent for too long.",
    Denied: "Check user, password, TLS settings and the rights of this user.",
    Busy: "Stop its users first, or try again in a moment.",
}


def from_kafka(error: "KafkaError", doing: str) -> ClientError:
    """The typed error for what Kafka said while `doing` something, such as "create topic x"."""
    name = error.name()
    kind = KIND_OF.get(name, Refused)
    said = error.str().removeprefix("Broker: ").removeprefix("Local: ").rstrip(".")
    hint = HINTS.get(kind, "")
    message = f"cannot {doing}: {said} ({name.lstrip('_').lower()})."
    return kind(
        f"{message} {hint}".rstrip(),
        code=name,
        retriable=error.retriable() or kind in (Unreachable, TimedOut),
    )


def no_topic(name: str) -> NotFound:
    """There is no such topic: says how to see which there are, and how to create it."""
    return NotFound(
        f"there is no topic {name!r}; admin.create_topic({name!r}) or "
        f"`millstream topic create {name}` creates it",
        code="UNKNOWN_TOPIC_OR_PART",
    )


def unsent(error: "KafkaError", topic: str, partition: int | None) -> ClientError | None:
    """The error for a record that was not sent, with the way out; None for other reasons."""
    code = error.name()
    if code == "_UNKNOWN_PARTITION":
        return NotFound(
            f"cannot send to {topic!r}: it has no partition {partition}; "
            f"admin.describe_topic({topic!r}) or `millstream topic describe {topic}` "
            "shows its partitions",
            code=code,
        )
    if code in ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC"):
        return no_topic(topic)
    if code == "TOPIC_EXCEPTION":
        return Refused(
            f"cannot send to {topic!r}: it is a view, one of the broker's own topics, or no name "
            "of a topic. Write to the topic that the view shows (views.list(), `millstream view "
            "list`). A name has 1 to 249 of a-z A-Z 0-9 . _ -",
            code=code,
        )
    return None


def unreachable(address: str, doing: str, reason: str) -> Unreachable:
    """No broker at `address`: says where and why, and what to look at."""
    because = f" ({reason})" if reason else ""
    if "SASL authentication error" in reason:
        return Unreachable(
            f"cannot {doing}: {address} refuses the login{because}. Check user, password and "
            "sasl.mechanism.",
            code="_AUTHENTICATION",
        )
    return Unreachable(
        f"cannot {doing}: no broker answers at {address}{because}. "
        "Is it running there? Start one with `millstream serve`, or check host and port.",
        code="_ALL_BROKERS_DOWN",
        retriable=True,
    )
