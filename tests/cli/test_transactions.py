"""`millstream txn`: what is open, and the end of it."""

from collections.abc import Callable
from time import monotonic

import pytest
from confluent_kafka import KafkaException, Producer

from millstream.client import connect
from tests.cli.conftest import Cli

ENDED_S_MAX = 30.0


def test_transactions_are_listed_and_described(cli: Cli, names: Callable[[], str]) -> None:
    topic, name = names(), names()
    cli.run("topic", "create", topic)
    address = str(cli.environment["MILLSTREAM_BOOTSTRAP"])
    with connect(address) as client, client.transaction(name) as transaction:
        transaction.send(topic, "a")

    # A commit is answered when it is decided; its markers are written after that.
    deadline = monotonic() + ENDED_S_MAX
    while cli.json("txn", "describe", name)["state"].startswith("Prepare"):
        assert monotonic() < deadline

    listed = {row["transactional_id"]: row for row in cli.json("txn", "list")}
    assert "omplete" in listed[name]["state"]
    assert cli.json("txn", "describe", name) == listed[name]
    assert name in cli.text("txn", "list")
    assert name in cli.text("txn", "describe", name)


def test_one_that_hangs_is_aborted_and_its_producer_fenced(
    cli: Cli, names: Callable[[], str]
) -> None:
    topic, name = names(), names()
    cli.run("topic", "create", topic)
    address = str(cli.environment["MILLSTREAM_BOOTSTRAP"])
    producer = Producer({"bootstrap.servers": address, "transactional.id": name, "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"a")
    producer.flush(30)
    assert cli.json("txn", "describe", name)["state"].lower() == "ongoing"
    cli.run("txn", "abort", name, typed="n\n", code=1)

    said = cli.text("txn", "abort", name, "--yes")

    assert "fenced" in said
    with pytest.raises(KafkaException):
        producer.commit_transaction(30)
    assert cli.text("consume", topic) == ""


def test_a_wrong_id_is_named(cli: Cli) -> None:
    assert "no transactional id 'nope'" in cli.refusal("txn", "describe", "nope")
    assert "no transactional id 'nope'" in cli.refusal("txn", "abort", "nope", "--yes")
    assert "Missing argument" in cli.misuse("txn", "abort")
