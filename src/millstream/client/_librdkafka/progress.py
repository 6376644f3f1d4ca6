"""Keeps which records of a consumer are in hand, done and committed. Pure.

A record, or a batch of them, is in hand from when the program gets it until the program takes the
next. Per partition two offsets are kept: the first that was handed out since the last commit,
where an abort goes back to, and the one after the last that is done, which a commit commits.
"""

from collections.abc import Iterable

from millstream.client.models import TopicPartition


class Progress:
    def __init__(self) -> None:
        self._in_hand: dict[TopicPartition, int] = {}  # The last of each partition.
        self._first: dict[TopicPartition, int] = {}
        self._next: dict[TopicPartition, int] = {}

    @property
    def is_in_hand(self) -> bool:
        """Whether a record is in hand."""
        return bool(self._in_hand)

    @property
    def done(self) -> dict[TopicPartition, int]:
        """The offsets that a commit commits."""
        return dict(self._next)

    @property
    def origins(self) -> dict[TopicPartition, int]:
        """The offsets that an abort goes back to."""
        return dict(self._first)

    def hand_out(self, at: TopicPartition, offset: int) -> None:
        self._in_hand[at] = offset
        self._first.setdefault(at, offset)

    def let_go(self) -> dict[TopicPartition, int]:
        """Put down the records in hand; return the last one of each partition."""
        if not self._in_hand:
            return {}
        held, self._in_hand = self._in_hand, {}
        return held

    def mark(self, at: TopicPartition, offset: int) -> None:
        """The record at `offset`, and with it all before it, is done."""
        self._next[at] = offset + 1

    def committed(self, goals: dict[TopicPartition, int]) -> None:
        """These offsets were committed; records that are done beyond them are not."""
        for at, offset in goals.items():
            if self._next.get(at, 0) <= offset:
                self._next.pop(at, None)
            if self._in_hand.get(at, -1) < offset:
                self._in_hand.pop(at, None)
            if at in self._next or at in self._in_hand:
                self._first[at] = offset
            else:
                self._first.pop(at, None)

    def forget(self, places: Iterable[TopicPartition]) -> None:
        """Forget partitions that are read from another place, or by another member."""
        for at in places:
            self._first.pop(at, None)
            self._next.pop(at, None)
            self._in_hand.pop(at, None)
