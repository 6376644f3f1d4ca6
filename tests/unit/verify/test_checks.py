"""Each checker finds the plot that it is named after, and nothing in a history that is sound."""

from collections.abc import Callable
from random import Random

import pytest

from millstream.verify.checks import CHECKS, check_all
from millstream.verify.history import (
    Commit,
    CommittedRead,
    EndRead,
    History,
    Read,
    Send,
    Value,
)


def sound(count: int = 20) -> History:
    """Two writers in turn, one partition; each record acknowledged before the next is sent."""
    history = History(is_final_whole=True)
    for offset in range(count):
        value = Value(1 + offset % 2, offset // 2)
        history.sends.append(Send(value, 0, offset, offset + 0.5, offset))
        history.final.append(Read(0, offset, value))
    history.readers = {"reader 1": list(history.final), "reader 2": list(history.final)}
    # A member that was replaced begins again at its committed offset.
    history.group_reads = history.final[:12] + history.final[8:]
    history.commits = [Commit(0, 4, 5.0), Commit(0, 8, 9.0)]
    history.committed_reads = [CommittedRead(0, 4, 6.0), CommittedRead(0, 8, 9.5)]
    history.ends = [EndRead(0, 0, 0.0), EndRead(0, 6, 5.6), EndRead(0, count, count + 1.0)]
    return history


def lost(history: History) -> None:
    history.final = [read for read in history.final if read.offset != 7]
    for reads in history.readers.values():
        reads[:] = history.final
    history.group_reads = list(history.final)


def doubled(history: History) -> None:
    history.final.append(Read(0, 20, history.final[5].value))


def two_at_one_offset(history: History) -> None:
    history.readers["reader 2"][3] = Read(0, 3, history.final[4].value)


def never_sent(history: History) -> None:
    history.final.append(Read(0, 20, Value(9, 9)))


def foreign(history: History) -> None:
    history.final.append(Read(0, 20, None))


def never_given(history: History) -> None:
    history.readers["reader 1"].pop()


def never_given_to_the_group(history: History) -> None:
    history.group_reads = history.group_reads[:5]


def went_back(history: History) -> None:
    history.readers["reader 1"].insert(10, history.final[2])


def skipped(history: History) -> None:
    del history.readers["reader 2"][6]


def reordered(history: History) -> None:
    first, second = history.final[4].value, history.final[6].value
    history.final[4], history.final[6] = Read(0, 4, second), Read(0, 6, first)


def behind_an_acknowledged_one(history: History) -> None:
    early, late = history.sends[3], history.sends[15]
    history.sends[3] = early._replace(offset=late.offset)
    history.sends[15] = late._replace(offset=early.offset)


def old_end(history: History) -> None:
    history.ends.append(EndRead(0, 5, 12.0))


def old_commit(history: History) -> None:
    history.committed_reads.append(CommittedRead(0, 4, 10.0))


def no_commit(history: History) -> None:
    history.committed_reads.append(CommittedRead(0, None, 10.0))


PLOTS: list[tuple[Callable[[History], None], str]] = [
    (lost, "lost-write"),
    (doubled, "duplicate"),
    (two_at_one_offset, "inconsistent-offsets"),
    (never_sent, "phantom"),
    (foreign, "phantom"),
    (never_given, "unseen"),
    (never_given_to_the_group, "unseen"),
    (went_back, "nonmonotonic-poll"),
    (skipped, "poll-skip"),
    (reordered, "nonmonotonic-send"),
    (behind_an_acknowledged_one, "external-order"),
    (old_end, "stale-read"),
    (old_commit, "offset-went-back"),
    (no_commit, "offset-went-back"),
]


def test_a_sound_history_has_no_findings() -> None:
    checked = check_all(sound())

    assert checked.findings == []
    assert set(checked.counts) == {check.name for check in CHECKS}
    assert not any(checked.counts.values())


@pytest.mark.parametrize(("plot", "name"), PLOTS, ids=[plot.__name__ for plot, _ in PLOTS])
def test_each_plot_is_caught_by_name(plot: Callable[[History], None], name: str) -> None:
    history = sound()
    plot(history)

    checked = check_all(history)

    assert checked.counts[name] > 0
    assert any(finding.check == name and finding.text for finding in checked.findings)


def test_every_check_has_a_plot() -> None:
    assert {check.name for check in CHECKS} == {name for _, name in PLOTS}


def test_a_record_without_an_acknowledgement_may_be_there_or_not() -> None:
    history = sound()
    history.sends[19] = history.sends[19]._replace(offset=None)
    history.sends.append(Send(Value(1, 99), 0, 30.0, 40.0, None))

    assert check_all(history).findings == []


def test_concurrent_sends_may_stand_in_any_order() -> None:
    random = Random(1)
    history = History(is_final_whole=True)
    offsets = list(range(50))
    random.shuffle(offsets)
    for number, offset in enumerate(offsets):
        history.sends.append(Send(Value(number, 0), 0, 0.0, 10.0, offset))
    history.final = sorted(
        (Read(0, offset, Value(number, 0)) for number, offset in enumerate(offsets)),
        key=lambda read: read.offset,
    )
    history.readers = {"reader 1": list(history.final)}

    assert check_all(history).findings == []


def test_many_findings_are_counted_and_some_are_kept() -> None:
    history = sound(2_000)
    history.readers["reader 1"].clear()

    checked = check_all(history)

    assert checked.counts["unseen"] == 2_000
    assert len(checked.findings) == 100


def test_values_of_other_programs_are_told_apart() -> None:
    assert Value.decode("run", Value(3, 14).encode("run")) == Value(3, 14)
    for data in (None, b"", b"other:3:14", b"run:3", b"run:x:1", b"run:\xff:1"):
        assert Value.decode("run", data) is None
