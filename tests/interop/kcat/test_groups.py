"""kcat in groups."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop.conftest import PARTITIONS
from tests.interop.kcat.clients import Kcat, Running, until
from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.interop
ALL = set(range(PARTITIONS))
STRATEGIES = ["range", "roundrobin", "cooperative-sticky"]
LEAVES = pytest.mark.parametrize(
    "leave", [BrokerProcess.stop, BrokerProcess.kill], ids=["stop", "kill -9"]
)
Join = Callable[..., Running]


@pytest.fixture
def join(kcat: Kcat, topic: str, group: str, tmp_path: Path) -> Iterator[Join]:
    """Start one more member of the group; all of them end with the test."""
    members: list[Running] = []

    def one_more(name: str, *arguments: str) -> Running:
        settings = {
            "auto.offset.reset": "earliest",
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "200",
            "fetch.wait.max.ms": "50",
            "auto.commit.interval.ms": "100",
            "reconnect.backoff.max.ms": "200",
        }
        flags = [flag for name, value in settings.items() for flag in ("-X", f"{name}={value}")]
        running = kcat.start(
            tmp_path, name, "-u", "-f", "%s\n", *flags, *arguments, "-G", group, topic
        )
        members.append(running)
        return running

    yield one_more
    for member in members:
        member.kill()


def write_to_all(kcat: Kcat, topic: str, first: int, count: int = 60) -> set[str]:
    values = [f"{number}" for number in range(first, first + count)]
    for partition in range(PARTITIONS):
        kcat.write(topic, values[partition::PARTITIONS], partition=partition)
    return set(values)


def is_shared(*members: Running) -> bool:
    """Every member owns some, all is owned, and nothing twice."""
    owned = [member.partitions for member in members]
    return all(owned) and sorted(each for partition in owned for each in partition) == sorted(ALL)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_group_shares_partitions_while_a_member_joins_and_leaves(
    kcat: Kcat, topic: str, join: Join, strategy: str
) -> None:
    how = ["-X", f"partition.assignment.strategy={strategy}"]
    written = write_to_all(kcat, topic, 0)

    first = join("first", *how)
    until(lambda: first.partitions == ALL, "one owns all", first)
    second = join("second", *how)
    until(lambda: is_shared(first, second), "both own some", first, second)
    written |= write_to_all(kcat, topic, 60)
    until(lambda: written <= {*first.values, *second.values}, "both read", first, second)
    shared = len(second.values)
    second.interrupt()
    until(lambda: first.partitions == ALL, "one owns all again", first)
    written |= write_to_all(kcat, topic, 120)
    until(lambda: written <= {*first.values, *second.values}, "all is read", first, second)

    assert shared > 0
    # A revoked partition is committed first: no record is read again.
    assert sorted([*first.values, *second.values]) == sorted(written)


def test_what_a_killed_member_owned_goes_to_the_one_that_lives(
    kcat: Kcat, topic: str, join: Join
) -> None:
    write_to_all(kcat, topic, 0, count=3)
    doomed, heir = join("doomed"), join("heir")
    until(lambda: is_shared(doomed, heir), "both own some", doomed, heir)

    doomed.kill()
    written = write_to_all(kcat, topic, 3)

    until(lambda: written <= set(heir.values), "the heir reads all", heir)
    assert heir.partitions == ALL


@LEAVES
def test_committed_offsets_and_acknowledged_records_outlive_the_broker(
    broker: BrokerProcess,
    kcat: Kcat,
    topic: str,
    join: Join,
    leave: Callable[[BrokerProcess], None],
) -> None:
    kcat.write(topic, list("abc"), "-X", "acks=all")
    before = join("before")
    until(lambda: before.values == list("abc"), "the first three are read", before)
    before.interrupt()
    kcat.write(topic, list("def"), "-X", "acks=all")

    leave(broker)
    broker.start()

    after = join("after")
    until(lambda: after.values == list("def"), "the rest is read, and no more", after)


@LEAVES
def test_members_that_stay_go_on_when_the_broker_is_back(
    broker: BrokerProcess,
    kcat: Kcat,
    topic: str,
    join: Join,
    leave: Callable[[BrokerProcess], None],
) -> None:
    written = write_to_all(kcat, topic, 0)
    stays = join("stays")
    until(lambda: written <= set(stays.values), "all is read before", stays)

    leave(broker)
    broker.start()

    written |= write_to_all(kcat, topic, 60)
    until(lambda: written <= set(stays.values), "all is read after", stays)


def test_a_static_member_that_returns_keeps_its_partitions(
    kcat: Kcat, topic: str, join: Join
) -> None:
    write_to_all(kcat, topic, 0)
    for life in ("first", "second"):
        member = join(life, "-X", "group.instance.id=the-one")
        until(lambda member=member: member.partitions == ALL, "it owns all", member)  # type: ignore[misc]
        member.interrupt()


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("session.timeout.ms=1000", "Broker: Invalid session timeout"),
        ("partition.assignment.strategy=cooperative-sticky", "Broker: Inconsistent group protocol"),
    ],
)
def test_a_member_that_does_not_fit_is_refused(
    kcat: Kcat, topic: str, join: Join, setting: str, said: str
) -> None:
    write_to_all(kcat, topic, 0, count=3)
    first = join("first")
    until(lambda: first.partitions == ALL, "one owns all", first)

    stranger = join("stranger", "-X", setting)
    until(lambda: said in stranger.said, "the stranger is refused", stranger)

    assert stranger.partitions == set()
