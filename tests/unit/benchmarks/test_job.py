"""What every client process shares: values, pacing and the proof that nothing was lost."""

import json

import pytest
from benchmarks.kafka.job import HEAD, Arrivals, Broken, Job, Values, ticks


def job(*, count: int, rate: int) -> Job:
    return Job(address="h:1", topic="t", partitions=1, acks="all", size=100, count=count, rate=rate)


def test_a_job_survives_the_way_to_the_client() -> None:
    sent = job(count=5, rate=7)

    assert Job(**json.loads(sent.text())) == sent


@pytest.mark.parametrize("size", [HEAD.size, 100, 1024])
def test_a_value_has_its_size_and_carries_its_number_and_time(size: int) -> None:
    value = Values(size).value(3, 12345)

    assert len(value) == size
    assert Arrivals(4).add(value) == (3, 12345)


def test_arrivals_are_whole_when_each_came_once_in_any_order() -> None:
    arrivals, values = Arrivals(3), Values(100)

    for number in (2, 0, 1):
        arrivals.add(values.value(number))

    arrivals.check()


@pytest.mark.parametrize("numbers", [(0, 1), (0, 1, 2, 2), (0, 1, 1), (0, 1, 2, 3)])
def test_a_run_with_a_record_missing_doubled_or_unknown_is_broken(numbers: list[int]) -> None:
    arrivals, values = Arrivals(3), Values(100)

    for number in numbers:
        arrivals.add(values.value(number))

    with pytest.raises(Broken):
        arrivals.check()


@pytest.mark.parametrize(("count", "rate"), [(10, 10_000), (25, 10_000), (7, 300), (1000, 2500)])
def test_ticks_hand_out_every_number_once_and_keep_the_rate(count: int, rate: int) -> None:
    planned = list(ticks(job(count=count, rate=rate), started_ns=0))

    assert [number for _, numbers in planned for number in numbers] == list(range(count))
    last_due_ns = planned[-1][0]
    assert abs(last_due_ns - count / rate * 1e9) <= 1_000_000
