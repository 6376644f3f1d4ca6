"""A node's life: its phases, its stops, and what it finds when it starts."""

import asyncio

import pytest

from millstream.config import Config
from millstream.engine.partitions.slices import Want
from millstream.errors import DamagedLog, StartupError
from millstream.model import CONTROL_LOG, Acks
from millstream.server.node import TRANSITIONS, Event, Phase, build_node
from tests.support.crashing_files import CrashingFiles
from tests.support.nodes import ORDERS, SESSION, batch, fake_ports, running_node, values_of
from tests.support.virtual_loop import run


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("event", Event)
def test_every_phase_and_event_leads_somewhere_or_cannot_happen(phase: Phase, event: Event) -> None:
    possible = {
        Phase.BUILT: {Event.RUN},
        Phase.STARTING: {Event.READY, Event.STOP_ASKED, Event.BROKE},
        Phase.READY: {Event.STOP_ASKED, Event.BROKE},
        Phase.STOPPING: {Event.CLOSED, Event.BROKE},
        Phase.STOPPED: set(),
        Phase.FAILED: set(),
    }

    assert ((phase, event) in TRANSITIONS) == (event in possible[phase])


def test_a_node_goes_from_built_to_stopped_in_order() -> None:
    async def story() -> None:
        async with running_node() as node:
            assert node.phase is Phase.READY
            assert node.ready.is_set()

        assert node.phase is Phase.STOPPED
        assert not node.ready.is_set()

    run(story())


def test_a_node_that_is_cancelled_leaves_no_clean_marker() -> None:
    files = CrashingFiles()

    async def story() -> None:
        node = build_node(Config(), fake_ports(files))
        life = asyncio.get_running_loop().create_task(node.run())
        await node.ready.wait()
        life.cancel()
        with pytest.raises(asyncio.CancelledError):
            await life
        assert node.phase is Phase.FAILED

    run(story())
    assert not files.exists("clean")


def test_stopping_while_starting_is_in_order_too() -> None:
    files = CrashingFiles()

    async def story() -> None:
        node = build_node(Config(), fake_ports(files))
        life = asyncio.get_running_loop().create_task(node.run())
        await asyncio.sleep(0)
        node.stop()
        await life
        assert node.phase is Phase.STOPPED

    run(story())
    assert files.exists("clean")


def test_a_stop_before_the_logs_are_open_does_not_vouch_for_them() -> None:
    files = CrashingFiles()

    async def story() -> None:
        async with running_node(files=files) as node:
            await node.topics.create(SESSION, "orders")
            await node.partitions.append(SESSION, ORDERS, batch(b"a"), Acks.ALL)
        files.remove("clean")  # As after a crash.
        node = build_node(Config(), fake_ports(files))
        life = asyncio.get_running_loop().create_task(node.run())
        node.stop()
        await life

        assert not files.exists("clean")

    run(story())


def test_pending_appends_are_answered_before_a_node_stops() -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders")
            appends = [
                node.partitions.append(SESSION, ORDERS, batch(b"%d" % n), Acks.ALL)
                for n in range(10)
            ]

        assert [(await append).base_offset for append in appends] == list(range(10))

    run(story())


def test_a_second_node_on_the_same_directory_refuses_to_start() -> None:
    files = CrashingFiles()

    async def story() -> None:
        async with running_node(files=files) as node:
            with pytest.raises(StartupError, match="another Millstream is running"):
                build_node(Config(), fake_ports(files))

            await node.topics.create(SESSION, "orders")

    run(story())


def test_a_damaged_control_log_stops_the_start_and_nothing_is_touched() -> None:
    files = CrashingFiles()

    async def first_life() -> None:
        async with running_node(files=files) as node:
            for number in range(5):
                await node.topics.create(SESSION, f"topic{number}")

    async def second_life() -> None:
        build_node(Config(), fake_ports(files))

    run(first_life())
    directory = f"logs/{CONTROL_LOG}"
    before = files.list(directory)
    (segment,) = [name for name in before if name.endswith(".log")]
    # Proven bytes that are gone are no torn write.
    files.open(f"{directory}/{segment}").truncate(100)

    with pytest.raises(DamagedLog):
        run(second_life())
    assert files.list(directory) == before


def test_a_flipped_byte_of_the_control_log_is_named_as_repair_takes_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files = CrashingFiles()

    async def life() -> None:
        async with running_node(files=files) as node:
            await node.topics.create(SESSION, "orders")

    run(life())
    files.flip_bit(f"logs/{CONTROL_LOG}/{0:020}.log", 70, bit=0)
    with pytest.raises(StartupError):
        run(life())

    assert "topic=(control log) partition=0" in caplog.text
    assert "millstream repair --skip '(control log)/0@0'" in caplog.text


def test_a_log_that_no_command_speaks_of_is_left_alone() -> None:
    files = CrashingFiles()
    stray = f"logs/{'ab' * 16}-0"

    async def story() -> None:
        async with running_node(files=files) as node:
            await node.topics.create(SESSION, "orders")
        files.make_directory(stray)
        files.open(f"{stray}/00000000000000000000.log", create=True).write(0, [b"precious"])
        async with running_node(files=files):
            pass

        assert files.open(f"{stray}/00000000000000000000.log").read(0, 99) == b"precious"

    run(story())


def test_retention_removes_old_segments_in_the_background() -> None:
    async def story() -> None:
        async with running_node() as node:
            settings = {"retention_ms": "60000", "segment_bytes": "1024"}
            await node.topics.create(SESSION, "orders", settings=settings)
            for number in range(20):
                await node.partitions.append(SESSION, ORDERS, batch(b"%d" % number * 200), Acks.ALL)
            await asyncio.sleep(30)
            young = node.partitions.health(SESSION, ORDERS).log
            await asyncio.sleep(150)
            old = node.partitions.health(SESSION, ORDERS).log

            assert (young.start_offset, young.end_offset) == (0, 20)
            assert (old.start_offset, old.end_offset) == (20, 20)
            appended = await node.partitions.append(SESSION, ORDERS, batch(b"new"), Acks.ALL)
            assert appended.base_offset == 20

    run(story())


def test_compaction_keeps_the_newest_value_of_each_key_in_the_background() -> None:
    async def story() -> None:
        async with running_node() as node:
            settings = {"cleanup_policy": "compact", "segment_bytes": "1024"}
            await node.topics.create(SESSION, "orders", settings=settings)
            for number in range(40):
                data = batch(b"%d" % number * 50, key=b"key%d" % (number % 4))
                await node.partitions.append(SESSION, ORDERS, data, Acks.ALL)
            before = node.partitions.health(SESSION, ORDERS).log
            await asyncio.sleep(60)
            after = node.partitions.health(SESSION, ORDERS).log

            offset, values = 0, []
            while True:
                (part,) = await node.partitions.read(SESSION, [Want(ORDERS, offset, 2**20)])
                assert part.error is None
                if part.records is None:
                    break
                values += values_of(part)
                offset = part.records.end_offset
            assert after.size_bytes < before.size_bytes
            assert after.end_offset == before.end_offset == 40
            newest = [b"%d" % number * 50 for number in range(36, 40)]
            assert [value for value in values if value in newest] == newest
            assert len(values) < 20

    run(story())
