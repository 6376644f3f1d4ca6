"""The scrubber finds damage before a reader does, at its pace, and remembers how far it is."""

import asyncio

from millstream.config import Config, Limits, Timing
from millstream.model import Acks
from millstream.replication.scrubbing import START_S
from millstream.server.node import Node
from millstream.settings import TopicSettings
from tests.support.crashing_files import CrashingFiles
from tests.support.nodes import ORDERS, SESSION, batch, running_node
from tests.support.virtual_loop import run

SMALL = Config(topic_defaults=TopicSettings(segment_bytes=1024))
SLOW = Config(
    topic_defaults=TopicSettings(segment_bytes=1024), limits=Limits(scrub_bytes_per_second=100)
)


async def fill(node: Node) -> None:
    for number in range(30):
        await node.partitions.append(SESSION, ORDERS, batch(b"%d" % number * 100), Acks.ALL)


async def rotten(files: CrashingFiles) -> None:
    async with running_node(SMALL, files=files) as node:
        topic = await node.topics.create(SESSION, "orders")
        await fill(node)
    names = [name for name in files.list(f"logs/{topic.log(0)}") if name.endswith(".log")]
    files.flip_bit(f"logs/{topic.log(0)}/{names[1]}", 200)


def test_damage_is_detected_without_a_reader() -> None:
    async def story() -> None:
        files = CrashingFiles()
        await rotten(files)
        async with running_node(SMALL, files=files) as node:
            assert (await node.repairs.list(SESSION)).damaged == []

            await asyncio.sleep(START_S + 30)

            report = await node.repairs.list(SESSION)
            assert [str(at) for at, _ in report.damaged] == ["orders-0"]
            assert report.scrub.last_full_pass_ms >= 0

    run(story())


def test_it_keeps_its_pace_and_goes_on_after_a_restart() -> None:
    async def story() -> None:
        files = CrashingFiles()
        await rotten(files)
        async with running_node(SLOW, files=files) as node:
            await asyncio.sleep(START_S + 10)
            state = node.hub.scrubber.state
            assert 0 < state.pass_bytes <= 100 * 10 + 2 * 1024
            assert state.last_full_pass_ms < state.pass_started_ms
            await asyncio.sleep(120)
            started, place = state.pass_started_ms, (state.log, state.base_offset)
        async with running_node(SLOW, files=files) as node:
            await asyncio.sleep(START_S + 5)
            state = node.hub.scrubber.state
            if state.last_full_pass_ms < 0:
                assert state.pass_started_ms == started
                assert (state.log, state.base_offset) >= place or place == ("", 0)

    run(story())


def test_it_is_off_when_told_so() -> None:
    async def story() -> None:
        files = CrashingFiles()
        await rotten(files)
        off = Config(limits=Limits(scrub_bytes_per_second=0), timing=Timing())
        async with running_node(off, files=files) as node:
            await asyncio.sleep(START_S * 10)

            assert node.hub.scrubber.state.pass_bytes == 0
            assert not files.exists("scrub")

    run(story())
