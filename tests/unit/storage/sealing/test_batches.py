"""A sealed batch opens in its own place only, and any other byte in it is damage."""

import os
from uuid import UUID

import pytest

from millstream.codec.batch import (
    HEADER_BYTES,
    PREFIX_BYTES,
    SEALED,
    Header,
    read_header,
    stamp,
    verify_batch,
)
from millstream.errors import CorruptBatch, DamagedBatch, InvalidBatch
from millstream.model import LogId
from millstream.storage.files.memory import MemoryFiles
from millstream.storage.log.log import Log
from millstream.storage.log.segment import file_path
from millstream.storage.sealing.batches import (
    SEALED_BYTES,
    BadSeal,
    MissingKey,
    Sealer,
    key_id_of,
)
from millstream.storage.sealing.ciphers import AesKey
from tests.support.logs import DIRECTORY, append, batch, fill, open_small, read_all, sync
from tests.support.sealed import FixedKeys, sealing

ORDERS, OTHERS = UUID(int=1), UUID(int=2)


def sealer(
    topic: UUID = ORDERS, partition: int = 0, *, key: int = 1, secret: bytes = b"k" * 32
) -> Sealer:
    keys = FixedKeys(AesKey(key, secret, 1_000))
    return Sealer(LogId(topic, partition), keys, os.urandom)


def sealed(data: bytes, by: Sealer | None = None) -> tuple[Header, bytes]:
    chunks, headers = (by or sealer()).seal([data], [read_header(data)])
    return headers[0], b"".join(chunks)


def opened(stored: bytes, by: Sealer | None = None) -> bytes:
    return b"".join((by or sealer()).open(read_header(stored), stored))


def test_a_sealed_batch_is_a_batch_and_hides_its_records() -> None:
    plain = batch(7, 3, size=40, fill=65, epoch=2)

    header, stored = sealed(plain)

    assert verify_batch(stored) == header == read_header(stored)
    assert header.size == len(plain) + SEALED_BYTES == len(stored)
    assert header.attributes == read_header(plain).attributes | SEALED
    assert b"A" * 8 not in stored
    assert opened(stored) == plain
    assert key_id_of(header, stored) == 1
    assert key_id_of(read_header(plain), plain) is None


def test_what_a_leader_stamps_and_what_a_follower_gets_is_sealed_alike() -> None:
    plain = batch(0, size=30)
    header, prefix = stamp(read_header(plain), base_offset=9, epoch=4)
    chunks = (prefix, memoryview(plain)[PREFIX_BYTES:])

    stored, headers = sealer().seal(chunks, (header,))

    data = b"".join(stored)
    assert verify_batch(data) == headers[0]
    assert opened(data) == prefix + plain[PREFIX_BYTES:]


def test_every_changed_bit_of_a_sealed_batch_is_refused_or_leaves_the_same_records() -> None:
    plain = batch(7, 2, size=20, epoch=2)
    _, stored = sealed(plain)

    for bit in range(8 * len(stored)):
        changed = bytearray(stored)
        changed[bit // 8] ^= 1 << bit % 8
        try:
            got = opened(bytes(changed))
        except (BadSeal, MissingKey, CorruptBatch, InvalidBatch):
            continue
        # Epoch and checksum of the stored bytes, which others prove: the records are right.
        assert got[HEADER_BYTES:] == plain[HEADER_BYTES:]
        assert 12 <= bit // 8 < 21


@pytest.mark.parametrize(
    "reader",
    [
        sealer(OTHERS),
        sealer(partition=1),
        sealer(secret=b"x" * 32),
    ],
    ids=["another topic", "another partition", "another key of the same id"],
)
def test_a_sealed_batch_does_not_open_elsewhere(reader: Sealer) -> None:
    _, stored = sealed(batch(7))

    with pytest.raises(BadSeal):
        opened(stored, reader)


def test_a_sealed_batch_does_not_open_at_another_offset() -> None:
    _, stored = sealed(batch(7))
    moved = (8).to_bytes(8, "big") + stored[8:]

    with pytest.raises(BadSeal):
        opened(moved)


def test_a_key_that_the_keyring_lost_is_named() -> None:
    _, stored = sealed(batch(7), sealer(key=12))

    with pytest.raises(MissingKey, match="key 12 of topic 00000000-0000-0000-0000-000000000001"):
        opened(stored)


def test_no_nonce_comes_twice() -> None:
    writer = sealer()
    nonces = {sealed(batch(7), writer)[1][65:77] for _ in range(500)}

    assert len(nonces) == 500


# -- logs ------------------------------------------------------------------------------------------


def sealed_log(files: MemoryFiles, count: int = 12) -> tuple[Log, list[bytes]]:
    log = open_small(files)
    added = fill(log, count)
    sync(log)
    return log, added


def test_readers_get_plain_batches_with_their_plain_sizes() -> None:
    with sealing():
        log, added = sealed_log(MemoryFiles())

        part = log.read(0, bytes_max=10_000, end_offset=log.end_offset)

        assert part is not None
        assert part.read() == b"".join(added[: part.end_offset])
        assert b"".join(part.read_chunks()) == part.read()
        assert part.size == len(part.read())
        assert part.descriptor == -1
        assert b"".join(data for _, data in part.batches()) == part.read()
        assert read_all(log) == added


def test_a_large_batch_is_opened_once_and_sent_in_parts() -> None:
    with sealing():
        log = open_small(MemoryFiles())
        large = batch(0, 1, size=900)
        append(log, large)

        part = log.read(0, bytes_max=1, end_offset=1)

        assert part is not None
        pieces = [part.part(at, min(100, part.size - at)) for at in range(0, part.size, 100)]
        assert b"".join(piece.read() for piece in pieces) == large
        assert pieces[3].part(10, 5).read() == large[310:315]


def test_a_batch_that_does_not_open_costs_its_own_offsets_only() -> None:
    files = MemoryFiles()
    with sealing():
        log, added = sealed_log(files, 6)
        log.abandon()
        path = file_path(DIRECTORY, 0, ".log")
        size = len(added[0]) + SEALED_BYTES
        data = files.open(path).read(0, 6 * size)
        # Another log's batch, sound in itself, in the place of the batch at offset 2.
        header = read_header(added[2])
        moved, _ = sealer(OTHERS).seal([added[2]], [header])
        files.open(path).write(2 * size, [b"".join(moved)])
        assert files.open(path).read(0, 6 * size) != data

        log = open_small(files)
        first = log.read(0, bytes_max=6 * size, end_offset=6)
        assert first is not None
        assert first.read() == added[0] + added[1], "the answer ends before the damage"
        with pytest.raises(DamagedBatch, match="offsets 2 to 2 are damaged"):
            log.read(2, bytes_max=1, end_offset=6)

        assert [(bad.base_offset, bad.end_offset) for bad in log.damage()] == [(2, 3)]
        for offset in (0, 1, 3, 4, 5):
            part = log.read(offset, bytes_max=1, end_offset=6)
            assert part is not None
            assert part.read() == added[offset]


def test_the_scrubber_finds_a_batch_that_does_not_open() -> None:
    files = MemoryFiles()
    with sealing():
        log, added = sealed_log(files, 6)
        segment = log.active
        assert segment is not None
        moved, _ = sealer(OTHERS).seal([added[2]], [read_header(added[2])])
        size = len(added[0]) + SEALED_BYTES
        files.open(segment.path).write(2 * size, [b"".join(moved)])

        work = log.verification(segment, again=True)
        assert work is not None
        work.run()
        work.finish()

        assert [bad.base_offset for bad in log.damage()] == [2]


def test_plain_and_sealed_batches_stand_side_by_side() -> None:
    files = MemoryFiles()
    log, added = sealed_log(files, 5)
    log.close()
    with sealing():
        log = open_small(files)
        added += fill(log, 5)

        assert read_all(log) == added
        log.close()
        assert read_all(open_small(files)) == added


def test_no_file_of_a_sealed_log_shows_a_record() -> None:
    files = MemoryFiles()
    with sealing():
        log = open_small(files)
        for offset in range(30):
            data = batch(offset, size=40, fill=ord("C"), producer_id=5, sequence=offset)
            append(log, data)
        log.close()

    for name in files.list(DIRECTORY):
        file = files.open(f"{DIRECTORY}/{name}")
        assert b"C" * 8 not in file.read(0, file.size()), name
