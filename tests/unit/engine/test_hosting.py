"""What a start removes: the logs of topics that were deleted, if any are left, and nothing else."""

import asyncio

from millstream.config import Config
from millstream.model import LogId
from millstream.server.node import build_node, running
from millstream.storage.files.memory import MemoryFiles
from tests.support.nodes import SESSION, fake_ports, running_node
from tests.support.virtual_loop import run


class CountingFiles(MemoryFiles):
    def __init__(self) -> None:
        super().__init__()
        self.removed: list[str] = []

    def remove_directory(self, path: str) -> None:
        self.removed.append(path)
        super().remove_directory(path)


def test_a_start_does_not_remove_again_what_was_deleted_in_an_earlier_life() -> None:
    files = CountingFiles()

    async def live() -> None:
        async with running_node(files=files) as node:
            for number in range(20):
                await node.topics.create(SESSION, f"t{number}", partitions=2)
                await node.topics.delete(SESSION, f"t{number}")
            await node.topics.create(SESSION, "kept")
            await asyncio.sleep(1)

    run(live())
    assert len(set(files.removed)) == 40
    files.removed.clear()

    async def again() -> list[str]:
        async with running_node(files=files) as node:
            await asyncio.sleep(1)
            return [topic.name for topic in node.topics.list(SESSION)]

    assert run(again()) == ["kept"]
    assert files.removed == []


def test_what_a_crash_left_of_a_deleted_topic_is_removed_and_a_stranger_is_not() -> None:
    files = CountingFiles()
    stranger = "logs/0123456789abcdef0123456789abcdef-0"

    async def live() -> LogId:
        async with running_node(files=files) as node:
            topic = await node.topics.create(SESSION, "gone")
            await node.topics.delete(SESSION, "gone")
            await asyncio.sleep(1)
            return topic.log(0)

    left = f"logs/{run(live())}"
    files.make_directory(left)  # As if the power had gone before it was removed.
    files.open(f"{left}/00000000000000000000.log", create=True)
    files.make_directory(stranger)
    files.removed.clear()

    async def again() -> None:
        async with running(build_node(Config(), fake_ports(files))):
            await asyncio.sleep(1)

    run(again())
    assert files.removed == [left]
    assert not files.list(left)
    assert stranger.removeprefix("logs/") in files.list("logs")
