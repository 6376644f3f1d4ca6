"""Quotas through the engine: how they are set, that they last, and what they cost whom."""

import asyncio

import pytest

from millstream.config import Config, Limits
from millstream.control.commands import AlterQuotas
from millstream.control.quotas import (
    CONSUMER_BYTE_RATE,
    DEFAULT,
    PRODUCER_BYTE_RATE,
    Entity,
    Quotas,
)
from millstream.engine.quotas.accounts import Usage
from millstream.errors import InvalidRequest
from millstream.model import Session, user_principal
from millstream.storage.files.memory import MemoryFiles
from tests.support.nodes import SESSION, running_node
from tests.support.virtual_loop import run

ALICE = Entity("alice", None)


def usage_with(entity: Entity, rate: float, **limits: int) -> Usage:
    quotas = Quotas()
    usage = Usage(quotas, Limits(**limits))
    changes: dict[str, float | None] = {PRODUCER_BYTE_RATE: rate}
    quotas.apply(AlterQuotas(user=entity.user, client_id=entity.client_id, changes=changes))
    return usage


def client(name: str, user: str = "alice") -> Session:
    return Session(principal=user_principal(user), client_id=name)


# -- setting them ------------------------------------------------------------------------------


def test_quotas_survive_a_restart_and_count_at_once() -> None:
    files = MemoryFiles()

    async def first_life() -> None:
        async with running_node(files=files) as node:
            await node.client_quotas.alter(SESSION, ALICE, {PRODUCER_BYTE_RATE: 5.0})
            await node.client_quotas.alter(SESSION, Entity(None, DEFAULT), {CONSUMER_BYTE_RATE: 9})
            await node.client_quotas.alter(SESSION, Entity("bob", None), {PRODUCER_BYTE_RATE: 1.0})
            await node.client_quotas.alter(SESSION, Entity("bob", None), {PRODUCER_BYTE_RATE: None})

    async def later_life() -> None:
        async with running_node(files=files) as node:
            assert node.client_quotas.describe(SESSION) == {
                ALICE: {PRODUCER_BYTE_RATE: 5.0},
                Entity(None, DEFAULT): {CONSUMER_BYTE_RATE: 9.0},
            }
            assert node.usage.charge(client("app"), PRODUCER_BYTE_RATE, 10) == 1_000

    run(first_life())
    run(later_life())


def test_a_node_keeps_quotas_of_so_many_and_no_more() -> None:
    async def story() -> None:
        async with running_node(Config(limits=Limits(quota_entities_max=1))) as node:
            await node.client_quotas.alter(SESSION, ALICE, {PRODUCER_BYTE_RATE: 5.0})

            with pytest.raises(InvalidRequest, match="1 entities have quotas"):
                await node.client_quotas.alter(
                    SESSION, Entity("bob", None), {PRODUCER_BYTE_RATE: 5.0}
                )

            await node.client_quotas.alter(SESSION, ALICE, {PRODUCER_BYTE_RATE: 6.0})
            assert node.client_quotas.describe(SESSION) == {ALICE: {PRODUCER_BYTE_RATE: 6.0}}

    run(story())


def test_what_is_refused_never_reaches_the_log() -> None:
    async def story() -> None:
        async with running_node() as node:
            before = node._controller.state.applied_offset

            with pytest.raises(InvalidRequest):
                await node.client_quotas.alter(SESSION, ALICE, {"request_percentage": 5.0})

            assert node._controller.state.applied_offset == before

    run(story())


# -- using them up -----------------------------------------------------------------------------


def test_a_burst_is_free_and_what_is_beyond_takes_its_time() -> None:
    async def story() -> None:
        usage = usage_with(ALICE, 100, quota_burst_ms_max=2_000)

        assert usage.charge(client("app"), PRODUCER_BYTE_RATE, 200) == 0
        assert usage.charge(client("app"), PRODUCER_BYTE_RATE, 50) == 500
        await asyncio.sleep(0.25)
        assert usage.charge(client("app"), PRODUCER_BYTE_RATE, 0) == 250
        await asyncio.sleep(0.25)
        assert usage.charge(client("app"), PRODUCER_BYTE_RATE, 0) == 0
        await asyncio.sleep(3_600)
        assert usage.charge(client("app"), PRODUCER_BYTE_RATE, 300) == 1_000

    run(story())


def test_clients_of_a_user_share_its_quota_and_others_do_not_notice() -> None:
    async def story() -> None:
        usage = usage_with(ALICE, 100)

        assert usage.charge(client("one"), PRODUCER_BYTE_RATE, 100) == 0
        assert usage.charge(client("other"), PRODUCER_BYTE_RATE, 100) == 1_000
        assert usage.charge(client("one", "bob"), PRODUCER_BYTE_RATE, 10**9) == 0
        assert usage.charge(client("one"), CONSUMER_BYTE_RATE, 10**9) == 0

    run(story())


def test_a_wait_is_bounded_and_what_is_due_beyond_it_stays_due() -> None:
    async def story() -> None:
        usage = usage_with(ALICE, 100, throttle_ms_max=30_000)

        assert usage.charge(client("app"), PRODUCER_BYTE_RATE, 100 * 46) == 30_000
        await asyncio.sleep(30)
        assert usage.charge(client("app"), PRODUCER_BYTE_RATE, 0) == 15_000

    run(story())


def test_another_rate_counts_from_the_next_request_on() -> None:
    async def story() -> None:
        usage = usage_with(ALICE, 100)
        usage.charge(client("app"), PRODUCER_BYTE_RATE, 1_100)

        usage._quotas.apply(
            AlterQuotas(user="alice", client_id=None, changes={PRODUCER_BYTE_RATE: 1_000.0})
        )
        assert usage.charge(client("app"), PRODUCER_BYTE_RATE, 0) == 1_000

        usage._quotas.apply(
            AlterQuotas(user="alice", client_id=None, changes={PRODUCER_BYTE_RATE: None})
        )
        assert usage.charge(client("app"), PRODUCER_BYTE_RATE, 10**9) == 0
        assert not usage.limited

    run(story())


def test_only_so_many_clients_are_remembered_and_the_longest_silent_is_forgotten_first() -> None:
    async def story() -> None:
        usage = usage_with(Entity(None, DEFAULT), 100, quota_clients_max=2)
        for name in ("first", "second", "first", "third"):
            usage.charge(client(name), PRODUCER_BYTE_RATE, 100)

        assert len(usage) == 2
        assert usage.charge(client("first"), PRODUCER_BYTE_RATE, 0) == 1_000
        assert usage.charge(client("third"), PRODUCER_BYTE_RATE, 0) == 0
        assert usage.charge(client("second"), PRODUCER_BYTE_RATE, 0) == 0
        for number in range(1_000):
            usage.charge(client(f"client-{number}"), PRODUCER_BYTE_RATE, 100)
        assert len(usage) == 2

    run(story())
