"""Users, roles, ACLs and topics through power cuts: acts hold, and the trail has each once.

An administrator acts and at some moment the power goes, between two acts or inside a write. In the
next life every acknowledged act holds, and the audit trail has the events of all committed commands
once each, in their order, in a chain that was not broken.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.config import Config
from millstream.control.commands import UserChange
from millstream.engine.audit.trail import AuditQuery
from millstream.errors import MillstreamError
from millstream.security.audit import Audit
from millstream.security.audit_events import Event, StoredEvent, decode, verify
from millstream.server.node import Node, build_node
from tests.support.crashing_files import CrashingFiles
from tests.support.nodes import fake_ports
from tests.support.rights import ANN, ROOT, SECURITY, acl
from tests.support.tiers import sized
from tests.support.virtual_loop import run

CONFIG = Config(audit=Audit(enabled="on"), security=SECURITY)


@asynccontextmanager
async def life(files: CrashingFiles, random: Random) -> AsyncIterator[Node]:
    node = build_node(CONFIG, replace(fake_ports(files), entropy=random))
    task = asyncio.ensure_future(node.run())
    await node.ready.wait()
    try:
        yield node
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError, MillstreamError, BaseExceptionGroup):
            await task


async def act_often(node: Node, acknowledged: set[str], numbers: list[int], random: Random) -> None:
    """Act as an administrator; `acknowledged` has the acts that were answered."""
    while True:
        numbers[0] += 1
        name = f"n{numbers[0]}"
        match random.randrange(4):
            case 0:
                change = UserChange(name=name, existence=random.choice(["new", "any"]))
                assert not await node.users.alter(ROOT, [change])
                acknowledged.add(f"user:{name}")
            case 1:
                await node.access_rules.put_role(ROOT, name)
                acknowledged.add(f"role:{name}")
            case 2:
                assert not await node.access_rules.create(ROOT, [acl("READ", f"topic:{name}")])
                acknowledged.add(f"acl:{name}")
            case _:
                await node.topics.create(ROOT, name)
                acknowledged.add(f"topic:{name}")
        await asyncio.sleep(random.choice([0, 0.01, 0.2]))


def check_acts(node: Node, acknowledged: set[str]) -> None:
    users = {user.name for user in node.users.list(ROOT)}
    roles = {view.role.name for view in node.access_rules.roles(ROOT)}
    topics = {topic.name for topic in node.topics.list(ROOT)}
    for act in acknowledged:
        kind, _, name = act.partition(":")
        match kind:
            case "user":
                assert name in users
            case "role":
                assert name in roles
            case "topic":
                assert name in topics
            case _:
                assert node.topics._gate.sees(ANN, f"topic:{name}")


def act_of(event: Event) -> str:
    """`topic:n1` for what made it; an ACL is named by its topic."""
    match event.data.event:
        case "user.create" | "role.create" | "topic.create":
            return event.subject
        case "acl.set":
            return event.subject.replace("topic:", "acl:")
    return ""


async def check_trail(node: Node, acknowledged: set[str]) -> None:
    assert node.audit.writer is not None
    assert await node.audit.writer.flush(is_last=True)
    page = await node.audit.follow(ROOT, AuditQuery(), events_max=0)
    verdict = verify([StoredEvent(each.partition, each.offset, each.value) for each in page.events])
    assert verdict.breaks == []
    events = [decode(each.value) for each in page.events]
    derived = [event for event in events if "control_offset" in event.data.details]
    places = [
        (event.data.details["control_offset"], event.data.details["control_place"])
        for event in derived
    ]
    assert places == sorted(set(places)), "each once, in the order of the commands"
    made = [act for event in derived if (act := act_of(event))]
    assert len(made) == len(set(made))
    assert acknowledged <= set(made)
    users = {f"user:{user.name}" for user in node.users.list(ROOT)}
    topics = {f"topic:{topic.name}" for topic in node.topics.list(ROOT)}
    assert users | topics <= set(made), "also what was committed and not answered"


async def live_and_lose_power(
    files: CrashingFiles, acknowledged: set[str], numbers: list[int], random: Random
) -> None:
    async with life(files, random) as node:
        check_acts(node, acknowledged)
        if random.random() < 0.5:
            await check_trail(node, acknowledged)
        busy = asyncio.ensure_future(act_often(node, acknowledged, numbers, random))
        await asyncio.sleep(random.choice([0.01, 0.1, 0.8]) * random.random())
        if random.random() < 0.3:
            files.kill()
        else:
            files.power_cut(random, reorder=random.random() < 0.5)
        busy.cancel()
        (outcome,) = await asyncio.gather(busy, return_exceptions=True)
        assert isinstance(outcome, asyncio.CancelledError | MillstreamError), outcome


@settings(deadline=None, max_examples=sized(25))
@given(st.integers(0, 2**32))
def test_acknowledged_acts_hold_and_the_trail_has_each_once(seed: int) -> None:
    random, files = Random(seed), CrashingFiles()
    acknowledged: set[str] = set()
    numbers = [0]

    for _ in range(4):
        run(live_and_lose_power(files, acknowledged, numbers, random))

    async def last_life() -> None:
        async with life(files, random) as node:
            check_acts(node, acknowledged)
            await check_trail(node, acknowledged)

    run(last_life())
