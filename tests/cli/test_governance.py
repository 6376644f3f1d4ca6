"""`millstream quota`, and topics with tags, an owner and a purpose."""

from collections.abc import Callable

from tests.cli.conftest import Cli


def test_quotas_are_set_listed_and_deleted(cli: Cli) -> None:
    cli.run("quota", "set", "--user", "ann", "--producer-byte-rate", "1000000")
    cli.run("quota", "set", "--user", "ann", "--controller-mutation-rate", "2.5")
    cli.run("quota", "set", "--ip", "10.0.0.7", "--connection-creation-rate", "5")
    cli.run("quota", "set", "--client-id", "<default>", "--consumer-byte-rate", "7")

    limits = {
        (row["user"], row["client_id"], row["ip"]): row["limits"]
        for row in cli.json("quota", "list")
    }
    assert limits["ann", None, None] == {
        "producer_byte_rate": 1e6,
        "controller_mutation_rate": 2.5,
    }
    assert limits[None, None, "10.0.0.7"] == {"connection_creation_rate": 5.0}
    assert limits[None, "<default>", None] == {"consumer_byte_rate": 7.0}
    assert "producer_byte_rate=1e+06" in cli.text("quota", "list")

    cli.run("quota", "delete", "--user", "ann", "--limit", "producer_byte_rate")
    cli.run("quota", "delete", "--ip", "10.0.0.7")
    cli.run("quota", "delete", "--client-id", "<default>")
    (left,) = cli.json("quota", "list")
    assert left["limits"] == {"controller_mutation_rate": 2.5}
    cli.run("quota", "delete", "--user", "ann")
    assert cli.json("quota", "list") == []


def test_a_quota_needs_a_holder_and_a_limit(cli: Cli) -> None:
    assert "say whose quota it is" in cli.misuse("quota", "set", "--producer-byte-rate", "1")
    assert "say what to limit" in cli.misuse("quota", "set", "--user", "ann")
    assert "no ip address" in cli.refusal(
        "quota", "set", "--ip", "here", "--connection-creation-rate", "1"
    )


def test_topics_are_found_by_their_tag(cli: Cli, names: Callable[[], str]) -> None:
    first, second = names(), names()
    cli.run("topic", "create", first, "--set", "tags=pii,gold", "--set", "purpose=orders")
    cli.run("topic", "create", second, "--set", "tags=gold")

    (row,) = cli.json("topic", "list", "--tag", "pii")
    assert (row["topic"], row["tags"], row["purpose"]) == (first, ["pii", "gold"], "orders")
    assert {row["topic"] for row in cli.json("topic", "list", "--tag", "gold")} == {first, second}
    assert "no topic has the tag silver" in cli.text("topic", "list", "--tag", "silver")
    assert "is not 1 to 32 of a-z" in cli.refusal("topic", "alter", first, "--set", "tags=PII")
