"""`produce`, `consume` and `subscribe`: what goes in comes out, as it was asked for."""

import base64
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from millstream.client import connect
from tests.cli.conftest import Cli

MILLSTREAM = Path(sys.executable).parent / "millstream"


@pytest.fixture
def topic(cli: Cli, names: Callable[[], str]) -> str:
    name = names()
    cli.run("topic", "create", name)
    return name


def lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_an_argument_is_one_record(cli: Cli, topic: str) -> None:
    said = cli.text("produce", topic, "hello", "--key", "k", "--header", "a=1", "--header", "a=2")

    assert said == f"{topic}/0@0\n"
    (record,) = lines(cli.text("consume", topic, "--output", "json"))
    assert record.pop("timestamp")
    assert record == {
        "topic": topic,
        "partition": 0,
        "offset": 0,
        "key": "k",
        "value": "hello",
        "headers": [["a", "1"], ["a", "2"]],
    }


def test_every_line_of_standard_input_is_a_record(cli: Cli, topic: str) -> None:
    said = cli.text("produce", topic, typed="one\ntwo\r\n\nfour")

    assert said == f"4 records: {topic}/0@0-3\n"
    assert cli.text("consume", topic) == "one\ntwo\n\nfour\n"


def test_every_line_of_a_file_is_a_record(cli: Cli, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("a=1\nb=2\nc\n")

    sent = cli.json("produce", topic, "--file", str(file), "--key-separator", "=")

    assert sent["count"] == 3
    assert sent["partitions"] == [{"partition": 0, "count": 3, "first_offset": 0, "last_offset": 2}]
    assert cli.text("consume", topic, "--show-key") == "a: 1\nb: 2\n: c\n"


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_can_be_compressed(cli: Cli, topic: str, compression: str) -> None:
    cli.run("produce", topic, "squeezed " * 100, "--compression", compression)

    assert cli.text("consume", topic) == "squeezed " * 100 + "\n"


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_records_are_sent_with_the_acks_that_are_asked_for(cli: Cli, topic: str, acks: str) -> None:
    cli.run("produce", topic, "a", "--acks", acks)

    assert cli.text("consume", topic, "--follow", "--count", "1") == "a\n"


def test_a_partition_can_be_chosen(cli: Cli, names: Callable[[], str]) -> None:
    name = names()
    cli.run("topic", "create", name, "--partitions", "3")

    cli.run("produce", name, "here", "--partition", "2")

    assert cli.text("consume", name, "--format", r"%t/%p@%o %v\n") == f"{name}/2@0 here\n"
    assert "partition" in cli.refusal("produce", name, "there", "--partition", "9")


def test_json_is_checked_before_it_is_sent_and_shown_as_json(cli: Cli, topic: str) -> None:
    cli.run("produce", topic, '{"id":  1}', "--encoder", "json")

    assert cli.text("consume", topic, "--decoder", "json") == '{"id": 1}\n'
    (record,) = lines(cli.text("consume", topic, "--decoder", "json", "--output", "json"))
    assert record["value"] == {"id": 1}
    assert "not JSON: 'hello'" in cli.refusal("produce", topic, "hello", "--encoder", "json")
    cli.run("produce", topic, "hello")
    assert "--decoder string" in cli.run("consume", topic, "--decoder", "json", code=1).stderr


def test_bytes_travel_as_base64_or_as_a_whole_file(cli: Cli, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "image"
    file.write_bytes(b"\xff\n\x00")

    cli.run("produce", topic, "/wA=", "--encoder", "binary")
    cli.run("produce", topic, "--file", str(file), "--encoder", "binary")

    shown = cli.text("consume", topic, "--decoder", "binary").split()
    assert [base64.b64decode(row) for row in shown] == [b"\xff\x00", b"\xff\n\x00"]
    assert cli.text("consume", topic, "--count", "1") == "\\xff\x00\n"
    assert "not base64" in cli.refusal("produce", topic, "!", "--encoder", "binary")


def test_a_tombstone_has_a_key_and_no_value(cli: Cli, topic: str) -> None:
    cli.run("produce", topic, "--tombstone", "--key", "gone")

    (record,) = lines(cli.text("consume", topic, "--output", "json"))
    assert (record["key"], record["value"]) == ("gone", None)
    assert "--tombstone needs --key" in cli.misuse("produce", topic, "--tombstone")


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("earliest", "abc"),
        ("beginning", "abc"),
        ("latest", ""),
        ("end", ""),
        ("0", "abc"),
        ("2", "c"),
        ("3", ""),
        ("99", ""),
        ("-2", "bc"),
        ("-9", "abc"),
        ("1:2", "b"),
        (":2", "ab"),
        ("0:99", "abc"),
        ("2:1", ""),
    ],
)
def test_reading_begins_where_it_is_told_to(
    cli: Cli, topic: str, start: str, expected: str
) -> None:
    cli.run("produce", topic, typed="a\nb\nc\n")

    assert cli.text("consume", topic, "--from", start, "--format", "%v") == expected


def test_reading_begins_at_a_time(cli: Cli, topic: str) -> None:
    cli.run("produce", topic, "before")
    (record,) = lines(cli.text("consume", topic, "--output", "json"))
    moment = datetime.fromtimestamp(int(str(record["timestamp"])) / 1000, UTC).isoformat()

    assert cli.text("consume", topic, "--from", moment) == "before\n"
    assert cli.text("consume", topic, "--from", "1h") == "before\n"
    assert cli.text("consume", topic, "--from", "2100-01-01") == ""


def test_a_group_goes_on_where_it_was(cli: Cli, topic: str, names: Callable[[], str]) -> None:
    group = names()
    cli.run("produce", topic, typed="a\nb\nc\n")

    first = cli.text("consume", topic, "--group", group, "--count", "2", "--format", "%v")
    second = cli.text("consume", topic, "--group", group, "--format", "%v")
    third = cli.text("consume", topic, "--group", group, "--format", "%v")

    assert (first, second, third) == ("ab", "c", "")


def test_patterns_name_many_topics(cli: Cli, names: Callable[[], str]) -> None:
    base = names()
    for kind in ("created", "paid"):
        cli.run("topic", "create", f"{base}.{kind}")
        cli.run("produce", f"{base}.{kind}", kind)

    shown = cli.text("consume", f"{base}.*")

    assert sorted(shown.split()) == ["created", "paid"]
    assert cli.text("consume", f"{names()}.*") == ""


def test_a_topic_that_ends_in_a_transaction_has_an_end(cli: Cli, topic: str) -> None:
    address = str(cli.environment["MILLSTREAM_BOOTSTRAP"])
    with connect(address) as client, client.transaction() as transaction:
        transaction.send(topic, "committed")

    assert cli.text("consume", topic) == "committed\n"


def test_a_format_has_every_part_of_a_record(cli: Cli, topic: str) -> None:
    cli.run("produce", topic, "v", "--key", "k", "--header", "a=1")

    shown = cli.text("consume", topic, "--format", r"%t|%p|%o|%k|%v|%h|100%%\t")

    assert shown == f"{topic}|0|0|k|v|a=1|100%\t"
    assert cli.text("consume", topic, "--format", "%d").startswith("20")
    assert cli.text("consume", topic, "--format", "%T").isdecimal()


def test_subscribe_waits_for_what_comes(cli: Cli, topic: str) -> None:
    cli.run("produce", topic, "old")
    process = subprocess.Popen(
        [MILLSTREAM, "subscribe", topic, "--from", "earliest"],
        env={key: value for key, value in cli.environment.items() if value},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "old\n"
        cli.run("produce", topic, "new")
        assert process.stdout.readline() == "new\n"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    finally:
        process.kill()
        process.communicate()

    assert (process.returncode, said) == (0, "")


def test_subscribe_begins_at_the_end_and_ends_when_nothing_comes(cli: Cli, topic: str) -> None:
    cli.run("produce", topic, "old")

    assert cli.text("subscribe", topic, "--idle", "0.5") == ""
    assert cli.text("subscribe", topic, "--from", "0", "--count", "1") == "old\n"


@pytest.mark.parametrize("command", ["consume", "subscribe"])
def test_a_wrong_topic_is_named_with_what_to_do(cli: Cli, command: str) -> None:
    said = cli.refusal(command, "no-such-topic")

    assert "no topic 'no-such-topic'" in said
    assert "millstream topic list" in said


@pytest.mark.slow  # librdkafka looks for an unknown topic for 15 seconds.
def test_producing_to_a_wrong_topic_is_refused(cli: Cli) -> None:
    assert "no-such-topic" in cli.refusal("produce", "no-such-topic", "a")


def test_bad_flags_are_misuse_whether_a_broker_is_there_or_not(
    offline: Cli, tmp_path: Path
) -> None:
    cli = offline
    assert "is not earliest, latest" in cli.misuse("consume", "a", "--from", "yesterday")
    assert "knows no %x" in cli.misuse("consume", "a", "--format", "%x")
    assert "--format is for text" in cli.misuse(
        "consume", "a", "--format", "%v", "--output", "json"
    )
    assert "'string', 'json', 'binary'" in cli.misuse("consume", "a", "--decoder", "xml")
    assert "'none', 'gzip'" in cli.misuse("produce", "a", "b", "--compression", "rar")
    assert "--header takes KEY=VALUE" in cli.misuse("produce", "a", "b", "--header", "c")
    assert "Pass one of" in cli.misuse("produce", "a", "b", "--file", __file__)
    assert "does not exist" in cli.misuse("produce", "a", "--file", str(tmp_path / "gone"))
    assert "No such option" in cli.misuse("subscribe", "a", "--colour", "x")


def test_reading_ends_where_it_is_told_to(cli: Cli, names: Callable[[], str]) -> None:
    topic = names()
    cli.run("topic", "create", topic, "--partitions", "2")
    cli.run("produce", topic, "-p", "0", typed="a\nb\nc\n")
    cli.run("produce", topic, "-p", "1", typed="x\ny\n")

    def shown(*flags: str) -> str:
        return "".join(sorted(cli.text("consume", topic, "-f", "%v", *flags)))

    assert shown("--until", "1") == "ax"
    assert shown("--from", "1", "--until", "2") == "by"
    assert shown("--until", "2100-01-01") == "abcxy"
    assert shown("--until", "1h") == ""
    assert shown("--until", "0") == ""
    assert shown("-p", "1", "--until", "1") == "x"


def test_a_record_behind_the_end_is_not_shown(cli: Cli, topic: str) -> None:
    cli.run("produce", topic, typed="a\nb\nc\n")
    _, middle, last = lines(cli.text("consume", topic, "--output", "json"))
    moment = datetime.fromtimestamp(int(str(last["timestamp"])) / 1000 + 1, UTC).isoformat()
    cli.run("produce", topic, "-k", "k", "-H", "n=1", "d")

    assert cli.text("consume", topic, "--until", moment, "-f", "%v")[:3] == "abc"
    assert cli.text("consume", topic, "-o", f"{middle['offset']}:3", "-f", "%v") == "bc"
    assert cli.text("consume", topic, "-o", "-1", "-f", "%k %h", "-c", "1").startswith("k n=1")


def test_some_partitions_can_be_read_alone(cli: Cli, names: Callable[[], str]) -> None:
    topic = names()
    cli.run("topic", "create", topic, "--partitions", "3")
    for partition in "012":
        cli.run("produce", topic, f"to {partition}", "--partition", partition)

    assert cli.text("consume", topic, "-p", "1") == "to 1\n"
    assert sorted(cli.text("consume", topic, "-p", "0", "-p", "2").splitlines()) == ["to 0", "to 2"]
    assert cli.text("subscribe", topic, "-p", "2", "-o", "0", "--idle", "1") == "to 2\n"
    assert "no partition 3; the last one is 2" in cli.refusal("consume", topic, "-p", "3")


def test_records_of_an_aborted_transaction_are_shown_if_asked_for(cli: Cli, topic: str) -> None:
    address = str(cli.environment["MILLSTREAM_BOOTSTRAP"])
    with (
        connect(address) as client,
        suppress(ZeroDivisionError),
        client.transaction() as transaction,
    ):
        transaction.send(topic, "aborted").result(timeout=30)
        raise ZeroDivisionError

    assert cli.text("consume", topic) == ""
    assert cli.text("consume", topic, "--isolation", "read_uncommitted") == "aborted\n"


def test_flags_that_exclude_each_other_are_misuse(offline: Cli) -> None:
    assert "Pass the end once" in offline.misuse("consume", "a", "-o", "1:2", "--until", "3")
    assert "ends by itself" in offline.misuse("consume", "a", "--until", "3", "--follow")
    assert "ends by itself" in offline.misuse("consume", "a", "-o", "1:3", "-g", "b")
    assert "a group assigns" in offline.misuse("consume", "a", "-p", "1", "-g", "b")
    assert "exclude each other" in offline.misuse("consume", "a", "-o", "-3", "-g", "b")
    assert "subscribe has no end" in offline.misuse("subscribe", "a", "-o", "1:3")
