"""`produce` of one record: written once, without the start of a librdkafka producer."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.client import connect
from millstream.testing import RunningBroker, run_broker
from tests.cli.conftest import Cli, environment
from tests.support.broker_process import BrokerProcess


@pytest.fixture(scope="module")
def in_process() -> Iterator[RunningBroker]:
    with run_broker() as running:
        yield running


def imported(*arguments: str, address: str) -> set[str]:
    """The modules that a command imports."""
    variables = {**os.environ, "PYTHONPROFILEIMPORTTIME": "1", "MILLSTREAM_BOOTSTRAP": address}
    done = subprocess.run(
        [sys.executable, "-m", "millstream", *arguments],
        capture_output=True,
        text=True,
        check=True,
        env=variables,
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines}


def test_one_record_needs_neither_librdkafka_nor_asyncio(cli: Cli, broker: BrokerProcess) -> None:
    """Both take longer to load than the record takes; librdkafka may wait 500 ms besides."""
    cli.run("topic", "create", "imports")

    modules = imported("produce", "imports", "hello", address=broker.address)

    assert not modules & {"confluent_kafka", "asyncio", "millstream.client.connection"}
    assert cli.text("consume", "imports") == "hello\n"


def test_a_list_of_topics_imports_no_consumer_and_no_engine(broker: BrokerProcess) -> None:
    modules = imported("topic", "list", address=broker.address)

    parts = ("consumer", "handling", "subscribers", "transactions", "aio")
    assert not modules & {f"millstream.client.{part}" for part in parts}
    assert not modules & {"millstream.engine", "millstream.kafka_client", "msgspec"}


@pytest.mark.parametrize("lost_count", [1, 3])
def test_a_record_whose_answer_is_lost_is_written_once(
    in_process: RunningBroker, tmp_path: Path, lost_count: int
) -> None:
    topic = f"lost-{lost_count}"
    user = Cli(environment(tmp_path, MILLSTREAM_BOOTSTRAP=in_process.bootstrap))
    user.run("topic", "create", topic)

    with in_process.drop_acks("produce", count=lost_count) as losses:
        said = user.text("produce", topic, "once")

    assert losses.count == lost_count
    assert said == f"{topic}/0@0\n"
    assert user.text("consume", topic) == "once\n"


def test_a_key_is_where_librdkafka_puts_it(cli: Cli, broker: BrokerProcess) -> None:
    cli.run("topic", "create", "keyed", "--partitions", "7")
    with connect(broker.address) as client, client.producer() as producer:
        for number in range(20):
            producer.send("keyed", b"librdkafka", key=f"key-{number}".encode())
    for number in range(20):
        cli.run("produce", "keyed", "ours", "--key", f"key-{number}")

    shown = cli.text("consume", "keyed", "--output", "json").splitlines()
    records = [json.loads(line) for line in shown]
    places = {
        value: {r["key"]: r["partition"] for r in records if r["value"] == value}
        for value in ("librdkafka", "ours")
    }
    assert len(places["ours"]) == 20
    assert places["ours"] == places["librdkafka"]


def test_what_cannot_be_sent_is_refused_in_the_words_of_any_other_record(cli: Cli) -> None:
    cli.run("topic", "create", "small", "--set", "max.message.bytes=100")

    assert "no-such-topic" in cli.refusal("produce", "no-such-topic", "x")
    assert "'small'" in cli.refusal("produce", "small", "x" * 1000)
    assert "partition" in cli.refusal("produce", "small", "x", "--partition", "9")
