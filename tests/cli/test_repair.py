"""A command in the control log that no node can apply: named, then skipped, and the rest stays."""

import asyncio
from pathlib import Path

import pytest

from millstream import Broker, BrokerConfig
from millstream.client import connect
from millstream.embedding import NewRecord
from millstream.engine.ledgers.ledger import Entry
from tests.cli.conftest import Cli, environment
from tests.support.broker_process import BrokerProcess

POISON = b'{"command":"CreateTopic","name":"t","overrides":{"retention_ms":1000}}'


@pytest.fixture
def poisoned(tmp_path: Path) -> BrokerProcess:
    """A node with a topic, some records, and a command that cannot be decoded at offset 1."""
    config = BrokerConfig(data_dir=str(tmp_path / "data"), port=0)

    async def story() -> None:
        async with Broker(config) as broker:
            await broker.topics.create("orders")
            await broker.partitions.append("orders", 0, [NewRecord(b"kept")])
            service = broker._service
            assert service is not None
            service.node._controller._ledger.write([Entry(None, POISON)])
            assert broker._life is not None
            await asyncio.wait({broker._life}, timeout=30)

    with pytest.raises(Exception, match="offset 1 of the control log"):
        asyncio.run(story())
    return BrokerProcess(tmp_path)


def test_a_poison_command_is_named_and_can_be_skipped(
    poisoned: BrokerProcess, tmp_path: Path
) -> None:
    data = str(tmp_path / "data")
    at = ("--data-dir", data, "--yes")
    cli = Cli(environment(tmp_path))

    refused = cli.run("serve", "--data-dir", data, "--port", "0", code=1)
    shown = cli.run("inspect", data, "--output", "json", code=1).stdout
    wrong = cli.refusal("repair", "--skip-command", "0", *at)
    unsure = cli.run("repair", "--skip-command", "1", *at[:2], typed="n\n", code=1).stderr
    cli.run("inspect", data, code=1)
    cli.run("repair", "--skip-command", "1", *at)
    again = cli.refusal("repair", "--skip-command", "1", *at)

    assert "offset 1 of the control log cannot be applied" in refused.stderr
    assert "millstream repair --skip-command 1 --data-dir" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert "the command at offset 1 of the control log" in shown
    assert "these cannot: 1" in wrong
    assert "nothing was done" in unsure
    assert "every command can be applied" in again
    assert all(not log["problems"] for log in cli.json("inspect", data))
    poisoned.start()
    try:
        with connect(poisoned.address) as client, client.consumer("orders") as consumer:
            assert [message.value for message in consumer.take(1)] == [b"kept"]
            assert "running" in cli.refusal("repair", "--skip-command", "1", *at)
    finally:
        poisoned.kill()


def test_repair_names_what_it_needs(tmp_path: Path) -> None:
    cli = Cli(environment(tmp_path))

    assert "--skip-command" in cli.misuse("repair")
    assert "--data-dir" in cli.misuse("repair", "--skip-command", "1")
    assert "not a data directory" in cli.refusal(
        "repair", "--skip-command", "1", "--data-dir", str(tmp_path)
    )
