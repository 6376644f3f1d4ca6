"""The benchmark: its figures add up, and it finds what is lost, doubled or changed."""

import asyncio
from typing import Any

import pytest

from millstream import Broker, BrokerConfig
from millstream.benchmark import (
    BenchmarkConfig,
    BenchmarkFailed,
    BenchmarkResult,
    Latency,
    Rate,
    run_benchmark,
)
from millstream.testing import LostAcks, run_broker
from tests.support.kafka_clients import produce


def test_every_record_is_verified() -> None:
    config = BenchmarkConfig(message_count=5_000, message_size=100, batch_size=100, threads=3)
    reports: list[tuple[str, int, int]] = []

    with run_broker() as broker:
        result = run_benchmark(
            broker.bootstrap, config, on_progress=lambda *progress: reports.append(progress)
        )

    assert result.is_verified
    assert (result.missing, result.duplicated, result.damaged) == (0, 0, 0)
    assert result.produced.records == result.consumed.records == 5_000
    assert result.latency.p50_ms <= result.latency.p99_ms <= result.latency.max_ms
    assert ("write", 5_000, 5_000) in reports
    assert reports[-1] == ("read", 5_000, 5_000)


def test_a_broker_can_be_asked_to_measure_itself() -> None:
    async def story() -> BenchmarkResult:
        async with Broker(BrokerConfig(storage="memory", port=0)) as broker:
            result = await broker.benchmark(BenchmarkConfig(message_count=500, topic="mine"))
            assert broker.topics.list() == []  # It takes away what it made.
            return result

    assert asyncio.run(story()).is_verified


def test_what_others_write_is_passed_over_and_their_topic_stays() -> None:
    with run_broker() as broker:
        produce(broker.bootstrap, "shared", b"not of the run", b"x" * 50)
        config = BenchmarkConfig(message_count=200, message_size=50, topic="shared")

        result = run_benchmark(broker.bootstrap, config)
        again = run_benchmark(broker.bootstrap, config)

    assert result.is_verified
    assert again.is_verified


def test_a_record_that_is_written_twice_is_found() -> None:
    losses: list[LostAcks] = []
    with run_broker() as broker:

        def disturb(step: str, done: int, total: int) -> None:
            if step == "write" and 0 < done < total and not losses:
                losses.append(broker.drop_acks(count=3))

        result = run_benchmark(
            broker.bootstrap,
            BenchmarkConfig(message_count=10_000, message_size=50, batch_size=1),
            options={"enable.idempotence": "false"},
            on_progress=disturb,
        )

    assert losses[0].count == 3
    assert result.duplicated > 0
    assert result.missing == 0
    assert not result.is_verified


def test_a_cluster_that_refuses_is_an_error_in_words() -> None:
    with run_broker() as broker, pytest.raises(BenchmarkFailed, match="cannot create"):
        run_benchmark(broker.bootstrap, BenchmarkConfig(message_count=1, topic="not/a/name"))


@pytest.mark.parametrize(
    "wrong", [{"message_count": 0}, {"message_size": 3}, {"threads": 1_000}, {"batch_size": 0}]
)
def test_senseless_figures_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        BenchmarkConfig(**wrong)


def test_rates_and_percentiles_are_what_they_say() -> None:
    rate = Rate(records=1_000, seconds=2.0, message_size=2**20)

    assert (rate.records_per_s, rate.mib_per_s) == (500.0, 500.0)
    assert Latency(p50_ms=1, p95_ms=2, p99_ms=3, p999_ms=4, max_ms=5).max_ms == 5
