"""Notices that records wait for a broker whose disk is full or failed, and says so early.

librdkafka sends such records again until their time is over, which is right for a program and long
for a person. Decides when to ask the broker for the reason, and words it.
"""

from collections.abc import Callable, Sequence
from time import monotonic

from millstream.client.models import StorageProblem

STALL_S = 2.0  # Without any report from the broker, while records wait.
NAMED_MAX = 3  # Partitions in the sentence.


class Stalls:
    """`step` it with the number of records that wait; it asks the broker once for each stall."""

    def __init__(self, explain: Callable[[], str]) -> None:
        self._explain = explain
        self._count = -1
        self._since = monotonic()
        self._is_explained = False

    def step(self, waiting_count: int) -> str:
        """Return why nothing moves, once it is known; else an empty text."""
        if waiting_count != self._count or not waiting_count:
            self._count, self._since, self._is_explained = waiting_count, monotonic(), False
            return ""
        if self._is_explained or monotonic() < self._since + STALL_S:
            return ""
        sentence = self._explain()
        self._is_explained = bool(sentence)
        self._since = monotonic()
        return sentence


def sentence(address: str, problems: Sequence[StorageProblem]) -> str:
    """The broker's storage problems in one sentence; empty if there are none."""
    if not problems:
        return ""
    full = [problem for problem in problems if problem.is_disk_full]
    shown = full or problems
    names = ", ".join(f"{problem.topic}-{problem.partition}" for problem in shown[:NAMED_MAX])
    more = f" and {len(shown) - NAMED_MAX} more" if len(shown) > NAMED_MAX else ""
    if full:
        return (
            f"the disk of the broker at {address} is full: {names}{more} take no records; "
            "free some space there, or shorten retention.ms"
        )
    return f"the storage of the broker at {address} refuses {names}{more}: {shown[0].reason}"
