"""Values that the answers of a cluster become."""

from typing import NamedTuple


class Aborted(NamedTuple):
    """An aborted transaction: its producer, and the first offset that it wrote to."""

    producer_id: int
    first_offset: int


class Fetched(NamedTuple):
    """A piece of a partition's log, and the transactions in it that were aborted."""

    records: memoryview
    aborted: list[Aborted]


class Committed(NamedTuple):
    """A committed offset, and the text that was committed with it."""

    offset: int
    metadata: str
