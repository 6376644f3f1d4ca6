"""`millstream schema`, as a user types it, against a real broker."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from millstream.cli.main import commands
from tests.support.broker_process import BrokerProcess

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}
BROKEN = {**ORDER, "fields": [*ORDER["fields"], {"name": "kg", "type": "int"}]}


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[BrokerProcess]]:
    processes = [
        BrokerProcess(tmp_path_factory.mktemp("broker"), LISTENERS="kafka,http") for _ in range(2)
    ]
    for process in processes:
        process.start()
    yield processes
    for process in processes:
        process.kill()


def url(broker: BrokerProcess) -> str:
    return f"http://{broker.host}:{broker.config.http_port}"


def millstream(broker: BrokerProcess, *arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(commands, ["schema", *map(str, arguments), "--url", url(broker)])
    return done.exit_code, done.output


def test_schemas_are_registered_shown_checked_explained_moved_and_deleted(
    brokers: list[BrokerProcess], tmp_path: Path
) -> None:
    broker, other = brokers
    good, bad = tmp_path / "order.avsc", tmp_path / "broken.avsc"
    good.write_text(json.dumps(ORDER))
    bad.write_text(json.dumps(BROKEN))

    assert millstream(broker, "list") == (0, "no schemas yet\n")
    assert millstream(broker, "register", "orders-value", good) == (
        0,
        "orders-value version 1 has id 1\n",
    )
    assert "orders-value" in millstream(broker, "list")[1]
    assert '"name":"Order"' in millstream(broker, "describe", "orders-value")[1]
    assert millstream(broker, "check", "orders-value", good)[0] == 0
    status, text = millstream(broker, "check", "orders-value", bad)
    assert (status, "READER_FIELD_MISSING_DEFAULT_VALUE" in text) == (1, True)
    explained = millstream(broker, "explain", "orders-value", bad)[1]
    assert "BACKWARD: breaks" in explained
    assert "FORWARD: passes" in explained
    assert "give the field a default" in explained
    assert millstream(broker, "register", "orders-value", bad)[0] == 1

    assert "FULL" in millstream(broker, "config", "orders-value", "--compatibility", "FULL")[1]
    assert "READWRITE" in millstream(broker, "mode")[1]

    exported = tmp_path / "schemas.ndjson"
    assert millstream(broker, "export", exported)[0] == 0
    assert millstream(other, "import", exported) == (0, "imported 1 versions\n")
    assert millstream(other, "import", "--from", url(broker))[0] == 0
    assert millstream(other, "import", "--from-topic", broker.address)[0] == 0
    assert "orders-value" in millstream(other, "list")[1]

    assert millstream(broker, "delete", "orders-value", "--yes")[0] == 0
    assert millstream(broker, "delete", "orders-value", "--permanent", "--yes")[0] == 0
    assert millstream(broker, "list") == (0, "no schemas yet\n")


def test_a_registry_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = CliRunner().invoke(commands, ["schema", "list", "--url", "http://127.0.0.1:1"])

    assert done.exit_code == 1
    assert "no registry answers at http://127.0.0.1:1" in done.output
