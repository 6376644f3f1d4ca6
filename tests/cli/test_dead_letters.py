"""`millstream dlq` against a real broker."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from millstream.cli.render import brief
from millstream.client import DeadLetters, Message, Reject, connect
from tests.cli.conftest import Cli
from tests.support.broker_process import BrokerProcess

GROUP = "billing"
MILLSTREAM = str(Path(sys.executable).parent / "millstream")
DEADLINE_S = 60


def refuse(message: Message) -> None:
    if message.value.startswith(b"bad"):
        raise Reject("no such customer")


@pytest.fixture
def topic(cli: Cli, broker: BrokerProcess, names: Callable[[], str]) -> str:
    """Five records, three of which were given up."""
    name = names()
    cli.run("topic", "create", name)
    cli.run("produce", name, typed="good\nbad 1\nbad 2\ngood\nbad 3\n")
    with (
        connect(broker.address) as client,
        client.consumer(name, group=GROUP, idle_s=0.2) as consumer,
    ):
        given_up = 0
        while given_up < 3:
            given_up += client.handle(consumer, refuse).given_up
    return name


def values(cli: Cli, topic: str) -> list[str]:
    return [row["value"] for row in cli.json("dlq", "list", topic)]


def test_dead_letters_are_listed_with_where_they_come_from_and_why(cli: Cli, topic: str) -> None:
    first = cli.json("dlq", "list", topic)[0]

    assert (first["topic"], first["partition"], first["offset"]) == (f"{topic}.dlq", 0, 0)
    assert (first["origin_topic"], first["origin_offset"]) == (topic, 1)
    assert (first["group"], first["reason"], first["attempts"]) == (GROUP, "rejected", 1)
    assert (first["value"], first["error"]) == ("bad 1", "no such customer")
    assert ["ms-dlq-group", GROUP] in first["headers"]
    lines = cli.text("dlq", "list", f"{topic}.dlq").splitlines()
    assert lines[0].split()[:4] == ["PARTITION", "OFFSET", "TIME", "FROM"]
    assert f"{topic}/0@1" in lines[1]
    assert lines[1].endswith("no such customer  bad 1")
    assert len(lines) == 4
    assert len(cli.json("dlq", "list", topic, "--limit", "2")) == 2
    assert cli.json("dlq", "list", topic, "--decoder", "binary")[0]["value"] == "YmFkIDE="


def test_dead_letters_are_counted(cli: Cli, topic: str) -> None:
    counted = cli.json("dlq", "stats", topic)

    assert (counted["waiting"], counted["is_complete"]) == (3, True)
    assert (counted["by_reason"], counted["by_group"]) == ({"rejected": 3}, {GROUP: 3})
    text = cli.text("dlq", "stats", topic)
    assert "waiting  3" in text
    assert "rejected      3" in text


def test_one_is_sent_back(cli: Cli, topic: str) -> None:
    assert cli.text("dlq", "replay", topic, "0", "1") == f"sent back: {topic}/0@5\n"

    assert values(cli, topic) == ["bad 1", "bad 3"]
    assert cli.text("consume", topic, "--from", "5") == "bad 2\n"
    assert "no dead letter" in cli.refusal("dlq", "replay", topic, "0", "1")
    assert "no dead letter" in cli.refusal("dlq", "replay", topic, "3", "0")
    cli.misuse("dlq", "replay", topic, "0", "first")


def test_all_are_sent_back_and_only_once(cli: Cli, topic: str) -> None:
    assert cli.text("dlq", "redrive", topic, "--dry-run") == "3 would be sent back\n"
    assert len(values(cli, topic)) == 3

    assert cli.text("dlq", "redrive", topic, "--rate", "100") == "3 sent back\n"

    assert cli.json("dlq", "redrive", topic) == {"sent": 0, "skipped": 0, "dry_run": False}
    assert cli.text("dlq", "list", topic) == f"no dead letters of {topic}\n"
    assert cli.text("consume", topic, "--from", "5") == "bad 1\nbad 2\nbad 3\n"


def test_some_are_sent_back(cli: Cli, names: Callable[[], str], topic: str) -> None:
    elsewhere = names()
    cli.run("topic", "create", elsewhere)

    assert cli.text("dlq", "redrive", topic, "--group", "others") == "0 sent back, 3 left\n"
    said = cli.text("dlq", "redrive", topic, "--filter", "value ~ '[23]'", "--to", elsewhere)
    assert said == "2 sent back, 1 left\n"
    assert cli.text("consume", elsewhere) == "bad 2\nbad 3\n"
    assert cli.text("dlq", "redrive", topic, "--count", "1") == "1 sent back\n"


def test_the_number_left_is_not_given_for_partitions_that_were_not_read(
    cli: Cli, topic: str
) -> None:
    later = ("--filter", "value contains 'bad 2' or value contains 'bad 3'", "--count", "1")
    assert cli.text("dlq", "redrive", topic, *later) == "1 sent back\n"


def test_a_redrive_that_is_interrupted_goes_on(
    cli: Cli, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = DeadLetters.redrive

    def interrupted(self: DeadLetters, name: str, **options: Any) -> object:
        whole(self, name, **options | {"count": 2})
        raise KeyboardInterrupt

    monkeypatch.setattr(DeadLetters, "redrive", interrupted)
    said = cli.refusal("dlq", "redrive", topic)
    assert "2 were sent back; the same command goes on" in said
    monkeypatch.undo()

    assert cli.text("dlq", "redrive", topic) == "1 sent back\n"
    assert cli.text("consume", topic, "--from", "5") == "bad 1\nbad 2\nbad 3\n"


def test_ctrl_c_ends_a_redrive_that_goes_on_later(
    cli: Cli, broker: BrokerProcess, topic: str
) -> None:
    command = [MILLSTREAM, "dlq", "redrive", topic, "--rate", "0.1", "--bootstrap", broker.address]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    with connect(broker.address) as client:
        deadline = monotonic() + DEADLINE_S
        while client.dead_letters.stats(topic).waiting == 3 and monotonic() < deadline:
            pass
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=DEADLINE_S)

    assert process.returncode == 1, said
    assert "the same command goes on" in said
    left = len(values(cli, topic))
    assert 0 < left < 3
    assert cli.text("dlq", "redrive", topic) == f"{left} sent back\n"


def test_a_purge_asks_and_deletes(cli: Cli, topic: str) -> None:
    assert "nothing was done" in cli.run("dlq", "purge", topic, typed="n\n", code=1).stderr
    assert len(values(cli, topic)) == 3

    asked = cli.run("dlq", "purge", topic, typed="y\n").stdout

    assert f"Delete {topic}.dlq with 3 that wait?" in asked
    assert f"purged 3 of {topic}.dlq" in asked
    assert values(cli, topic) == []
    assert cli.json("dlq", "purge", topic, "--yes") == {"topic": f"{topic}.dlq", "purged": 0}
    assert len(cli.text("consume", topic).splitlines()) == 5


def test_what_makes_no_sense_is_refused(cli: Cli, names: Callable[[], str], topic: str) -> None:
    for verb in ("list", "stats", "redrive", "purge"):
        assert "there is no topic" in cli.refusal("dlq", verb, "nowhere")
    assert "at character 1" in cli.refusal("dlq", "redrive", topic, "--filter", "colour")
    assert "--rate" in cli.misuse("dlq", "redrive", topic, "--rate", "0")
    assert "--count" in cli.misuse("dlq", "redrive", topic, "--count", "0")
    assert "no topic 'gone'" in cli.refusal("dlq", "redrive", topic, "--to", "gone")
    plain = names()
    cli.run("topic", "create", plain)
    assert cli.text("dlq", "list", plain) == f"no dead letters of {plain}\n"


def test_long_values_are_cut_in_tables_only() -> None:
    assert brief("a\nb " + "x" * 100) == "a b " + "x" * 53 + "..."
