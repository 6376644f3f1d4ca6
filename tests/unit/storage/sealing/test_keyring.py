"""Keys are in the keyring before they are used; a wrong or missing one is told in a sentence."""

import os
from contextlib import nullcontext
from random import Random
from uuid import UUID

import pytest

from millstream.codec.batch import read_header
from millstream.errors import StartupError, StorageError
from millstream.model import LogId
from millstream.ports import Files
from millstream.security.secrets import KeySecret
from millstream.storage.files.directory import KEYRING
from millstream.storage.files.memory import MemoryFiles
from millstream.storage.sealing import keyring as keyring_module
from millstream.storage.sealing.batches import MissingKey, Sealer
from millstream.storage.sealing.keyring import Keyring, make_keyring, open_keyring
from millstream.storage.sealing.root import LocalRoot, Root, ServiceRoot, check_value, parse_key
from tests.support.crashing_files import CrashingFiles
from tests.support.logs import batch

CLUSTER = "cluster-a"
MAIN, OTHER = LocalRoot("main", b"m" * 32), LocalRoot("main", b"o" * 32)
ORDERS, MOVES = LogId(UUID(int=1), 0), LogId(UUID(int=2), 3)


class Clock:
    def now_ms(self) -> int:
        return 1_700_000_000_000


def made(files: Files, root: Root = MAIN) -> Keyring:
    keyring = make_keyring(
        files,
        cluster_id=CLUSTER,
        root=root,
        random_bytes=os.urandom,
        clock=Clock(),
        lock=nullcontext(),
    )
    keyring.begin()
    return keyring


def reopened(
    files: Files, root: Root = MAIN, old_root: Root | None = None, *, seals: bool = True
) -> Keyring:
    keyring = open_keyring(
        files,
        "data",
        root=root,
        old_root=old_root,
        seals=seals,
        random_bytes=os.urandom,
        clock=Clock(),
        lock=nullcontext(),
    )
    assert keyring is not None
    return keyring


def sealed(sealer: Sealer) -> bytes:
    data = batch(5)
    return b"".join(sealer.seal([data], [read_header(data)])[0])


def opens(sealer: Sealer, stored: bytes) -> bool:
    return b"".join(sealer.open(read_header(stored), stored)) == batch(5)


def everything(files: MemoryFiles) -> dict[str, bytes]:
    return {name: files.open(name).read(0, 2**20) for name in files.list("")}


def test_what_one_life_seals_the_next_opens() -> None:
    files = MemoryFiles()
    stored = sealed(made(files).sealer(ORDERS))

    assert opens(reopened(files).sealer(ORDERS), stored)


def test_each_topic_has_its_own_key_and_partitions_share_it() -> None:
    keyring = made(MemoryFiles())
    ids = [keyring.sealer(log).current_id for log in (ORDERS, LogId(UUID(int=1), 1), MOVES)]

    assert ids == [1, 1, 2]


@pytest.mark.parametrize("seals", [True, False])
def test_another_root_key_is_refused_and_nothing_is_touched(seals: bool) -> None:
    files = MemoryFiles()
    made(files).sealer(ORDERS)
    before = everything(files)

    with pytest.raises(
        StartupError,
        match=rf'the key "main" is not the one that data_dir data was written with '
        rf"\(check {OTHER.check}, expected {MAIN.check}\)",
    ):
        reopened(files, OTHER, seals=seals)

    assert everything(files) == before


def test_a_lost_keyring_is_missed() -> None:
    files = MemoryFiles()
    made(files)
    files.remove(KEYRING)

    with pytest.raises(StartupError, match="the keyring is missing: restore data/keyring"):
        reopened(files)


def test_every_changed_byte_of_a_keyring_is_noticed() -> None:
    files = MemoryFiles()
    made(files).sealer(ORDERS)
    file = files.open(KEYRING)
    data = file.read(0, file.size())

    for at in range(len(data) - 1):  # The last byte is a newline.
        file.write(at, [bytes([data[at] ^ 1])])
        with pytest.raises(StartupError):
            reopened(files)
        file.write(at, [data[at : at + 1]])
    assert reopened(files).has(ORDERS.topic_id)


def test_a_keyring_of_an_earlier_time_misses_the_key_by_its_number() -> None:
    files = MemoryFiles()
    keyring = made(files)
    early = files.open(KEYRING).read(0, 2**20)
    stored = sealed(keyring.sealer(ORDERS))
    files.make_directory(f"logs/{ORDERS}")
    files.open(f"logs/{ORDERS}/{0:020d}.log", create=True).write(0, [stored])
    file = files.open(KEYRING)
    file.truncate(0)
    file.write(0, [early])

    with pytest.raises(MissingKey, match="key 1 of topic 00000000"):
        reopened(files).prepare([ORDERS])


def test_rotated_data_keys_seal_and_old_ones_open() -> None:
    files = MemoryFiles()
    keyring = made(files)
    sealer = keyring.sealer(ORDERS)
    old = sealed(sealer)

    assert keyring.rotate() == 1

    assert sealer.current_id == 2
    assert opens(sealer, old)
    again = reopened(files).sealer(ORDERS)
    assert opens(again, old)
    assert opens(again, sealed(sealer))


def test_the_root_key_changes_in_one_write_when_both_are_known() -> None:
    files = MemoryFiles()
    stored = sealed(made(files).sealer(ORDERS))
    keyring = reopened(files, OTHER, MAIN)
    assert keyring.awaits_root

    assert keyring.rotate_root()

    assert not keyring.rotate_root()
    assert opens(reopened(files, OTHER).sealer(ORDERS), stored)
    with pytest.raises(StartupError, match="is not the one"):
        reopened(files, MAIN)


def test_a_new_master_key_wraps_all_data_keys_again() -> None:
    files = MemoryFiles()
    keyring = made(files)
    stored = sealed(keyring.sealer(ORDERS))
    before = keyring.entries()

    assert keyring.rotate_master() == 1

    assert keyring.entries()[0].key != before[0].key
    assert opens(keyring.sealer(ORDERS), stored)
    assert opens(reopened(files).sealer(ORDERS), stored)


def test_a_shredded_topic_cannot_be_read_from_any_copy_of_its_files() -> None:
    files = MemoryFiles()
    keyring = made(files)
    stored = sealed(keyring.sealer(ORDERS))
    other = sealed(keyring.sealer(MOVES))

    keyring.shred(ORDERS.topic_id)

    keyring = reopened(files, seals=False)
    with pytest.raises(MissingKey):
        opens(keyring.sealer(ORDERS), stored)
    assert opens(keyring.sealer(MOVES), other)


def test_read_mode_opens_and_writes_in_clear() -> None:
    files = MemoryFiles()
    stored = sealed(made(files).sealer(ORDERS))

    sealer = reopened(files, seals=False).sealer(ORDERS)

    assert opens(sealer, stored)
    assert sealed(sealer) == batch(5)


def test_a_key_that_sealed_enough_batches_is_retired(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyring_module, "STRIDE", 4)
    monkeypatch.setattr(keyring_module, "STRIDES_MAX", 3)
    files = MemoryFiles()
    sealer = made(files).sealer(ORDERS)

    ids = [read_id(sealed(sealer)) for _ in range(14)]

    assert ids == [1] * 12 + [2] * 2
    # A start takes a stride of every key, whatever the life before has used.
    for _ in range(3):
        keyring = reopened(files)
        keyring.begin()
    assert keyring.sealer(ORDERS).current_id == 3


def read_id(stored: bytes) -> int:
    return int.from_bytes(stored[61:65], "big")


def test_power_cuts_at_any_write_leave_a_keyring_that_opens_all_that_was_sealed() -> None:
    files = CrashingFiles()
    moments = []
    stored: list[tuple[LogId, bytes]] = []
    files.on_operation = lambda *_: moments.append((files.snapshot(), list(stored)))
    keyring = made(files)
    for number in range(3):
        log_id = LogId(UUID(int=number + 1), 0)
        stored.append((log_id, sealed(keyring.sealer(log_id))))
    keyring.rotate()
    stored += [(log_id, sealed(keyring.sealer(log_id))) for log_id, _ in stored]
    keyring.rotate_master()
    keyring = reopened(files, OTHER, MAIN)
    keyring.rotate_root()
    files.on_operation = None

    for number, (disk, sealed_by_then) in enumerate(moments * 3):
        files.restore(disk)
        files.power_cut(Random(number), reorder=bool(number % 2))
        if not files.exists(KEYRING):
            assert not sealed_by_then
            continue
        keyring = reopened(files, OTHER, MAIN)
        for log_id, data in sealed_by_then:
            assert opens(keyring.sealer(log_id), data)


def test_a_full_disk_makes_no_key_and_the_next_try_does() -> None:
    files = CrashingFiles()
    keyring = made(files)
    files.fail_write()

    with pytest.raises(StorageError):
        keyring.prepare([ORDERS])
    assert not keyring.has(ORDERS.topic_id)

    keyring.prepare([ORDERS])
    assert reopened(files).has(ORDERS.topic_id)


# -- root keys -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [b"0123456789abcdef0123456789abcde\n", b"61" * 32, b" " + b"61" * 32 + b"\n"],
    ids=["raw", "hexadecimal", "with blanks"],
)
def test_a_key_is_raw_hexadecimal_or_base64(text: bytes) -> None:
    assert len(parse_key(text, "file:k")) == 32
    assert parse_key(b"YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE=", "file:k") == b"a" * 32


@pytest.mark.parametrize("text", [b"short", b"z" * 64, b"61" * 31, b"YWFh"])
def test_what_is_no_key_is_refused_without_repeating_it(text: bytes) -> None:
    with pytest.raises(StartupError, match="file:k is no key: 32 bytes are expected") as refused:
        parse_key(text, "file:k")
    assert text.decode() not in str(refused.value)


def test_check_values_tell_keys_apart() -> None:
    assert check_value(b"a" * 32) != check_value(b"b" * 32)
    assert len(check_value(b"a" * 32)) == 8


class KeyService:
    """Wraps by reversing, as a service that nobody should use."""

    def call(self, secret: KeySecret, verb: str, data: bytes) -> bytes:
        assert verb in {"wrap", "unwrap"}
        return data.strip()[::-1] if len(data.strip()) % 4 else data.strip()


def test_a_key_service_wraps_and_unwraps_the_master_key() -> None:
    files = MemoryFiles()
    root = ServiceRoot("service", KeySecret("kms:wrapper"), KeyService())  # type: ignore[arg-type]

    stored = sealed(made(files, root).sealer(ORDERS))

    assert opens(reopened(files, root).sealer(ORDERS), stored)
