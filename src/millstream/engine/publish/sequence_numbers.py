"""One number for a record: topic, partition and offset packed into 63 bits, and back.

For protocols whose clients know a single counter for the whole broker. Numbers rise within a
partition, start above 0, and stay valid for ever, because nothing is counted: topics have numbers
that are never given twice. Pure.
"""

from typing import NamedTuple

from millstream.errors import InvalidRequest
from millstream.model import Offset

TOPIC_BITS = 17
PARTITION_BITS = 10
OFFSET_BITS = 36

TOPIC_NUMBER_MAX = 2**TOPIC_BITS - 1
PARTITION_MAX = 2**PARTITION_BITS - 1
OFFSET_MAX = 2**OFFSET_BITS - 2  # An offset is kept plus one, so that no number is 0.


class Sequence(NamedTuple):
    topic_number: int
    partition: int
    offset: Offset


def sequence_of(topic_number: int, partition: int, offset: Offset) -> int:
    """The number of a record; `InvalidRequest` for a place that has none."""
    if not (
        0 <= topic_number <= TOPIC_NUMBER_MAX
        and 0 <= partition <= PARTITION_MAX
        and 0 <= offset <= OFFSET_MAX
    ):
        raise InvalidRequest(
            f"topic number {topic_number}, partition {partition}, offset {offset} "
            "have no sequence number: too large"
        )
    return (topic_number << PARTITION_BITS | partition) << OFFSET_BITS | offset + 1


def place_of(sequence: int) -> Sequence | None:
    """The place that a number stands for; None for a number that no record has."""
    if not 0 < sequence < 2 ** (TOPIC_BITS + PARTITION_BITS + OFFSET_BITS):
        return None
    offset = (sequence & 2**OFFSET_BITS - 1) - 1
    if offset < 0:
        return None
    partition = sequence >> OFFSET_BITS & PARTITION_MAX
    return Sequence(sequence >> OFFSET_BITS + PARTITION_BITS, partition, offset)
