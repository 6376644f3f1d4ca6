"""The current leader beside an error of Produce or Fetch (KIP-951): clients go there at once."""

from collections.abc import Iterable

from millstream.errors import RequestError
from millstream.kafka_wire.apis.data import Leader, NodeEndpoint
from millstream.kafka_wire.error_codes import ErrorCode
from millstream.model import TopicPartition
from millstream.protocols.kafka.context import Context

_HINTED = {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH}


def leader_hint(context: Context, target: TopicPartition, code: int) -> Leader | None:
    """The leader of a partition, if the error is about it and this node knows one."""
    if code not in _HINTED:
        return None
    try:
        known = context.broker.partitions.current_leader(context.session, target)
    except RequestError:
        return None
    if known.leader is None:
        return None
    return Leader(leader_id=known.leader, leader_epoch=known.epoch)


def endpoints_of(context: Context, hints: Iterable[Leader | None]) -> list[NodeEndpoint]:
    """Where the leaders of the hints are reached, each once."""
    named = {hint.leader_id for hint in hints if hint is not None}
    return [
        NodeEndpoint(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack or None)
        for node in (context.nodes() if named else ())
        if node.node_id in named
    ]
