"""One byte of a stopped broker's segment changes: no client skips it, and an operator can."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from millstream.client import ClientError, connect
from millstream.client import Consumer as ClientConsumer
from tests.cli.conftest import Cli, environment
from tests.support.broker_process import BrokerProcess
from tests.support.rotten import BAD, BATCH, RECORDS, numbers, write_and_damage


@pytest.fixture
def rotten(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(write_and_damage(tmp_path))
    process.start()
    yield process
    process.stop()


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(environment(tmp_path))


def consumed(address: str, offset: int = 0) -> tuple[list[bytes | None], list[KafkaError]]:
    """What librdkafka shows until the end of the partition, or until an error."""
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "g", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition("orders", 0, offset)])
    values: list[bytes | None] = []
    try:
        while (message := consumer.poll(10)) is not None:
            error = message.error()
            if error is None:
                values.append(message.value())
            elif error.code() == KafkaError._PARTITION_EOF:
                return values, []
            else:
                return values, [error]
        raise AssertionError(f"silence after {len(values)} records")
    finally:
        consumer.close()


def test_damage_is_named_refused_and_skipped_by_order_only(rotten: BrokerProcess, cli: Cli) -> None:
    address = ("--bootstrap", rotten.address)
    # librdkafka: everything before, then an error, again and again, and never a record behind it.
    values, errors = consumed(rotten.address)
    assert values == numbers(0, BAD)
    assert errors[0].code() == KafkaError.INVALID_MSG
    assert consumed(rotten.address, BAD + 20)[1]
    # Readers who ask for what is behind it get it.
    assert consumed(rotten.address, BAD + BATCH) == (numbers(BAD + BATCH, RECORDS), [])
    # It is named, once, with the way out.
    (line,) = [logged for logged in rotten.log.splitlines() if "damaged records" in logged]
    assert f"topic=orders partition=0 offsets={BAD}..{BAD + BATCH - 1}" in line
    assert f"millstream repair --skip orders/0@{BAD}" in line
    unhealthy = cli.run("health", *address, code=1).stdout
    assert f"orders/0@{BAD} to {BAD + BATCH - 1}" in unhealthy
    assert "is sound" in cli.refusal("repair", "--skip", "orders/0@3", "--yes", *address)

    gone = cli.json("repair", "--skip", f"orders/0@{BAD + 3}", "--yes", *address)

    assert (gone["base_offset"], gone["end_offset"]) == (BAD, BAD + BATCH)
    expected = numbers(0, BAD) + numbers(BAD + BATCH, RECORDS)
    assert consumed(rotten.address) == (expected, [])
    health = cli.text("health", *address)
    assert "healthy" in health
    assert f"orders/0@{BAD}" in health
    rotten.stop()
    rotten.start()
    assert consumed(rotten.address) == (expected, [])


def test_the_command_line_says_what_is_damaged(rotten: BrokerProcess, cli: Cli) -> None:
    result = cli.run(
        "consume", "orders", "--from", "earliest", "--bootstrap", rotten.address, code=1
    )

    assert f"{BAD - 1:06d}" in result.stdout
    assert f"{BAD + BATCH:06d}" not in result.stdout
    assert result.stderr


def test_a_stopped_node_is_repaired_offline(tmp_path: Path, cli: Cli) -> None:
    data = write_and_damage(tmp_path) / "data"
    place = ("repair", "--skip", f"orders/0@{BAD}", "--yes", "--data-dir", str(data))

    gone = cli.json(*place)

    assert (gone["base_offset"], gone["end_offset"]) == (BAD, BAD + BATCH)
    assert (data / gone["kept_in"]).stat().st_size == gone["size"]
    assert "is sound" in cli.refusal(*place)
    (shown,) = [row for row in cli.json("inspect", str(data)) if row["topic"] == "orders"]
    assert shown["problems"] == []
    assert shown["skipped"] == [f"{BAD} to {BAD + BATCH - 1}"]
    process = BrokerProcess(tmp_path)
    process.start()
    try:
        assert consumed(process.address) == (
            numbers(0, BAD) + numbers(BAD + BATCH, RECORDS),
            [],
        )
    finally:
        process.stop()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_kafka_python_and_aiokafka_do_not_pass_it(rotten: BrokerProcess) -> None:
    import aiokafka

    import kafka

    seen: list[bytes] = []
    consumer = kafka.KafkaConsumer(bootstrap_servers=rotten.address, consumer_timeout_ms=3_000)
    at = kafka.TopicPartition("orders", 0)
    consumer.assign([at])
    consumer.seek(at, 0)
    try:
        seen.extend(record.value for record in consumer)
    except kafka.errors.KafkaError:
        pass
    finally:
        consumer.close(autocommit=False)
    assert seen == numbers(0, BAD)

    async def read() -> list[bytes]:
        values: list[bytes] = []
        reader = aiokafka.AIOKafkaConsumer(bootstrap_servers=rotten.address)
        await reader.start()
        try:
            place = aiokafka.TopicPartition("orders", 0)
            reader.assign([place])
            reader.seek(place, 0)
            async with asyncio.timeout(4):
                while True:
                    values.append((await reader.getone()).value)
        except (TimeoutError, aiokafka.errors.KafkaError):
            return values
        finally:
            await reader.stop()

    assert asyncio.run(read()) == numbers(0, BAD)


def read_until_refused(consumer: ClientConsumer, into: list[object]) -> None:
    for message in consumer:
        into.append(message.value)  # noqa: PERF401 -- What came before the refusal counts.


def take_until_refused(consumer: ClientConsumer, into: list[object]) -> None:
    while True:
        into += [message.value for message in consumer.take(300)]


@pytest.mark.parametrize("read", [read_until_refused, take_until_refused])
def test_the_client_hands_out_every_record_before_the_damage(
    rotten: BrokerProcess, read: Callable[[ClientConsumer, list[object]], None]
) -> None:
    values: list[object] = []
    with (
        connect(rotten.address) as client,
        client.consumer("orders", start="earliest") as consumer,
        pytest.raises(ClientError, match=f"offset {BAD}"),
    ):
        read(consumer, values)

    assert values == numbers(0, BAD)
