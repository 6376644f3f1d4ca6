"""Indexes of keys follow their log through everything that can happen to it."""

from random import Random
from unittest.mock import patch

import pytest

from millstream.codec.batch import HEADER_BYTES, read_header, seal
from millstream.codec.encoding import encode_batch
from millstream.codec.records import Record, decode_all
from millstream.errors import DamagedLog
from millstream.model import Boundary, Epoch, ReplicaId
from millstream.ports import Files
from millstream.settings import TopicSettings
from millstream.storage.files.memory import MemoryFiles
from millstream.storage.log.log import Log
from millstream.storage.secondary_index import builder
from millstream.storage.secondary_index.log_index import LogIndex
from millstream.storage.secondary_index.search import Candidates, Directories
from millstream.storage.secondary_index.terms import IndexedFields, Term
from tests.support.logs import DIRECTORY, append, open_small, split, sync
from tests.support.tiers import sized

KEYS = [b"%d" % number for number in range(12)]
VOTERS = frozenset({ReplicaId(1)})
BY_KEY = IndexedFields(key=True)
SETTINGS = TopicSettings(segment_bytes=1024, index_interval_bytes=128, index_key=True)


def keyed(offset: int, *keys: bytes, epoch: int = 0) -> bytes:
    records = [Record(offset + at, 0, key, b"v" * 20) for at, key in enumerate(keys)]
    return encode_batch(records, base_offset=offset, epoch=epoch)


def index_of(log: Log, files: Files, fields: IndexedFields = BY_KEY) -> LogIndex:
    directories = Directories(bytes_max=300)  # Most are loaded again for each search.
    return LogIndex(log, files, fields, directories=directories, decompressed_bytes_max=2**20)


def build(index: LogIndex, log: Log, steps: int = 1_000) -> None:
    for _ in range(steps):
        work = index.next_work(log.end_offset)
        if work is None:
            return
        try:
            work.run()
        except DamagedLog as problem:
            work.fail(problem)
        work.finish()


def find(index: LogIndex, log: Log, key: bytes, start: int = 0) -> Candidates:
    search = index.search(Term(None, key), start, log.end_offset)
    assert search is not None
    search.run()
    index.finish(search)
    return search.candidates


def bases_with(log: Log, key: bytes, start: int) -> list[int]:
    """By reading everything: where the batches begin that have this key from `start` on."""
    bases = []
    offset = log.start_offset
    while (part := log.read(offset, bytes_max=2**20, end_offset=log.end_offset)) is not None:
        for batch in split(part.read()):
            records = decode_all(batch, decompressed_bytes_max=2**20)
            if any(record.key == key and record.offset >= start for record in records):
                bases.append(records[0].offset)
        offset = part.end_offset
    return bases


def check(index: LogIndex, log: Log, start: int) -> None:
    for key in KEYS:
        at = start
        while at < log.end_offset:
            candidates = find(index, log, key, at)
            for base in bases_with(log, key, at):
                if max(base, at) < candidates.end_offset:
                    assert max(base, at) in candidates.offsets, "a record would not be found"
            if candidates.end_offset == at:
                break
            at = candidates.end_offset


@pytest.mark.parametrize("seed", range(sized(50)))
def test_no_batch_with_the_key_is_passed_over_whatever_happened_to_the_log(seed: int) -> None:
    random, files, epoch = Random(seed), MemoryFiles(), 0
    boundaries = [Boundary(Epoch(0), 0, VOTERS)]
    log = open_small(files, settings=SETTINGS, boundaries=tuple(boundaries))
    index = index_of(log, files)
    with patch.object(builder, "RUN_ENTRIES", random.choice([3, 20, 2**18])):
        for _ in range(60):
            match random.choice(["append"] * 6 + ["build"] * 4 + ["sync", "cut", "start", "open"]):
                case "append":
                    keys = random.choices(KEYS, k=random.randint(1, 5))
                    append(log, keyed(log.end_offset, *keys, epoch=epoch))
                case "build":
                    build(index, log, random.randint(1, 10))
                case "sync":
                    sync(log)
                case "cut":
                    start, end = log.start_offset, log.end_offset
                    bases = [h.base_offset for h in log.batches(start, end)]
                    log.truncate(random.choice([base for base in bases if base >= start] or [end]))
                    epoch += 1
                    kept = [b for b in boundaries if b.start_offset <= log.end_offset]
                    boundaries = [*kept, Boundary(Epoch(epoch), log.end_offset, VOTERS)]
                case "start":
                    log.advance_start(random.randint(log.start_offset, log.end_offset))
                case "open":
                    start = log.start_offset
                    log.close()
                    if random.random() < 0.7:
                        index.close()
                    log = open_small(
                        files,
                        settings=SETTINGS,
                        start_offset=start,
                        boundaries=tuple(boundaries),
                    )
                    index = index_of(log, files)
            if log.end_offset > log.start_offset:
                check(index, log, random.randint(log.start_offset, log.end_offset - 1))


def filled(files: MemoryFiles, count: int = 60) -> Log:
    log = open_small(files, settings=SETTINGS)
    for number in range(count):
        append(log, keyed(number, b"%d" % number))
    log.roll()
    sync(log)
    return log


def names(files: MemoryFiles) -> list[str]:
    return [name for name in files.list(DIRECTORY) if ".terms" in name]


def test_a_complete_index_names_the_batch_and_nothing_else() -> None:
    files = MemoryFiles()
    log = filled(files)
    index = index_of(log, files)

    build(index, log)

    assert find(index, log, b"17") == Candidates(0, 60, 2**63 - 1, [17])
    assert find(index, log, b"none").offsets == []
    assert find(index, log, b"17", 18).offsets in ([], [18])
    assert index.figures().missing_bytes == 0
    assert index.figures().entry_count == 60
    assert len(names(files)) == len(log.sealed())


def test_an_index_is_opened_again_and_not_built_again() -> None:
    files = MemoryFiles()
    log = filled(files)
    build(index_of(log, files), log)
    log.close()
    log = open_small(files, settings=SETTINGS)
    index = index_of(log, files)

    works = []
    while (work := index.next_work(log.end_offset)) is not None:
        works.append(work.size)
        work.run()
        work.finish()

    assert sum(works) == 0
    assert find(index, log, b"17").offsets == [17]


@pytest.mark.parametrize("position", [10, 300, -10])
def test_a_broken_index_is_not_believed_and_built_again(position: int) -> None:
    files = MemoryFiles()
    log = filled(files)
    build(index_of(log, files), log)
    for name in names(files):
        file = files.open(f"{DIRECTORY}/{name}")
        at = position % file.size()
        file.write(at, [bytes([file.read(at, 1)[0] ^ 1])])
    index = index_of(log, files)
    build(index, log)

    for _ in range(20):  # Each search finds one broken index; it is built again in between.
        candidates = find(index, log, b"17")
        assert candidates.end_offset <= 17 or candidates.offsets == [17]
        build(index, log)

    assert find(index, log, b"17") == Candidates(0, 60, 2**63 - 1, [17])


def test_an_index_of_other_fields_answers_for_those_until_it_is_built_again() -> None:
    files = MemoryFiles()
    log = filled(files)
    build(index_of(log, files), log)
    index = index_of(log, files, IndexedFields(key=True, headers=("h",)))
    for _ in log.sealed():
        build(index, log, 1)

    before = index.search(Term("h", b"x"), 0, log.end_offset)
    assert find(index, log, b"17").offsets == [17]
    build(index, log)
    after = index.search(Term("h", b"x"), 0, log.end_offset)

    assert before is not None
    assert not before.has_sources
    assert after is not None
    after.run()
    assert (after.candidates.end_offset, after.candidates.offsets) == (60, [])


def test_a_batch_that_cannot_be_decoded_may_match_anything() -> None:
    files = MemoryFiles()
    log = open_small(files, settings=SETTINGS)
    sound = keyed(0, b"a", b"b")
    _, broken = seal(read_header(sound), b"\xff" + sound[HEADER_BYTES + 1 :])
    append(log, broken)
    index = index_of(log, files)

    build(index, log)

    assert find(index, log, b"a").offsets == [0]


def test_indexes_go_with_their_segments() -> None:
    files = MemoryFiles()
    log = filled(files)
    build(index_of(log, files), log)

    log.advance_start(log.end_offset)
    sync(log)

    assert names(files) == []


def test_a_topic_that_asks_no_more_has_no_files_after_a_start() -> None:
    files = MemoryFiles()
    log = filled(files)
    build(index_of(log, files), log)
    log.close()

    open_small(files)

    assert names(files) == []


def test_the_index_of_the_last_segment_survives_a_stop_and_goes_on_with_it() -> None:
    files = MemoryFiles()
    log = open_small(files, settings=SETTINGS)
    for number in range(7):
        append(log, keyed(number, b"%d" % number))
    index = index_of(log, files)
    build(index, log)
    log.close()
    index.close()
    log = open_small(files, settings=SETTINGS)
    index = index_of(log, files)
    build(index, log)
    assert find(index, log, b"3") == Candidates(0, 7, 2**63 - 1, [3])
    append(log, keyed(7, b"3"))

    sizes = []
    while (work := index.next_work(log.end_offset)) is not None:
        sizes.append(work.size)
        work.run()
        work.finish()

    assert find(index, log, b"3").offsets == [3, 7]
    assert len(sizes) == 2, "one copy of the index, one step for the batch"
