"""An embedded broker is told in a sentence when a program passes it the wrong type."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from millstream import Broker, BrokerConfig
from millstream.embedding import NewRecord
from millstream.errors import InvalidSetting
from millstream.settings import CleanupPolicy

MEMORY = BrokerConfig(storage="memory", port=0)

Act = Callable[[Broker], Awaitable[object]]


def described(broker: Broker, name: object) -> Awaitable[object]:
    broker.topics.describe(name)
    raise AssertionError("described")


WRONG: list[tuple[Act, type[Exception], str]] = [
    (lambda b: b.topics.create(7), TypeError, "name is 7 (int)"),
    (lambda b: b.topics.create(b"t"), TypeError, "name is b't' (bytes)"),
    (lambda b: b.topics.create("t", partitions="2"), TypeError, "partitions is '2' (str)"),
    (lambda b: b.topics.create("t", partitions=True), TypeError, "partitions is True (bool)"),
    (lambda b: b.topics.create("t", partitions=0), ValueError, "partitions = 0 (int) is not in 1"),
    (lambda b: b.topics.create("t", settings=["retention_ms"]), TypeError, "takes a dict"),
    (lambda b: b.topics.create("t", settings={1: "2"}), TypeError, "name of a setting is 1 (int)"),
    (lambda b: b.topics.create("t", settings={"retention_ms": None}), TypeError, "is None"),
    (lambda b: b.topics.create("t", settings={"retention_ms": b"5"}), TypeError, "is b'5' (bytes)"),
    (lambda b: b.topics.create("t", settings={"retention_ms": math.inf}), ValueError, "is inf"),
    (
        lambda b: b.topics.create("t", settings={"retention_ms": 1, "retention.ms": 2}),
        ValueError,
        "retention_ms is given twice",
    ),
    (lambda b: b.topics.create("t", settings={"retention_ms": 1.5}), InvalidSetting, "'1.5'"),
    (lambda b: b.topics.create("t", settings={"colour": 1}), InvalidSetting, "colour"),
    (lambda b: described(b, None), TypeError, "name is None"),
    (lambda b: b.topics.delete(5), TypeError, "name is 5 (int)"),
    (lambda b: b.partitions.append("o", "0", []), TypeError, "partition is '0' (str)"),
    (lambda b: b.partitions.append("o", -1, []), ValueError, "partition = -1"),
    (lambda b: b.partitions.append("o", 0, b"x"), TypeError, "a list of NewRecord"),
    (lambda b: b.partitions.append("o", 0, NewRecord(b"x")), TypeError, "a list of NewRecord"),
    (lambda b: b.partitions.append("o", 0, [b"x"]), TypeError, "records[0] is b'x' (bytes)"),
    (lambda b: b.partitions.append("o", 0, [NewRecord("x")]), TypeError, "'text'.encode()"),
    (lambda b: b.partitions.append("o", 0, [NewRecord(b"x", 5)]), TypeError, "records[0].key is 5"),
    (lambda b: b.partitions.append("o", 0, [NewRecord(b"x", b"", {"a": b""})]), TypeError, "pairs"),
    (
        lambda b: b.partitions.append("o", 0, [NewRecord(b"x", b"", (("a", "b"),))]),
        TypeError,
        "header 'a' of records[0] is 'b' (str)",
    ),
    (
        lambda b: b.partitions.append("o", 0, [NewRecord(b"x", timestamp_ms=2**63)]),
        ValueError,
        "timestamp_ms",
    ),
    (
        lambda b: b.partitions.append("o", 0, [NewRecord(b"x", timestamp_ms=1.0)]),
        TypeError,
        "records[0].timestamp_ms is 1.0 (float)",
    ),
    (lambda b: b.partitions.fetch("o", 0, "0"), TypeError, "offset is '0' (str)"),
    (lambda b: b.partitions.fetch("o", 0, -5), ValueError, "offset = -5"),
    (lambda b: b.partitions.fetch("o", 0, 0, bytes_max=None), TypeError, "bytes_max is None"),
    (lambda b: b.partitions.fetch("o", 0, 0, wait_ms=-1), ValueError, "wait_ms = -1"),
    (lambda b: b.partitions.fetch("o", 0, 0, isolation=1), TypeError, "isolation is 1"),
    (lambda b: b.groups.describe(5), TypeError, "group_id is 5 (int)"),
    (lambda b: b.groups.statistics(None), TypeError, "group_id is None"),
    (lambda b: b.benchmark({}), TypeError, "takes a BenchmarkConfig"),
]


def test_the_wrong_type_is_named_and_the_broker_goes_on() -> None:
    async def story() -> None:
        async with asyncio.timeout(30), Broker(MEMORY) as broker:
            await broker.topics.create("o")
            for act, kind, message in WRONG:
                with pytest.raises(kind) as caught:
                    await act(broker)
                assert message in str(caught.value)
            assert broker.topics.list() == ["o"]
            assert list(await broker.partitions.append("o", 0, [NewRecord(b"x")])) == [0]

    asyncio.run(story())


def test_a_config_that_is_none_is_refused() -> None:
    with pytest.raises(TypeError, match="takes a BrokerConfig"):
        Broker({"port": 0})


def test_settings_take_any_scalar_and_both_spellings_and_outlive_a_restart(tmp_path: Path) -> None:
    """An int used to be committed as a command that no node could decode, for good."""
    config = BrokerConfig(data_dir=str(tmp_path / "data"), port=0)
    expected = {
        "retention_ms": "1000",
        "segment_bytes": "4096",
        "min_cleanable_dirty_ratio": "0.25",
        "message_queue_headers": "off",
        "cleanup_policy": "compact",
        "delete_retention_ms": "5",
    }

    async def create() -> None:
        async with asyncio.timeout(30), Broker(config) as broker:
            topic = await broker.topics.create(
                "t",
                settings={
                    "retention_ms": 1000,
                    "segment.bytes": 4096.0,
                    "min.cleanable.dirty.ratio": 0.25,
                    "message_queue_headers": False,
                    "cleanup.policy": CleanupPolicy.COMPACT,
                    "delete_retention_ms": "5",
                },
            )
            assert topic.settings == expected

    async def look() -> None:
        async with asyncio.timeout(30), Broker(config) as broker:
            assert broker.topics.describe("t").settings == expected

    asyncio.run(create())
    asyncio.run(look())


def test_records_may_be_any_bytes() -> None:
    async def story() -> None:
        async with asyncio.timeout(30), Broker(MEMORY) as broker:
            await broker.topics.create("o")
            record = NewRecord(
                bytearray(b"v"),
                memoryview(b"k"),
                [["h", bytearray(b"x")]],
            )
            await broker.partitions.append("o", 0, (each for each in [record]))
            [read] = (await broker.partitions.fetch("o", 0, 0)).records
            assert (read.value, read.key, read.headers) == (b"v", b"k", (("h", b"x"),))

    asyncio.run(story())
