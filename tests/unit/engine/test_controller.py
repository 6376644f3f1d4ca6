"""The control log: what cannot be applied is never proposed, and stops a node if it is there."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

import pytest

from millstream.config import Config
from millstream.control.commands import AlterTopic, CreateTopic, DeleteTopic, encode
from millstream.engine.ledgers.ledger import Entry
from millstream.errors import (
    InvalidRequest,
    InvalidSetting,
    StorageUnavailable,
    TopicExists,
    UnknownTopic,
    UnusableCommand,
)
from millstream.model import CONTROL_LOG, NodeId
from millstream.server.node import Node, build_node, running
from millstream.storage.files.memory import MemoryFiles
from millstream.storage.files.skipped_commands import SkippedCommand, add_skipped
from tests.support.nodes import SESSION, fake_ports, running_node
from tests.support.virtual_loop import run

POISON = b'{"command":"AlterTopic","name":"orders","changes":{"retention_ms":1000}}'


def write_poison(node: Node, data: bytes = POISON) -> int:
    """Append what no proposal would be let through with."""
    return node._controller._ledger.write([Entry(None, data)]) - 1


def create(name: str, **settings: object) -> CreateTopic:
    return CreateTopic(
        name=name,
        topic_id=UUID(int=77),
        placement=((NodeId(1),),),
        overrides=settings,  # type: ignore[arg-type]
        created_ms=0,
    )


def test_a_command_is_checked_before_anything_is_written() -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders")
            control = node.hub.replicas[CONTROL_LOG]
            before = control.log.end_offset
            for command, error in (
                (create("t", retention_ms=1000), InvalidRequest),
                (create("t", colour="red"), InvalidSetting),
                (create("orders"), TopicExists),
                (AlterTopic(name="orders", changes={"retention_ms": "x"}), InvalidSetting),
                (DeleteTopic(name="gone"), UnknownTopic),
            ):
                with pytest.raises(error):
                    await node._controller.propose(SESSION, command)
            with pytest.raises(InvalidRequest):
                await node._controller.reserve_producer_ids(SESSION, 0)

            assert control.log.end_offset == before

    run(story())


def test_a_command_that_cannot_be_applied_stops_the_node_and_every_start_after_it() -> None:
    files = MemoryFiles()

    async def live() -> None:
        async with failing_node(files) as node:
            await node.topics.create(SESSION, "orders")
            offset = write_poison(node)
            with pytest.raises(StorageUnavailable, match=f"offset {offset} of the control log"):
                await node.topics.create(SESSION, "late")

    with pytest.raises(BaseExceptionGroup) as first:
        run(live())
    assert first.group_contains(UnusableCommand, match="cannot be applied.*--skip-command 1")

    async def again() -> None:
        async with failing_node(files) as node:
            await node.topics.create(SESSION, "late")

    with pytest.raises(BaseExceptionGroup) as second:
        run(again())
    assert second.group_contains(UnusableCommand, match="offset 1 of the control log")


@asynccontextmanager
async def failing_node(files: MemoryFiles) -> AsyncIterator[Node]:
    """A node that leaves its directory to the next one however it ends."""
    node = build_node(Config(), fake_ports(files))
    try:
        async with running(node):
            yield node
            await asyncio.sleep(5)
    finally:
        node.abandon()


def test_a_skipped_command_is_left_out_loudly(caplog: pytest.LogCaptureFixture) -> None:
    files = MemoryFiles()

    async def live() -> None:
        async with failing_node(files) as node:
            await node.topics.create(SESSION, "orders")
            write_poison(node)
            node._controller._ledger.write([Entry(None, encode(create("late")))])

    with pytest.raises(BaseExceptionGroup):
        run(live())
    add_skipped(files, "data", SkippedCommand(1, "poison", 5))

    async def again() -> list[str]:
        async with running_node(files=files) as node:
            await node.topics.create(SESSION, "later")
            return [topic.name for topic in node.topics.list(SESSION)]

    with caplog.at_level(logging.WARNING):
        assert run(again()) == ["late", "later", "orders"]

    assert "skipped a command" in caplog.text
    assert "offset=1" in caplog.text


def test_settings_of_another_version_are_kept_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files = MemoryFiles()

    async def live() -> int:
        async with running_node(files=files) as node:
            command = create("early", segment_bytes="1", colour="red")
            await node._controller._ledger.propose([Entry(None, encode(command))])
            log_id = node.topics.describe(SESSION, "early").log(0)
            await node.hub.opened([log_id])
            return node.hub.find(log_id).log.settings.segment_bytes

    async def again() -> dict[str, str]:
        async with running_node(files=files) as node:
            await node.topics.alter(SESSION, "early", {"retention_ms": "9"})
            await node.topics.alter(SESSION, "early", {"colour": None})
            return node.topics.describe(SESSION, "early").overrides

    assert run(live()) == 1024
    with caplog.at_level(logging.WARNING):
        assert run(again()) == {"segment_bytes": "1", "retention_ms": "9"}
    assert "topic=early" in caplog.text
    assert "segment_bytes = 1 is not in 1024" in caplog.text


def test_an_error_of_one_watcher_leaves_no_other_uncalled() -> None:
    async def story() -> None:
        async with running_node() as node:
            control = node.hub.replicas[CONTROL_LOG]
            called: list[int] = []

            def fail() -> None:
                called.append(0)
                raise ValueError("a watcher's own fault")

            watchers = [fail, *(lambda n=n: called.append(n) for n in range(1, 10))]
            for watcher in watchers:
                control.watch(watcher)
            with pytest.raises(ValueError):
                control._call_watchers()
            for watcher in watchers:
                control.unwatch(watcher)

            assert sorted(called) == list(range(10))

    run(story())
