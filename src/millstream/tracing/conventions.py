"""Names of attributes, as OpenTelemetry's semantic conventions 1.37 have them.

The conventions for messaging are in development and change: all their names are in this module.
"""

from millstream.model import Offset, Session, TopicPartition

Attributes = dict[str, str | int]

WRITTEN = "written"  # Events of an append: in the log of the leader,
COMMITTED = "committed"  # and durable on a majority of the replicas.

_ERROR_TYPE = "error.type"
_KAFKA = "kafka"
_OTHER_SYSTEM = "millstream"
_OPERATION_TYPES = {"append": "send", "fetch": "receive", "redrive": "send"}


def messaging(
    operation: str, session: Session, target: TopicPartition, *, error: str = ""
) -> Attributes:
    attributes: Attributes = {
        "messaging.system": _KAFKA if session.protocol == _KAFKA else _OTHER_SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": _OPERATION_TYPES[operation],
        "messaging.destination.name": target.topic,
        "messaging.destination.partition.id": str(target.partition),
    }
    if session.client_id:
        attributes["messaging.client.id"] = session.client_id
    if error:
        attributes[_ERROR_TYPE] = error
    return attributes


def batch(*, offset: Offset | None, count: int | None = None) -> Attributes:
    attributes: Attributes = {}
    if offset is not None:
        attributes["messaging.kafka.offset"] = offset
    if count is not None:
        attributes["messaging.batch.message_count"] = count
    return attributes


def http(method: str, route: str, status: int, *, error: str = "") -> Attributes:
    attributes: Attributes = {"http.request.method": method, "http.response.status_code": status}
    if route:
        attributes["http.route"] = route
    if error:
        attributes[_ERROR_TYPE] = error
    return attributes
