"""What clients asked of a cluster, and what they were answered.

Times are seconds by one monotonic clock of the machine that verifies. A history is kept in memory;
`RECORDS_MAX` bounds it.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

RECORDS_MAX = 1_000_000


class Value(NamedTuple):
    """What a record holds: which writer sent it, and as which of its records."""

    writer: int
    number: int

    def encode(self, run: str) -> bytes:
        return f"{run}:{self.writer}:{self.number}".encode()

    @classmethod
    def decode(cls, run: str, data: bytes | None) -> "Value | None":
        """None for a record that is not of this run."""
        parts = (data or b"").decode(errors="replace").split(":")
        if len(parts) != 3 or parts[0] != run or not (parts[1] + parts[2]).isdecimal():
            return None
        return cls(int(parts[1]), int(parts[2]))


class Send(NamedTuple):
    """A record that was sent. Without an acknowledgement it may be there or not."""

    value: Value
    partition: int
    began_s: float
    ended_s: float
    offset: int | None  # None: not acknowledged.


class Read(NamedTuple):
    """A record that a reader was given; `value` is None for one that is not of this run."""

    partition: int
    offset: int
    value: Value | None


class EndRead(NamedTuple):
    """The end of a partition as a client was told it, who asked at `began_s`."""

    partition: int
    end_offset: int
    began_s: float


class Commit(NamedTuple):
    """An offset that a group committed."""

    partition: int
    offset: int
    ended_s: float


class CommittedRead(NamedTuple):
    """The committed offset as a group was told it; None for none."""

    partition: int
    offset: int | None
    began_s: float


@dataclass(slots=True)
class History:
    """`final` is all of the topic, read after the last write; `readers` followed it meanwhile."""

    sends: list[Send] = field(default_factory=list)
    readers: dict[str, list[Read]] = field(default_factory=dict)
    group_reads: list[Read] = field(default_factory=list)  # Of all members; repeats are allowed.
    ends: list[EndRead] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    committed_reads: list[CommittedRead] = field(default_factory=list)
    final: list[Read] = field(default_factory=list)
    is_final_whole: bool = False

    @property
    def acknowledged(self) -> Iterator[tuple[Send, int]]:
        """The acknowledged sends, each with its offset."""
        return ((send, send.offset) for send in self.sends if send.offset is not None)

    def to_json(self) -> dict[str, object]:
        return asdict(self)
