"""What it costs to create many topics at once: counted jobs, rounds and calls, no times."""

import asyncio
import sys
from collections.abc import Callable
from dataclasses import replace
from types import FrameType
from typing import TypeVar
from uuid import UUID

from millstream.config import Config
from millstream.metrics import SYNC_ROUNDS
from millstream.model import LogId, NodeId, replica_id
from millstream.server.node import Node, build_node, running
from millstream.settings import TopicSettings
from tests.support.nodes import SESSION, InlineThreads, fake_ports
from tests.support.virtual_loop import run

T = TypeVar("T")

TOPICS, PARTITIONS = 200, 3
# Measured: 1,516. A tenth more is allowed.
CALLS_PER_TOPIC_MAX = 1_670


class CountedThreads(InlineThreads):
    def __init__(self) -> None:
        self.jobs = 0

    async def run(self, work: Callable[[], T]) -> T:
        self.jobs += 1
        return await super().run(work)


async def create(node: Node, count: int) -> None:
    async with asyncio.TaskGroup() as group:
        for number in range(count):
            name = f"orders-{number}"
            group.create_task(node.topics.create(SESSION, name, partitions=PARTITIONS))


def rounds(node: Node) -> float:
    return sum(s.value for s in node.metrics.samples() if s.metric is SYNC_ROUNDS)


def test_new_logs_are_opened_without_a_thread_and_share_their_syncs() -> None:
    threads = CountedThreads()

    async def story() -> None:
        ports = replace(fake_ports(), threads=threads)
        async with running(build_node(Config(), ports)) as node:
            jobs, before = threads.jobs, rounds(node)
            await create(node, TOPICS)

            assert threads.jobs == jobs
            assert rounds(node) - before <= 20
            for number in range(TOPICS):
                topic = node.topics.describe(SESSION, f"orders-{number}")
                assert all(node.hub.find(topic.log(at)).is_ready for at in range(PARTITIONS))

    run(story())


def test_a_log_that_has_files_already_is_read_on_a_thread() -> None:
    threads, log_id = CountedThreads(), LogId(UUID(int=7, version=4), 0)

    async def story() -> None:
        ports = replace(fake_ports(), threads=threads)
        async with running(build_node(Config(), ports)) as node:
            ports.files.make_directory(f"logs/{log_id}")
            jobs = threads.jobs
            founders = frozenset({replica_id(NodeId(node.config.node_id))})
            node.hub.keep(log_id, founders, TopicSettings())
            await node.hub.opened([log_id])

            assert threads.jobs == jobs + 1
            assert node.hub.find(log_id).is_leader

    run(story())


def test_the_python_calls_of_a_created_topic_are_bounded() -> None:
    calls = 0

    def count_call(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    async def story() -> None:
        async with running(build_node(Config(), fake_ports())) as node:
            await node.topics.create(SESSION, "first")
            sys.setprofile(count_call)
            try:
                await create(node, TOPICS)
            finally:
                sys.setprofile(None)

    run(story())
    assert calls / TOPICS <= CALLS_PER_TOPIC_MAX
