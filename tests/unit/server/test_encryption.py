"""A node with encryption at rest: nothing of a record is on its disk, and no key is guessed."""

import asyncio
import os
from dataclasses import replace
from typing import Literal

import pytest
from fastcrc import crc32

from millstream.codec.encoding import encode_batch
from millstream.codec.records import Record
from millstream.config import Config
from millstream.engine.partitions.slices import Want
from millstream.errors import InvalidBatch, InvalidRequest, StartupError
from millstream.model import Acks, TopicPartition
from millstream.security.secrets import KeySecret
from millstream.security.settings import Encryption
from millstream.server.node import Node, build_node
from millstream.server.service import first_of
from millstream.settings import TopicSettings
from millstream.storage.files.memory import MemoryFiles
from tests.support.crashing_files import CrashingFiles
from tests.support.nodes import (
    NOW_MS,
    ORDERS,
    SESSION,
    batch,
    fake_ports,
    running_node,
    values_of,
)
from tests.support.queues import batch_of, message
from tests.support.virtual_loop import run

KEYS = {"MILLSTREAM_KEY_A": "aa" * 32, "MILLSTREAM_KEY_B": "bb" * 32}
CANARY = b"canary-in-the-coal-mine"
SMALL = TopicSettings(segment_bytes=1024, index_interval_bytes=256)


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)


def encrypted(
    mode: Literal["on", "read", "off"] = "on", key: str = "A", old_key: str = ""
) -> Config:
    return Config(
        data_dir="data",
        topic_defaults=SMALL,
        encryption=Encryption(
            mode=mode,
            key=KeySecret(f"env:MILLSTREAM_KEY_{key}" if key else ""),
            old_key=KeySecret(f"env:MILLSTREAM_KEY_{old_key}" if old_key else ""),
        ),
    )


def everything(files: MemoryFiles | CrashingFiles, directory: str = "") -> dict[str, bytes]:
    """All files with their bytes, by path."""
    contents: dict[str, bytes] = {}
    for name in files.list(directory):
        path = f"{directory}/{name}" if directory else name
        try:
            file = files.open(path)
        except OSError:
            contents |= everything(files, path)
            continue
        contents[path] = file.read(0, file.size())
    return contents


async def values(node: Node, target: TopicPartition = ORDERS) -> list[bytes | None]:
    collected: list[bytes | None] = []
    offset = 0
    while True:
        (part,) = await node.partitions.read(
            SESSION, [Want(target, offset, 2**20)], min_bytes=0, bytes_max=2**20, deadline=0
        )
        if part.records is None:
            return collected
        collected += values_of(part)
        offset = part.records.end_offset


async def produce(node: Node, *contents: bytes) -> None:
    for content in contents:
        await node.partitions.append(SESSION, ORDERS, batch(content), Acks.ALL)


def test_no_file_shows_a_record_after_produce_delay_and_compaction() -> None:
    files = MemoryFiles()

    async def story() -> None:
        async with running_node(encrypted(), files=files) as node:
            await node.topics.create(SESSION, "orders", settings={"index_key": "true"})
            compacted = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0"}
            await node.topics.create(SESSION, "table", settings=compacted)
            await produce(node, *(CANARY * 3 for _ in range(12)))
            for number in range(24):
                record = Record(0, NOW_MS, b"key%d" % (number % 3) + CANARY, CANARY * 2)
                target = TopicPartition("table", 0)
                await node.partitions.append(SESSION, target, encode_batch([record]), Acks.ALL)
            table = node.hub.replicas[node.topics.describe(SESSION, "table").log(0)]
            before = table.log.health().size_bytes
            await node.hub.upkeep.compact(table)
            assert table.log.health().size_bytes < before
            later = message(CANARY, delay_ms=60 * 60 * 1000)
            await node.partitions.append(SESSION, ORDERS, batch_of(later), Acks.ALL)
            assert CANARY * 3 in await values(node)

    run(story())

    shown = [path for path, data in everything(files).items() if CANARY in data]
    assert shown == []
    assert "orders" not in str(everything(files).keys())


def test_the_next_life_reads_what_this_one_encrypted() -> None:
    files = CrashingFiles()

    async def first() -> None:
        async with running_node(encrypted(), files=files) as node:
            await node.topics.create(SESSION, "orders")
            await produce(node, *(b"%d" % number for number in range(30)))

    async def second() -> None:
        async with running_node(encrypted(), files=files) as node:
            assert await values(node) == [b"%d" % number for number in range(30)]

    run(first())
    run(second())


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (encrypted(key="B"), 'the key "main" is not the one that data_dir data was written with'),
        (encrypted("read", "B"), 'the key "main" is not the one that data_dir data was written'),
        (encrypted("off", ""), "data_dir data is encrypted; set encryption.key"),
    ],
    ids=["another key", "another key, only to read", "off"],
)
def test_a_wrong_or_missing_key_is_refused_and_nothing_is_touched(
    config: Config, sentence: str
) -> None:
    files = CrashingFiles()

    async def life() -> None:
        async with running_node(encrypted(), files=files) as node:
            await node.topics.create(SESSION, "orders")
            await produce(node, b"one")

    run(life())
    before = everything(files)

    async def refused() -> None:
        with pytest.raises(StartupError, match=sentence):
            build_node(config, fake_ports(files))

    run(refused())
    assert everything(files) == before
    assert "clean" in before


def test_modes_follow_one_another_and_every_record_stays_readable() -> None:
    files = CrashingFiles()
    written: list[bytes] = []
    configs = [
        Config(data_dir="data", topic_defaults=SMALL),
        encrypted(),
        encrypted("read"),
        encrypted(),
        encrypted("on", "B", "A"),
        encrypted("on", "B", "A"),
    ]

    async def life(number: int, config: Config) -> None:
        async with running_node(config, files=files) as node:
            if number == 0:
                await node.topics.create(SESSION, "orders")
            assert await values(node) == written
            added = [b"life %d record %d" % (number, count) for count in range(20)]
            await produce(node, *added)
            written.extend(added)
            assert await values(node) == written
            if number == len(configs) - 1:
                assert node.keyring is not None
                assert node.keyring.rotate_root()

    for number, config in enumerate(configs):
        run(life(number, config))

    async def after() -> None:
        async with running_node(encrypted(key="B"), files=files) as node:
            assert await values(node) == written

    run(after())
    disk = everything(files)
    assert any(b"life 0" in data for data in disk.values())
    assert any(b"life 2" in data for data in disk.values())
    assert not any(b"life %d" % life in data for life in (1, 3, 4, 5) for data in disk.values())


def test_a_deleted_topic_loses_its_keys_before_its_files() -> None:
    files = CrashingFiles()
    removals: list[bool] = []  # Whether the key was there still, for each removal of a directory.

    async def story() -> None:
        async with running_node(encrypted(), files=files) as node:
            keyring = node.keyring
            assert keyring is not None
            await node.topics.create(SESSION, "orders", partitions=3)
            topic_id = node.topics.describe(SESSION, "orders").log(0).topic_id
            await produce(node, b"gone soon")
            assert keyring.has(topic_id)
            remove_directory = files.remove_directory

            def watched(path: str) -> None:
                removals.append(topic_id.hex.encode() in everything(files)["keyring"])
                remove_directory(path)

            files.remove_directory = watched  # type: ignore[method-assign]
            await node.topics.delete(SESSION, "orders")
            await asyncio.sleep(5)

            assert not keyring.has(topic_id)
            assert removals == [False, False, False]

    run(story())


def test_a_producer_cannot_send_what_looks_sealed() -> None:
    async def story() -> None:
        async with running_node(encrypted()) as node:
            await node.topics.create(SESSION, "orders")
            data = bytearray(batch(b"x"))
            data[21] |= 0x40
            data[17:21] = crc32.iscsi(bytes(data[21:])).to_bytes(4, "big")
            with pytest.raises(InvalidBatch, match="unknown bits"):
                await node.partitions.append(SESSION, ORDERS, bytes(data), Acks.ALL)

    run(story())


def test_encryption_without_a_key_is_refused_by_the_configuration() -> None:
    with pytest.raises(ValueError, match=r"needs encryption\.key"):
        Encryption(mode="on")
    assert os.environ["MILLSTREAM_KEY_A"] not in repr(encrypted())
    assert replace(encrypted(), node_id=2).encryption.is_on


def test_old_records_are_sealed_anew_with_the_keys_of_today() -> None:
    files = CrashingFiles()
    plain = Config(data_dir="data", topic_defaults=SMALL)

    async def first() -> None:
        async with running_node(plain, files=files) as node:
            await node.topics.create(SESSION, "orders")
            await produce(node, *(CANARY + b"%d" % number for number in range(30)))

    async def second() -> None:
        async with running_node(encrypted(), files=files) as node:
            before = await node.encryption.describe(SESSION)
            assert before.clear_bytes > 30 * len(CANARY)
            await produce(node, *(CANARY + b"%d" % number for number in range(30, 40)))
            assert await node.encryption.rotate(SESSION, "data") > 0
            expected = [CANARY + b"%d" % number for number in range(40)]

            assert await node.encryption.rewrite(SESSION) > 0
            while (state := await node.encryption.describe(SESSION)).rewriting_count:
                await asyncio.sleep(1)

            assert await values(node) == expected
            assert state.clear_bytes == 0
            newest = {key.topic: key.id for key in state.keys}
            assert all(key.size_bytes == 0 for key in state.keys if key.id != newest[key.topic])
            assert {key.topic for key in state.keys} >= {"orders", "(control log)"}

    async def third() -> None:
        async with running_node(encrypted(), files=files) as node:
            assert await values(node) == [CANARY + b"%d" % number for number in range(40)]

    run(first())
    assert any(CANARY in data for data in everything(files).values())
    run(second())
    assert not any(CANARY in data for data in everything(files).values())
    run(third())


def test_the_root_key_is_rotated_only_when_the_next_one_is_known() -> None:
    async def story() -> None:
        async with running_node(encrypted()) as node:
            with pytest.raises(InvalidRequest, match=r"protects the keyring already"):
                await node.encryption.rotate(SESSION, "root")
            assert await node.encryption.rotate(SESSION, "master") > 0
        async with running_node() as node:
            with pytest.raises(InvalidRequest, match="encryption is off"):
                await node.encryption.rotate(SESSION, "data")
            assert (await node.encryption.describe(SESSION)).mode == "off"

    run(story())


def test_a_node_alone_requires_encryption_of_itself_and_of_its_next_life() -> None:
    files = CrashingFiles()

    async def first() -> None:
        async with running_node(encrypted(), files=files) as node:
            await node.encryption.require(SESSION, is_required=True)
            assert (await node.encryption.describe(SESSION)).is_required

    async def second() -> None:
        async with running_node(encrypted("read"), files=files):
            pass

    async def third() -> None:
        async with running_node(encrypted(), files=files) as node:
            await node.encryption.require(SESSION, is_required=False)

    run(first())
    with pytest.raises(ExceptionGroup) as refused:
        run(second())
    assert isinstance(first_of(refused.value), StartupError)
    assert "requires encryption at rest" in str(first_of(refused.value))
    files.restore(files.snapshot())  # Also of the lock, which a process would have lost.
    run(third())
    run(second())


def test_encryption_is_not_required_by_a_node_that_writes_in_clear() -> None:
    async def story() -> None:
        async with running_node() as node:
            with pytest.raises(InvalidRequest, match="node 1 writes records in clear"):
                await node.encryption.require(SESSION, is_required=True)

    run(story())
