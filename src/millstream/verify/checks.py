"""The checkers: pure functions of a history, which name what a correct cluster never does.

The names are those of Jepsen's tests of Kafka, as far as it has the same check.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

from millstream.verify.history import History, Read, Send, Value

FINDINGS_MAX = 100  # Of one kind that are kept with their text; all are counted.


class Finding(NamedTuple):
    check: str
    partition: int
    text: str


class Check(NamedTuple):
    """`meaning` is what a finding says about the cluster."""

    name: str
    meaning: str
    find: Callable[[History], Iterator[tuple[int, str]]]


def _lost_write(history: History) -> Iterator[tuple[int, str]]:
    present = {read.value for read in history.final}
    for send, offset in history.acknowledged:
        if send.value not in present:
            yield send.partition, f"{_name(send.value)} was acknowledged at {offset} and is gone"


def _duplicate(history: History) -> Iterator[tuple[int, str]]:
    seen: dict[Value, Read] = {}
    for read in history.final:
        if read.value is None:
            continue
        first = seen.setdefault(read.value, read)
        if first is not read:
            yield (
                read.partition,
                f"{_name(read.value)} is there at {first.offset} and at {read.offset}",
            )


def _inconsistent_offsets(history: History) -> Iterator[tuple[int, str]]:
    """Two clients were told different records at one offset."""
    values: dict[tuple[int, int], Value | None] = {
        (read.partition, read.offset): read.value for read in history.final
    }
    claims: list[tuple[int, int, Value | None]] = [
        (send.partition, offset, send.value) for send, offset in history.acknowledged
    ]
    for reads in (*history.readers.values(), history.group_reads):
        claims += [(read.partition, read.offset, read.value) for read in reads]
    for partition, offset, value in claims:
        known = values.setdefault((partition, offset), value)
        if known != value:
            yield partition, f"{offset} holds {_name(value)} for one client, {_name(known)} else"


def _phantom(history: History) -> Iterator[tuple[int, str]]:
    sent = {send.value for send in history.sends}
    for reads in (history.final, history.group_reads, *history.readers.values()):
        for read in reads:
            if read.value is None or read.value not in sent:
                yield read.partition, f"{_name(read.value)} at {read.offset} was never sent"


def _unseen(history: History) -> Iterator[tuple[int, str]]:
    """Readers that followed the topic to its end were not given an acknowledged record."""
    groups = {"the group": history.group_reads} if history.group_reads else {}
    for name, reads in {**history.readers, **groups}.items():
        delivered = {(read.partition, read.offset) for read in reads}
        for send, offset in history.acknowledged:
            if (send.partition, offset) not in delivered:
                yield send.partition, f"{_name(send.value)} at {offset} never came to {name}"


def _nonmonotonic_poll(history: History) -> Iterator[tuple[int, str]]:
    for name, reads in history.readers.items():
        last: dict[int, int] = {}
        for read in reads:
            before = last.get(read.partition, -1)
            if read.offset <= before:
                yield read.partition, f"{name} was given {read.offset} after {before}"
            last[read.partition] = read.offset


def _poll_skip(history: History) -> Iterator[tuple[int, str]]:
    """A reader passed over an offset that holds a record."""
    held: dict[int, list[int]] = {}
    for read in history.final:
        held.setdefault(read.partition, []).append(read.offset)
    following = {
        (partition, offset): after
        for partition, offsets in held.items()
        for offset, after in itertools.pairwise(offsets)
    }
    for name, reads in history.readers.items():
        last: dict[int, int] = {}
        for read in reads:
            before = last.get(read.partition)
            after = None if before is None else following.get((read.partition, before))
            if before is not None and after is not None and read.offset > after:
                yield read.partition, f"{name} was given {read.offset} after {before}, not {after}"
            last[read.partition] = read.offset


def _nonmonotonic_send(history: History) -> Iterator[tuple[int, str]]:
    """The records of one writer are in another order than it sent them."""
    highest: dict[tuple[int, int], int] = {}
    for read in history.final:
        if read.value is None:
            continue
        key = read.partition, read.value.writer
        before = highest.get(key, -1)
        if read.value.number < before:
            yield read.partition, f"{_name(read.value)} at {read.offset} is behind {before}"
        highest[key] = max(read.value.number, before)


def _external_order(history: History) -> Iterator[tuple[int, str]]:
    """A record was acknowledged before another was sent, and is behind it."""
    by_partition: dict[int, list[tuple[Send, int]]] = {}
    for send, offset in history.acknowledged:
        by_partition.setdefault(send.partition, []).append((send, offset))
    for partition, pairs in by_partition.items():
        ended = sorted(pairs, key=lambda pair: pair[0].ended_s)
        at, highest = 0, -1
        for send, offset in sorted(pairs, key=lambda pair: pair[0].began_s):
            while at < len(ended) and ended[at][0].ended_s < send.began_s:
                highest = max(highest, ended[at][1])
                at += 1
            if offset < highest:
                text = f"{_name(send.value)} is at {offset}; {highest} was acknowledged before it"
                yield partition, text


def _stale_read(history: History) -> Iterator[tuple[int, str]]:
    """A client was told an end of a partition that was already passed when it asked."""
    known = [(send.ended_s, send.partition, offset + 1) for send, offset in history.acknowledged]
    asked = [(read.began_s, read.partition, read.end_offset) for read in history.ends]
    for partition, answer, least in _older_answers(known, asked):
        yield partition, f"the end was told as {answer}, when {least} was acknowledged"


def _offset_went_back(history: History) -> Iterator[tuple[int, str]]:
    """A group was told an older offset than the one that it had committed."""
    known = [(commit.ended_s, commit.partition, commit.offset) for commit in history.commits]
    asked = [
        (read.began_s, read.partition, -1 if read.offset is None else read.offset)
        for read in history.committed_reads
    ]
    for partition, answer, least in _older_answers(known, asked):
        yield partition, f"the committed offset was told as {answer}, when {least} was committed"


def _older_answers(
    known: list[tuple[float, int, int]], asked: list[tuple[float, int, int]]
) -> Iterator[tuple[int, int, int]]:
    """Answers below what was known by the time of the question: partition, answer, known."""
    known = sorted(known)
    least: dict[int, int] = {}
    at = 0
    for began_s, partition, answer in sorted(asked):
        while at < len(known) and known[at][0] < began_s:
            _, of, offset = known[at]
            least[of] = max(least.get(of, 0), offset)
            at += 1
        if answer < least.get(partition, -1):
            yield partition, answer, least[partition]


def _name(value: Value | None) -> str:
    if value is None:
        return "a record of another program"
    return f"record {value.number} of writer {value.writer}"


CHECKS = (
    Check("lost-write", "an acknowledged record is gone", _lost_write),
    Check("duplicate", "a record of an idempotent producer is there twice", _duplicate),
    Check("inconsistent-offsets", "one offset holds two records", _inconsistent_offsets),
    Check("phantom", "a record that was never sent", _phantom),
    Check("unseen", "a reader that went to the end was not given a record", _unseen),
    Check("nonmonotonic-poll", "a reader went back without a seek", _nonmonotonic_poll),
    Check("poll-skip", "a reader passed over a record", _poll_skip),
    Check("nonmonotonic-send", "records of one producer changed their order", _nonmonotonic_send),
    Check("external-order", "a later record stands before an acknowledged one", _external_order),
    Check("stale-read", "a client was told an old end of a partition", _stale_read),
    Check("offset-went-back", "a group was told an old committed offset", _offset_went_back),
)


class Checked(NamedTuple):
    """How often each check found something, and the first findings of each."""

    counts: dict[str, int]
    findings: list[Finding]


def check_all(history: History) -> Checked:
    counts: dict[str, int] = {}
    findings: list[Finding] = []
    for check in CHECKS:
        counts[check.name] = 0
        for partition, text in check.find(history):
            counts[check.name] += 1
            if counts[check.name] <= FINDINGS_MAX:
                findings.append(Finding(check.name, partition, text))
    return Checked(counts, findings)
