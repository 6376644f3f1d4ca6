"""Reads the metadata of classic consumers: their subscribed topics and assigned partitions.

Topics stand at the beginning in every version; user data, owned partitions, a generation and a rack
follow in some of them, and concern the members alone. Bytes of any other form name no topics.
"""

from millstream.codec.primitives import read_int16, read_int32, read_string
from millstream.errors import ProtocolError
from millstream.model import TopicPartition

CONSUMER = "consumer"  # The protocol type; Connect's workers have one with other metadata.
TOPIC_BYTES_MIN = 2  # A length.


def subscribed_topics(protocol_type: str, metadata: bytes) -> frozenset[str] | None:
    """The topics that a member wants to read; None if its metadata does not say."""
    if protocol_type != CONSUMER:
        return None
    try:
        return _read_topics(metadata)
    except ProtocolError:
        return None


def _read_topics(metadata: bytes) -> frozenset[str]:
    version, at = read_int16(metadata, 0)
    count, at = read_int32(metadata, at)
    if version < 0 or not 0 <= count <= (len(metadata) - at) // TOPIC_BYTES_MIN:
        raise ProtocolError(f"{count} topics in version {version}")
    topics = set()
    for _ in range(count):
        topic, at = read_string(metadata, at)
        if topic is None:
            raise ProtocolError("a topic without a name")
        topics.add(topic)
    return frozenset(topics)


def assigned_partitions(protocol_type: str, assignment: bytes) -> tuple[TopicPartition, ...]:
    """The partitions that a consumer was given; none if its assignment does not say."""
    if protocol_type != CONSUMER or not assignment:
        return ()
    try:
        return tuple(_read_assignment(assignment))
    except ProtocolError:
        return ()


def _read_assignment(assignment: bytes) -> list[TopicPartition]:
    _, at = read_int16(assignment, 0)
    topics, at = read_int32(assignment, at)
    partitions = []
    for _ in range(min(topics, len(assignment))):
        topic, at = read_string(assignment, at)
        count, at = read_int32(assignment, at)
        for _ in range(min(count, len(assignment))):
            index, at = read_int32(assignment, at)
            partitions.append(TopicPartition(topic or "", index))
    return partitions
