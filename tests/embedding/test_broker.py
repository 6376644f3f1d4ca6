"""An embedded broker: what it is told and tells, with real clients beside it."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as Place

from millstream import Broker, BrokerConfig
from millstream.embedding import NewRecord, Timing
from millstream.errors import OffsetOutOfRange, StartupError, TopicExists, UnknownTopic
from millstream.errors.groups import GroupNotFound
from millstream.model import Isolation, TopicPartition
from tests.support.kafka_clients import SECONDS_MAX, all_values, consumer, produce

T = TypeVar("T")

CONFIG = BrokerConfig(storage="memory", port=0, timing=Timing(group_initial_rebalance_delay_ms=0))


def run(main: Coroutine[Any, Any, T]) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(2 * SECONDS_MAX):
            return await main

    return asyncio.run(bounded())


# -- its life ------------------------------------------------------------------------------------


def test_clients_and_the_program_see_the_same_records() -> None:
    async def story() -> None:
        async with Broker(CONFIG) as broker:
            await broker.topics.create("orders")
            await broker.partitions.append("orders", 0, [NewRecord(b"ours")])
            assert await asyncio.to_thread(produce, broker.bootstrap, "orders", b"theirs") == []

            fetched = await broker.partitions.fetch("orders", 0, 0)
            values = await asyncio.to_thread(all_values, broker.bootstrap, "orders")

            assert [record.value for record in fetched.records] == [b"ours", b"theirs"]
            assert values == [b"ours", b"theirs"]

    run(story())


def test_what_is_on_disk_is_there_the_next_time(tmp_path: Path) -> None:
    config = BrokerConfig(data_dir=str(tmp_path / "data"), port=0)

    async def write() -> str:
        async with Broker(config) as broker:
            await broker.topics.create("orders")
            await broker.partitions.append("orders", 0, [NewRecord(b"a")])
            return broker.cluster_id

    async def read() -> tuple[str, bytes | None]:
        async with Broker(config) as broker:
            fetched = await broker.partitions.fetch("orders", 0, 0)
            return broker.cluster_id, fetched.records[0].value

    cluster_id = run(write())

    assert run(read()) == (cluster_id, b"a")
    assert (tmp_path / "data" / "clean").exists()


def test_after_a_kill_another_broker_takes_the_directory(tmp_path: Path) -> None:
    config = BrokerConfig(data_dir=str(tmp_path / "data"), port=0)

    async def story() -> None:
        async with Broker(config) as broker:
            await broker.topics.create("orders")
            await broker.partitions.append("orders", 0, [NewRecord(b"a")])
            await broker.kill()
            assert not (tmp_path / "data" / "clean").exists()

            async with Broker(config) as next_one:
                fetched = await next_one.partitions.fetch("orders", 0, 0)
                assert [record.value for record in fetched.records] == [b"a"]

    run(story())


def test_what_the_block_raises_comes_out_as_it_is() -> None:
    async def story() -> None:
        async with Broker(CONFIG):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        run(story())


def test_a_broker_that_cannot_start_says_why_in_one_sentence() -> None:
    async def story() -> None:
        async with (
            Broker(CONFIG) as broker,
            Broker(BrokerConfig(storage="memory", port=broker.port)),
        ):
            pytest.fail("two brokers on one port")

    with pytest.raises(StartupError, match="cannot listen on"):
        run(story())


def test_a_broker_outside_of_its_block_says_how_it_is_used() -> None:
    before = set(threading.enumerate())

    async def story() -> Broker:
        async with Broker(CONFIG) as broker:
            return broker

    with pytest.raises(RuntimeError, match="async with"):
        _ = Broker(CONFIG).bootstrap
    broker = run(story())
    with pytest.raises(RuntimeError, match="not running"):
        _ = broker.port
    with pytest.raises(RuntimeError, match="entered once"):
        run(broker.__aenter__())
    left = set(threading.enumerate()) - before
    assert not [thread for thread in left if thread.name.startswith("millstream")]


def test_importing_the_package_loads_no_broker() -> None:
    code = (
        "import sys, millstream; before = 'asyncio' in sys.modules; "
        "from millstream import Broker, BrokerConfig; "
        "print(before, Broker.__name__, BrokerConfig.__name__)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert shown.stdout.split() == ["False", "Broker", "Config"]


# -- topics and records --------------------------------------------------------------------------


def test_topics_are_created_described_listed_and_deleted() -> None:
    async def story() -> None:
        async with Broker(CONFIG) as broker:
            made = await broker.topics.create(
                "orders", partitions=2, settings={"retention_ms": "1000"}
            )
            await broker.topics.create("bills")
            await broker.partitions.append("orders", 1, [NewRecord(b"a"), NewRecord(b"b")])
            with pytest.raises(TopicExists):
                await broker.topics.create("orders")

            described = broker.topics.describe("orders")

            assert broker.topics.list() == ["bills", "orders"]
            assert (described.name, described.topic_id) == ("orders", made.topic_id)
            assert described.settings == {"retention_ms": "1000"}
            assert [part.record_count for part in described.partitions] == [0, 2]
            assert described.partitions[1].size_bytes > 0
            await broker.topics.delete("orders")
            assert broker.topics.list() == ["bills"]
            with pytest.raises(UnknownTopic):
                broker.topics.describe("orders")

    run(story())


def test_a_record_comes_back_as_it_was() -> None:
    written = NewRecord(b"v", key=b"k", headers=(("h", b"1"), ("n", None)), timestamp_ms=1_000)

    async def story() -> None:
        async with Broker(CONFIG) as broker:
            await broker.topics.create("orders")
            assert await broker.partitions.append("orders", 0, []) == range(0)
            offsets = await broker.partitions.append("orders", 0, [NewRecord(None), written])

            fetched = await broker.partitions.fetch("orders", 0, 1)

            [record] = fetched.records
            assert offsets == range(2)
            assert (record.offset, record.timestamp_ms) == (1, 1_000)
            assert (record.key, record.value, record.headers) == (b"k", b"v", written.headers)
            assert (fetched.next_offset, fetched.start_offset, fetched.end_offset) == (2, 0, 2)

    run(story())


def test_a_fetch_waits_for_the_next_record() -> None:
    async def story() -> None:
        async with Broker(CONFIG) as broker:
            await broker.topics.create("orders")
            assert (await broker.partitions.fetch("orders", 0, 0)).records == ()
            async with asyncio.TaskGroup() as group:
                reading = group.create_task(
                    broker.partitions.fetch("orders", 0, 0, wait_ms=SECONDS_MAX * 1000)
                )
                await asyncio.sleep(0)
                assert not reading.done()
                await broker.partitions.append("orders", 0, [NewRecord(b"a")])
            assert [record.value for record in reading.result().records] == [b"a"]

    run(story())


def test_asking_for_what_is_not_there_is_an_error() -> None:
    async def story() -> None:
        async with Broker(CONFIG) as broker:
            with pytest.raises(UnknownTopic):
                await broker.partitions.fetch("gone", 0, 0)
            await broker.topics.create("orders")
            with pytest.raises(OffsetOutOfRange):
                await broker.partitions.fetch("orders", 0, 5)

    run(story())


def transact(bootstrap: str, *, commits: bool, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "billing"})
    producer.init_transactions(SECONDS_MAX)
    producer.begin_transaction()
    producer.produce("orders", value, partition=0)
    producer.flush(SECONDS_MAX)
    if commits:
        producer.commit_transaction(SECONDS_MAX)
    else:
        producer.abort_transaction(SECONDS_MAX)


def test_of_transactions_a_reader_sees_those_that_were_committed() -> None:
    async def story() -> None:
        async with Broker(CONFIG) as broker:
            await broker.topics.create("orders")
            for value, commits in ((b"lost", False), (b"kept", True), (b"lost", False)):
                await asyncio.to_thread(transact, broker.bootstrap, commits=commits, value=value)
            await broker.partitions.append("orders", 0, [NewRecord(b"plain")])

            seen = await broker.partitions.fetch("orders", 0, 0)
            everything = await broker.partitions.fetch(
                "orders", 0, 0, isolation=Isolation.READ_UNCOMMITTED
            )

            assert [record.value for record in seen.records] == [b"kept", b"plain"]
            assert [record.value for record in everything.records] == [
                b"lost",
                b"kept",
                b"lost",
                b"plain",
            ]
            assert seen.next_offset == seen.end_offset == 7  # With a marker for each of three.

    run(story())


# -- groups and figures --------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_is_described_with_its_members_and_its_lag(protocol: str) -> None:
    async def story() -> None:
        async with Broker(CONFIG) as broker:
            await broker.topics.create("orders")
            await broker.partitions.append("orders", 0, [NewRecord(b"a")] * 5)
            reader = consumer(
                broker.bootstrap, "readers", group_protocol=protocol, client_id="reader-1"
            )

            def read_two() -> None:
                reader.subscribe(["orders"])
                assert reader.consume(2, timeout=SECONDS_MAX)
                reader.commit(offsets=[Place("orders", 0, 2)], asynchronous=False)

            await asyncio.to_thread(read_two)
            details = await broker.groups.describe("readers")
            figures = await broker.groups.statistics("readers")
            listed = broker.groups.list()
            await asyncio.to_thread(reader.close)

            [member] = details.members
            orders = TopicPartition("orders", 0)
            assert (member.client_id, member.partitions) == ("reader-1", (orders,))
            assert (details.offsets[orders].offset, details.offsets[orders].lag) == (2, 3)
            assert (figures.member_count, figures.partition_count) == (1, 1)
            assert (figures.lag_total, figures.lag_max, figures.state) == (3, 3, "stable")
            assert [item.group_id for item in listed] == ["readers"]
            with pytest.raises(GroupNotFound):
                await broker.groups.describe("strangers")

    run(story())


def test_the_figures_follow_what_happens(tmp_path: Path) -> None:
    async def story() -> None:
        config = BrokerConfig(data_dir=str(tmp_path / "data"), port=0)
        async with Broker(config) as broker:
            await broker.topics.create("orders", partitions=3)
            before = broker.metrics.snapshot()
            await broker.partitions.append("orders", 0, [NewRecord(b"x" * 1_000)] * 10)
            producer = Producer({"bootstrap.servers": broker.bootstrap})
            producer.produce("orders", b"a")
            assert await asyncio.to_thread(producer.flush, SECONDS_MAX) == 0

            after = broker.metrics.snapshot()

            assert (before.appended_records, after.appended_records) == (0, 11)
            assert after.appended_records_rate > 0
            assert after.appended_bytes_rate > after.appended_records_rate
            assert (before.connections, after.partitions, after.topics) == (0, 3, 1)
            assert after.connections > 0
            assert after.log_bytes > 10_000
            assert after.memory_bytes > 2**20
            assert after.cpu_seconds >= before.cpu_seconds > 0
            assert after.disk_free_bytes is not None
            assert after.uptime_s > before.uptime_s

    run(story())


def test_every_metric_can_be_asked_for(tmp_path: Path) -> None:
    async def story() -> None:
        config = BrokerConfig(data_dir=str(tmp_path / "data"), port=0)
        async with Broker(config) as broker:
            await broker.topics.create("orders", partitions=30)
            await broker.partitions.append("orders", 0, [NewRecord(b"x")] * 3)

            collected = {
                (sample.metric.name, sample.labels): sample.value
                for sample in await broker.metrics.samples()
            }

            assert collected["millstream_appended_records_total", ()] == 3
            assert collected["millstream_partition_high_watermark", ("orders", "0")] == 3
            assert collected["millstream_partition_high_watermark", ("orders", "29")] == 0

    run(story())
