"""Logs that nothing was written to since an orderly stop are opened when they are used."""

import asyncio
from collections.abc import Iterable

import pytest

from millstream.codec.encoding import encode_batch
from millstream.codec.records import Record
from millstream.config import Config
from millstream.engine.partitions.slices import Earliest, Latest, Want
from millstream.errors import NotLeader, StorageUnavailable, UnknownTopic
from millstream.metrics import APPEND_SECONDS
from millstream.model import Acks, TopicPartition
from millstream.server.node import Node
from millstream.settings import TopicSettings
from tests.support.crashing_files import CrashingFiles, Snapshot
from tests.support.nodes import NOW_MS, SESSION, FixedClock, batch, running_node, values_of
from tests.support.virtual_loop import run

COUNT = 20
TOPIC = "orders"
DAY_MS = 24 * 3600 * 1000

RESTS = Config(opens_logs_on_use=True)


async def fill(node: Node, values: Iterable[bytes] = (b"kept",)) -> None:
    await node.topics.create(SESSION, TOPIC, partitions=COUNT)
    for value in values:
        for partition in range(COUNT):
            await append(node, partition, value)


async def append(node: Node, partition: int, value: bytes, acks: Acks = Acks.ALL) -> None:
    await node.partitions.append(SESSION, TopicPartition(TOPIC, partition), batch(value), acks)


async def values(node: Node, partition: int) -> list[bytes | None]:
    (part,) = await node.partitions.read(
        SESSION, [Want(TopicPartition(TOPIC, partition), 0, 2**20)]
    )
    if part.error is not None:
        raise part.error
    return values_of(part)


def opened_files(files: CrashingFiles) -> list[str]:
    """Collects the paths of all files that are opened from here on."""
    paths: list[str] = []
    really_open = files.open

    def note(path: str, *, create: bool = False) -> object:
        paths.append(path)
        return really_open(path, create=create)

    files.open = note  # type: ignore[assignment]
    return paths


def segments(paths: Iterable[str], node: Node) -> set[str]:
    """The segments of the topic among them."""
    topic_id = str(node.topics.describe(SESSION, TOPIC).log(0)).rpartition("-")[0]
    return {path for path in paths if path.endswith(".log") and topic_id in path}


def stopped(files: CrashingFiles, config: Config | None = None) -> None:
    """Leaves a filled data directory, stopped in good order."""

    async def story() -> None:
        async with running_node(config or RESTS, files=files) as node:
            await fill(node)

    run(story())


def test_a_start_opens_no_segment_of_a_log_that_was_stopped_in_order() -> None:
    files = CrashingFiles()
    stopped(files)
    paths = opened_files(files)

    async def story() -> None:
        async with running_node(RESTS, files=files) as node:
            assert not segments(paths, node)
            assert len(node.hub.resting) == COUNT
            assert await values(node, 3) == [b"kept"]
            assert len(segments(paths, node)) == 1
            assert len(node.hub.resting) == COUNT - 1

    run(story())


def test_after_a_kill_only_logs_that_were_used_are_opened() -> None:
    files = CrashingFiles()
    stopped(files)
    disks: list[Snapshot] = []

    async def killed() -> None:
        async with running_node(RESTS, files=files) as node:
            await append(node, 3, b"more")
            await append(node, 5, b"more")
            disks.append(files.snapshot())

    run(killed())
    files.restore(disks[0])

    async def story() -> None:
        async with running_node(RESTS, files=files) as node:
            assert len(node.hub.resting) == COUNT - 2
            assert await values(node, 3) == [b"kept", b"more"]
            assert await values(node, 4) == [b"kept"]

    run(story())


def test_every_use_of_a_resting_log_wakes_it() -> None:
    files = CrashingFiles()
    stopped(files)

    async def story() -> None:
        async with running_node(RESTS, files=files) as node:
            await append(node, 0, b"acks all")
            await append(node, 1, b"acks 1", Acks.LEADER)
            target = TopicPartition(TOPIC, 2)
            latest = await node.partitions.find(SESSION, target, Latest())
            assert latest is not None
            assert latest.offset == 1
            earliest = await node.partitions.find(SESSION, TopicPartition(TOPIC, 3), Earliest())
            assert earliest is not None
            assert earliest.offset == 0
            node.partitions.delete_records(SESSION, TopicPartition(TOPIC, 0), 1)
            assert await values(node, 1) == [b"kept", b"acks 1"]
            assert len(node.hub.resting) == COUNT - 4

    run(story())


def test_appends_to_a_log_that_a_thread_opens_wait_and_keep_their_order() -> None:
    files = CrashingFiles()
    stopped(files)

    async def story() -> None:
        async with running_node(RESTS, files=files) as node:
            node.hub.wake([node.topics.describe(SESSION, TOPIC).log(3)])
            target, values_sent = TopicPartition(TOPIC, 3), [b"%d" % at for at in range(20)]
            writing = []
            for value in values_sent:
                writing.append(node.partitions.append(SESSION, target, batch(value), Acks.LEADER))
                await asyncio.sleep(0)  # Some come while the first ones are released.
            appended = await asyncio.gather(*writing)
            assert [each.base_offset for each in appended] == list(range(1, 21))
            await asyncio.sleep(0)  # The last one is timed when it is done.
            assert sum(node.metrics.observed(APPEND_SECONDS).counts) == 20  # Each once.
            await append(node, 3, b"last")
            assert await values(node, 3) == [b"kept", *values_sent, b"last"]

    run(story())


def test_an_append_to_a_log_that_is_deleted_while_it_wakes_is_refused() -> None:
    files = CrashingFiles()
    stopped(files)

    async def story() -> None:
        async with running_node(RESTS, files=files) as node:
            node.hub.wake([node.topics.describe(SESSION, TOPIC).log(3)])
            target = TopicPartition(TOPIC, 3)
            writing = node.partitions.append(SESSION, target, batch(b"late"), Acks.ALL)
            await node.topics.delete(SESSION, TOPIC)
            with pytest.raises((UnknownTopic, NotLeader)):
                await writing
            assert not node.hub.resting.waking

    run(story())


def test_an_append_to_a_log_that_is_damaged_is_refused_when_it_cannot_be_opened() -> None:
    files = CrashingFiles()
    stopped(files)

    async def story() -> None:
        async with running_node(RESTS, files=files) as node:
            log_id = node.topics.describe(SESSION, TOPIC).log(3)
            (name,) = [each for each in files.list(f"logs/{log_id}") if each.endswith(".log")]
            files.open(f"logs/{log_id}/{name}").truncate(10)
            node.hub.wake([log_id])
            target = TopicPartition(TOPIC, 3)
            with pytest.raises(StorageUnavailable):
                await node.partitions.append(SESSION, target, batch(b"late"), Acks.ALL)

    run(story())


def test_a_log_whose_settings_change_takes_records_meanwhile() -> None:
    files = CrashingFiles()
    stopped(files)

    async def story() -> None:
        async with running_node(RESTS, files=files) as node:
            await node.topics.alter(SESSION, TOPIC, {"retention_ms": "60000"})
            await append(node, 3, b"at once")
            assert await values(node, 3) == [b"kept", b"at once"]

    run(story())


def test_a_read_of_a_log_that_was_just_opened_waits_until_it_is_led() -> None:
    files = CrashingFiles()
    stopped(files)

    async def story() -> None:
        async with running_node(RESTS, files=files) as node:
            assert node.hub.find(node.topics.describe(SESSION, TOPIC).log(3)).is_leader
            assert await values(node, 3) == [b"kept"]
            assert not node.hub.resting.waking

    run(story())


def test_ids_of_all_partitions_count_also_of_one_that_a_thread_opens() -> None:
    """A copy in a log that is passed over would be written a second time."""
    files, settings = CrashingFiles(), {"message_id_window_ms": "3600000"}

    def copy() -> bytes:
        return encode_batch([Record(0, NOW_MS, None, b"x", (("ms-message-id", b"same"),))])

    async def first() -> None:
        async with running_node(RESTS, files=files) as node:
            await node.topics.create(SESSION, TOPIC, partitions=2, settings=settings)
            await node.partitions.append(SESSION, TopicPartition(TOPIC, 0), copy(), Acks.ALL)
            await append(node, 1, b"other")

    async def second() -> None:
        async with running_node(RESTS, files=files) as node:
            assert len(node.hub.resting) == 2
            node.hub.wake([node.topics.describe(SESSION, TOPIC).log(0)])
            target = TopicPartition(TOPIC, 1)
            written = await node.partitions.append(SESSION, target, copy(), Acks.ALL)
            assert written.duplicates
            assert await values(node, 1) == [b"other"]

    run(first())
    run(second())


def test_a_delayed_record_reaches_a_log_that_rested() -> None:
    files, clock = CrashingFiles(), FixedClock(NOW_MS)
    headers = (("ms-delay-ms", b"60000"),)

    async def first() -> None:
        async with running_node(RESTS, files=files, clock=clock) as node:
            await fill(node)
            data = encode_batch([Record(0, NOW_MS, None, b"late", headers)])
            await node.partitions.append(SESSION, TopicPartition(TOPIC, 3), data, Acks.ALL)

    async def second() -> None:
        async with running_node(RESTS, files=files, clock=clock) as node:
            assert len(node.hub.resting) == COUNT
            await asyncio.sleep(61)
            assert len(node.hub.resting) == COUNT - 1
            assert await values(node, 3) == [b"kept", b"late"]

    run(first())
    run(second())


def test_metadata_tells_the_epoch_in_which_a_resting_log_will_be_led() -> None:
    files = CrashingFiles()
    stopped(files)

    async def story() -> None:
        async with running_node(RESTS, files=files) as node:
            topic = node.topics.describe(SESSION, TOPIC)
            before = node.partitions.leadership(SESSION, topic)
            assert len(node.hub.resting) == COUNT, "asking for leaders opens nothing"
            await node.partitions.awake(SESSION, [topic])
            assert not node.hub.resting
            assert node.partitions.leadership(SESSION, topic) == before

    run(story())


def test_figures_of_resting_logs_are_those_of_the_open_ones() -> None:
    files = CrashingFiles()
    stopped(files)

    async def story() -> None:
        async with running_node(RESTS, files=files) as node:
            targets = [TopicPartition(TOPIC, partition) for partition in range(COUNT)]
            resting = [node.partitions.health(SESSION, target) for target in targets]
            assert len(node.hub.resting) == COUNT
            samples = {(s.metric.name, s.labels): s.value for s in node.metrics.samples()}
            await node.partitions.awake(SESSION, [node.topics.describe(SESSION, TOPIC)])
            assert [node.partitions.health(SESSION, target) for target in targets] == resting
            for sample in node.metrics.samples():
                if TOPIC in sample.labels or sample.metric.name.endswith(("leaders", "replicas")):
                    assert samples[sample.metric.name, sample.labels] == sample.value

    run(story())


def test_resting_logs_rest_through_any_number_of_stops() -> None:
    files = CrashingFiles()
    stopped(files)

    async def story() -> None:
        for _ in range(3):
            async with running_node(RESTS, files=files) as node:
                assert len(node.hub.resting) == COUNT
        async with running_node(RESTS, files=files) as node:
            assert [await values(node, at) for at in range(COUNT)] == [[b"kept"]] * COUNT

    run(story())


def test_records_of_a_resting_log_leave_when_they_are_due() -> None:
    files, clock = CrashingFiles(), FixedClock(NOW_MS)
    config = Config(opens_logs_on_use=True, topic_defaults=TopicSettings(retention_ms=DAY_MS))

    async def first() -> None:
        async with running_node(config, files=files, clock=clock) as node:
            await fill(node)

    async def later() -> None:
        async with running_node(config, files=files, clock=clock) as node:
            await asyncio.sleep(120)
            assert len(node.hub.resting) == COUNT, "nothing is due yet"
            clock.start_ms += 2 * DAY_MS
            await asyncio.sleep(300)
            assert not node.hub.resting
            assert await values_or_none(node, 7) == []

    async def values_or_none(node: Node, partition: int) -> list[bytes | None]:
        target = TopicPartition(TOPIC, partition)
        start = await node.partitions.find(SESSION, target, Earliest())
        assert start is not None
        (part,) = await node.partitions.read(SESSION, [Want(target, start.offset, 2**20)])
        return values_of(part)

    run(first())
    run(later())


def test_a_log_with_other_settings_than_at_the_stop_is_opened() -> None:
    files = CrashingFiles()
    stopped(files)

    async def story() -> None:
        config = Config(opens_logs_on_use=True, topic_defaults=TopicSettings(retention_ms=DAY_MS))
        async with running_node(config or RESTS, files=files) as node:
            assert not node.hub.resting
        async with running_node(config or RESTS, files=files) as node:
            assert len(node.hub.resting) == COUNT
            await node.topics.alter(SESSION, TOPIC, {"retention_ms": "60000"})
            await node.hub.opened()
            assert not node.hub.resting

    run(story())


def test_damage_in_a_resting_log_is_named_on_its_first_use() -> None:
    files = CrashingFiles()
    stopped(files)

    async def story() -> None:
        async with running_node(RESTS, files=files) as node:
            log_id = node.topics.describe(SESSION, TOPIC).log(3)
            directory = f"logs/{log_id}"
            (name,) = [each for each in files.list(directory) if each.endswith(".log")]
            files.open(f"{directory}/{name}").truncate(10)
            with pytest.raises(StorageUnavailable):
                await values(node, 3)
            report = await node.repairs.list(SESSION)
            assert [target for target, _ in report.closed] == [TopicPartition(TOPIC, 3)]
            assert await values(node, 4) == [b"kept"]

    run(story())


def test_a_deleted_topic_that_rests_leaves_no_file() -> None:
    files = CrashingFiles()
    stopped(files)

    async def story() -> None:
        async with running_node(RESTS, files=files) as node:
            before = len(files.list("logs"))
            await node.topics.delete(SESSION, TOPIC)
            await asyncio.sleep(1)
            assert not node.hub.resting
            assert len(files.list("logs")) == before - COUNT

    run(story())


def test_a_tail_that_a_power_cut_left_is_cut_after_a_later_orderly_stop_too() -> None:
    """The journal lost the epoch of the tail, so the log rests, through a clean stop as well."""
    files = CrashingFiles()
    stopped(files)
    disk = files.snapshot()
    tails: dict[str, bytes] = {}

    async def written() -> None:
        async with running_node(RESTS, files=files) as node:
            await append(node, 3, b"never told")
            path = segment_of(node, 3)
            file = files.open(path)
            tails[path] = bytes(file.read(0, file.size()))

    def segment_of(node: Node, partition: int) -> str:
        directory = f"logs/{node.topics.describe(SESSION, TOPIC).log(partition)}"
        (name,) = [each for each in files.list(directory) if each.endswith(".log")]
        return f"{directory}/{name}"

    run(written())
    files.restore(disk)
    files.remove("clean")
    for path, data in tails.items():
        file = files.open(path)
        file.write(0, [data])
        file.sync()

    async def stopped_again() -> None:
        async with running_node(RESTS, files=files) as node:
            assert len(node.hub.resting) == COUNT

    async def used() -> None:
        async with running_node(RESTS, files=files) as node:
            assert await values(node, 3) == [b"kept"]
            await append(node, 3, b"next")
            assert await values(node, 3) == [b"kept", b"next"]

    run(stopped_again())
    run(used())


def test_scrubbing_reads_resting_logs_and_opens_those_with_damage() -> None:
    files = CrashingFiles()
    stopped(files)

    async def story() -> None:
        async with running_node(RESTS, files=files) as node:
            log_id = node.topics.describe(SESSION, TOPIC).log(3)
            (name,) = [each for each in files.list(f"logs/{log_id}") if each.endswith(".log")]
            files.flip_bit(f"logs/{log_id}/{name}", 65)
            await node.hub.scrubber.scrub_all()
            assert len(node.hub.resting) == COUNT - 1
            report = await node.repairs.list(SESSION)
            assert TopicPartition(TOPIC, 3) in [target for target, _ in report.damaged]

    run(story())
