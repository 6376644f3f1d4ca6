"""Members of a group, driven in turns, who tell what they own."""

import time
from collections.abc import Callable
from typing import Any

from tests.interop.conftest import PARTITIONS
from tests.interop.java.clients import Consumer, Java
from tests.interop.ownership import Ownership
from tests.interop.samples import Sample

REBALANCE_SECONDS_MAX = 60


class Member:
    """A consumer in its group; what the group gives and takes goes to the shared account."""

    def __init__(self, consumer: Consumer, topic: str, ownership: Ownership) -> None:
        self._consumer, self._ownership = consumer, ownership
        self.name = consumer.name
        self.values: list[bytes] = []
        consumer.ask("subscribe", topic=topic)

    def poll(self) -> None:
        records, events = self._consumer.poll()
        # A poll hands out records after it called the listener.
        self.tell(events)
        self.values += [record.sample.value or b"" for record in records]

    def leave(self) -> None:
        self.tell(self._consumer.close())

    def tell(self, events: list[Any]) -> None:
        for kind, partitions in events:
            numbers = [partition for _, partition in partitions]
            if kind == "assigned":
                self._ownership.take(self.name, numbers)
            else:
                self._ownership.give_up(self.name, numbers)


def until(claim: Callable[[], bool], *members: Member) -> None:
    deadline = time.monotonic() + REBALANCE_SECONDS_MAX
    while not claim():
        assert time.monotonic() < deadline, [len(member.values) for member in members]
        for member in members:
            member.poll()


def write_to_all(java: Java, address: str, topic: str, first: int, count: int) -> set[bytes]:
    values = [b"%d" % number for number in range(first, first + count)]
    with java.producer(address) as producer:
        for partition in range(PARTITIONS):
            share = [Sample(None, value, [], -1) for value in values[partition::PARTITIONS]]
            producer.send(topic, share, partition)
    return set(values)


def share_while_a_member_joins_and_leaves(
    java: Java, address: str, topic: str, **settings: object
) -> None:
    """No partition with two owners, no record lost, none read twice."""
    ownership = Ownership()
    opened: dict[str, Any] = {"commits_when_revoked": True, **settings}
    written = write_to_all(java, address, topic, 0, 90)

    with java.consumer(address, **opened) as member, java.consumer(address, **opened) as other:
        first = Member(member, topic, ownership)
        until(lambda: ownership.is_shared_by([first.name], PARTITIONS), first)

        second = Member(other, topic, ownership)
        names = [first.name, second.name]
        until(lambda: ownership.is_shared_by(names, PARTITIONS), first, second)
        written |= write_to_all(java, address, topic, 90, 90)
        until(lambda: written <= {*first.values, *second.values}, first, second)
        shared = len(second.values)

        second.leave()
        written |= write_to_all(java, address, topic, 180, 90)
        until(lambda: ownership.is_shared_by([first.name], PARTITIONS), first)
        until(lambda: written <= {*first.values, *second.values}, first)

    assert ownership.clashes == []
    assert shared > 0
    # Every position was committed at its revocation: no record is read again.
    assert sorted([*first.values, *second.values]) == sorted(written)
