"""A node that knows no leader of the control log for long denies all but super users."""

import asyncio
from dataclasses import replace

from millstream.config import Config
from millstream.control.access import Access
from millstream.control.catalog import Catalog
from millstream.control.commands import AddAcls
from millstream.engine.access.rights import Rights, Watcher
from millstream.engine.gate import Operation
from tests.support.rights import ANN, ROOT, SECURITY, acl
from tests.support.virtual_loop import run

CONFIG = Config(security=replace(SECURITY, stale_ms_max=60_000))
READ = (Operation.READ, "topic:orders")


class Leader:
    """What a node knows of the leader of the control log."""

    def __init__(self) -> None:
        self.known: int | None = 1
        self._watchers: list[Watcher] = []

    def watch(self, watcher: Watcher) -> None:
        self._watchers.append(watcher)

    def become(self, known: int | None) -> None:
        self.known = known
        for watcher in self._watchers:
            watcher()


def followed() -> tuple[Rights, Leader]:
    access, leader = Access(), Leader()
    access.apply(AddAcls(acls=(acl("READ", "topic:orders"),)), 0)
    rights = Rights(access, Catalog(), CONFIG)
    rights.follow(lambda: leader.known, leader.watch)
    return rights, leader


def test_rights_end_without_a_leader_and_come_back_with_one() -> None:
    async def scenario() -> None:
        rights, leader = followed()
        assert rights.allows(ANN, *READ)
        leader.become(None)
        await asyncio.sleep(59)
        assert rights.allows(ANN, *READ)
        before = rights.version
        await asyncio.sleep(2)

        assert not rights.allows(ANN, *READ)
        assert rights.allows(ROOT, *READ)
        assert rights.version != before, "open reads ask again"
        _, rule = rights.audit_words(ANN, *READ)
        assert "stale_ms_max" in rule

        leader.become(2)
        assert rights.allows(ANN, *READ)

    run(scenario())


def test_an_election_of_less_than_the_limit_denies_nothing() -> None:
    async def scenario() -> None:
        rights, leader = followed()
        for _ in range(5):
            leader.become(None)
            await asyncio.sleep(40)
            leader.become(1)
            await asyncio.sleep(40)
            assert rights.allows(ANN, *READ)

    run(scenario())
