"""`millstream delayed`, and `produce` with delays, lifetimes and ids, against a real broker."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from millstream.client import DelayedRecords, NotFound
from millstream.kafka_client.connection import Connection
from millstream.kafka_wire.apis.table import OWN_KEYS_FIRST
from tests.cli.conftest import NOBODY, Cli


@pytest.fixture
def topic(cli: Cli, names: Callable[[], str]) -> str:
    name = names()
    cli.run("topic", "create", name, "--partitions", "2")
    return name


def ids(cli: Cli, topic: str) -> list[str]:
    return [row["id"] for row in cli.json("delayed", "list", topic)["delayed"]]


# -- list, describe, cancel --------------------------------------------------------------------


def test_those_that_wait_are_listed(cli: Cli, topic: str) -> None:
    assert cli.text("delayed", "list", topic) == f"no delayed records of {topic}\n"

    cli.run("produce", topic, "--delay", "1h", "--partition", "1", typed="a\nb\nc\n")

    answer = cli.json("delayed", "list", topic)
    assert answer["next_after"] is None
    assert [(delayed["topic"], delayed["partition"]) for delayed in answer["delayed"]] == [
        (topic, 1)
    ] * 3
    lines = cli.text("delayed", "list", topic).splitlines()
    assert lines[0].split() == ["ID", "TOPIC", "PARTITION", "DUE"]
    assert lines[1].split()[:3] == [answer["delayed"][0]["id"], topic, "1"]
    assert len(lines) == 4
    assert topic in {row["topic"] for row in cli.json("delayed", "list")["delayed"]}


def test_a_list_says_how_it_goes_on(cli: Cli, topic: str) -> None:
    cli.run("produce", topic, "--delay", "1h", typed="a\nb\nc\n")
    all_ids = ids(cli, topic)

    some = cli.text("delayed", "list", topic, "--limit", "2")
    remaining = cli.text("delayed", "list", topic, "--after", all_ids[1])

    assert some.endswith(f"\nmore are waiting; --after {all_ids[1]} shows them\n")
    assert all_ids[2] in remaining
    assert "more" not in remaining
    assert cli.json("delayed", "list", topic, "--limit", "2")["next_after"] == all_ids[1]


def test_one_is_shown_with_what_will_be_delivered(cli: Cli, topic: str) -> None:
    cli.run("produce", topic, '{"id": 1}', "--key", "k", "--delay", "1h", "--header", "a=1")
    (name,) = ids(cli, topic)

    answer = cli.json("delayed", "describe", name, "--decoder", "json")

    assert (answer["id"], answer["topic"], answer["key"]) == (name, topic, "k")
    assert answer["value"] == {"id": 1}
    assert ["a", "1"] in answer["headers"]
    assert 'value      {"id": 1}' in cli.text("delayed", "describe", name)


def test_cancelling_asks_and_takes_several(cli: Cli, topic: str) -> None:
    cli.run("produce", topic, "--delay", "1h", typed="a\nb\nc\n")
    first, second, third = ids(cli, topic)

    said = cli.run("delayed", "cancel", first, typed="n\n", code=1)
    assert f"Cancel {first} (due " in said.stdout
    assert "nothing was done" in said.stderr
    assert len(ids(cli, topic)) == 3

    done = cli.run("delayed", "cancel", first, first, second, typed="y\n").stdout

    assert done.endswith(f"cancelled {first}, {second}\n")
    assert ids(cli, topic) == [third]
    cancelled = cli.json("delayed", "cancel", third, "--yes")
    assert cancelled == {"cancelled": [third], "too_late": []}


def test_of_a_list_with_a_wrong_id_nothing_is_cancelled(cli: Cli, topic: str) -> None:
    cli.run("produce", topic, "a", "--delay", "1h")
    (name,) = ids(cli, topic)

    said = cli.refusal("delayed", "cancel", name, f"{topic}~99999", "--yes")

    assert f"no delayed record '{topic}~99999' is waiting" in said
    assert ids(cli, topic) == [name]


def test_one_that_is_delivered_meanwhile_is_told(
    cli: Cli, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli.run("produce", topic, "--delay", "1h", typed="a\nb\n")
    first, second = ids(cli, topic)
    whole = DelayedRecords.cancel

    def cancel(self: DelayedRecords, name: str) -> object:
        if name == first:
            raise NotFound("it was delivered")
        return whole(self, name)

    monkeypatch.setattr(DelayedRecords, "cancel", cancel)
    said = cli.run("delayed", "cancel", first, second, "--yes", code=1).stdout

    assert said == f"cancelled {second}; too late for {first}\n"


def test_what_makes_no_sense_is_refused(cli: Cli, topic: str) -> None:
    assert "no topic or partition nowhere" in cli.refusal("delayed", "list", "nowhere")
    assert "'x' is waiting" in cli.refusal("delayed", "list", "--after", "x")
    for verb in ("describe", "cancel"):
        assert "no delayed record 'x'" in cli.refusal("delayed", verb, "x")
        assert "nowhere" in cli.refusal("delayed", verb, "nowhere~1")
    assert "--limit" in cli.misuse("delayed", "list", "--limit", "0")
    assert "--limit" in cli.misuse("delayed", "list", "--limit", "1001")
    assert "--colour" in cli.misuse("delayed", "list", "--colour")
    cli.misuse("delayed", "cancel")


def test_a_broker_that_is_not_there_or_not_ours_is_told(
    offline: Cli, cli: Cli, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for arguments in (("list",), ("describe", "a~1"), ("cancel", "a~1", "--yes")):
        said = offline.refusal("delayed", *arguments, "--bootstrap", NOBODY)
        assert f"no broker answers at {NOBODY}" in said

    # As Apache Kafka answers, which does not know our requests.
    agree = Connection._agree_on_versions

    def agree_on_kafka_only(connection: Connection, software_name: str) -> None:
        agree(connection, software_name)
        connection._versions = {
            key: served for key, served in connection._versions.items() if key < OWN_KEYS_FIRST
        }

    monkeypatch.setattr(Connection, "_agree_on_versions", agree_on_kafka_only)
    for arguments in (("list",), ("describe", "a~1"), ("cancel", "a~1", "--yes")):
        assert "delayed records are not supported by the broker" in cli.refusal(
            "delayed", *arguments
        )


# -- produce -----------------------------------------------------------------------------------


def test_a_delayed_record_comes_when_it_is_due(cli: Cli, topic: str) -> None:
    said = cli.text("produce", topic, "late", "--delay", "300ms", "--partition", "0")

    assert said == f"{topic}/0, delayed by 0.3 s\n"
    assert cli.text("consume", topic, "--follow", "--count", "1") == "late\n"


def test_a_time_may_be_given_instead(cli: Cli, topic: str) -> None:
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    time_text = at.strftime("%Y-%m-%d %H:%M:%SZ")

    said = cli.text("produce", topic, "x", "--deliver-at", at.isoformat(), "--partition", "0")
    past = cli.text("produce", topic, "y", "--deliver-at", "2020-01-01T00:00:00Z", "--key", "k")

    assert said == f"{topic}/0, delayed until {time_text}\n"
    assert "@" in past
    assert cli.text("delayed", "list", topic).splitlines()[1].endswith(time_text)
    assert cli.json("produce", topic, "x", "--delay", "1h")["is_delayed"] is True


def test_a_record_past_its_lifetime_is_not_shown(cli: Cli, topic: str) -> None:
    cli.run("produce", topic, "gone", "--ttl", "1ms", "--partition", "0")
    cli.run("produce", topic, "kept", "--ttl", "1h", "--partition", "0")

    assert cli.text("consume", topic) == "kept\n"


def test_a_duplicate_is_told_where_that_is_known(cli: Cli, topic: str) -> None:
    once = ("produce", topic, "x", "--message-id", "m1")

    assert cli.text(*once, "--partition", "0") == f"{topic}/0@0\n"
    assert cli.text(*once, "--partition", "0") == f"duplicate of {topic}/0@0\n"
    assert cli.json(*once, "--partition", "0")["is_duplicate"] is True
    assert "in another partition" in cli.text(*once, "--partition", "1")
    assert cli.text("consume", topic) == "x\n"
    later = ("produce", topic, "x", "--message-id", "m2", "--partition", "0")
    assert cli.text(*later, "--delay", "1h").endswith("delayed by 3600 s unless the id was known\n")
    assert cli.text(*later).startswith("duplicate of a delayed record")
    # Without acks nothing is known.
    assert cli.text(*once, "--partition", "0", "--acks", "0") == f"{topic}/0\n"


@pytest.mark.parametrize(
    ("flag", "bad"),
    [
        ("--delay", "5"),
        ("--delay", "5 s"),
        ("--delay", "-5s"),
        ("--delay", "1.5h"),
        ("--delay", "99999999999999999999d"),
        ("--ttl", "soon"),
        ("--deliver-at", "tomorrow"),
        ("--deliver-at", "5s"),
    ],
)
def test_times_and_spans_that_are_none_are_misuse(
    cli: Cli, topic: str, flag: str, bad: str
) -> None:
    said = cli.misuse("produce", topic, "x", flag, bad)

    assert f"{flag}'" in said
    assert f"'{bad}' is not a" in said


def test_flags_that_cannot_go_together_are_misuse(cli: Cli, topic: str) -> None:
    both = cli.misuse("produce", topic, "x", "--delay", "5s", "--deliver-at", "2030-01-01")
    assert "one of --delay and --deliver-at" in both
    assert "--message-id names one record" in cli.misuse("produce", topic, "--message-id", "m")


@pytest.mark.slow  # librdkafka looks for an unknown topic for 15 seconds.
def test_a_record_with_an_id_for_a_wrong_topic_is_refused(cli: Cli) -> None:
    assert "nowhere" in cli.refusal("produce", "nowhere", "x", "--message-id", "m")


def test_what_the_broker_will_not_take_is_refused(
    cli: Cli, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "limits.delay_ms_max" in cli.refusal("produce", topic, "x", "--delay", "365d")
    assert "message_id is empty" in cli.refusal("produce", topic, "x", "--message-id", "")
    assert cli.text("consume", topic) == ""
    monkeypatch.setattr("millstream.client.admin.Admin.has_queues", lambda self: False)
    for flags in (("--delay", "1s"), ("--ttl", "1s"), ("--message-id", "m")):
        assert "is not supported by the broker" in cli.refusal("produce", topic, "x", *flags)


def test_bytes_that_are_no_text_are_sent_as_they_are_or_refused(cli: Cli, topic: str) -> None:
    odd = "\udcff"  # What a shell makes of a byte that is not UTF-8.

    cli.run("produce", topic, odd, "--key", odd, "--header", f"a={odd}")

    (record,) = cli.text("consume", topic, "--output", "json").splitlines()
    assert record.count("\\\\xff") == 3
    for arguments in (
        ("produce", topic, "x", "--message-id", odd),
        ("delayed", "list", odd),
        ("delayed", "cancel", f"{odd}~1", "--yes"),
        ("dlq", "replay", odd, "0", "0"),
        ("topic", "describe", odd, "--health"),
    ):
        assert "is not a text" in cli.refusal(*arguments)
