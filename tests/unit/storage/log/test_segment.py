import pytest

from millstream.codec.batch import read_header
from millstream.errors import CorruptBatch, DamagedLog
from millstream.storage.files.memory import MemoryFiles
from millstream.storage.log import segment as module
from millstream.storage.log.index import Table
from millstream.storage.log.segment import FileRange, Segment, read_headers, verify_range
from tests.support.logs import batch


def written(*batches: bytes) -> tuple[Segment, FileRange]:
    files = MemoryFiles()
    files.make_directory("a")
    segment = Segment(files, "a", 0)
    segment.file, segment.table = files.open(segment.path, create=True), Table()
    segment.file.write(0, batches)
    segment.extend([read_header(batch) for batch in batches], 200)
    return segment, FileRange(segment.file, 0, segment.size, 0, segment.end_offset)


def test_a_segment_knows_its_end_size_and_newest_timestamp() -> None:
    first, second = batch(0, 3, timestamp=9), batch(5, 2, timestamp=4)

    segment, _ = written(first, second)

    assert segment.end_offset == 7
    assert segment.size == len(first) + len(second)
    assert segment.max_timestamp == 9
    assert segment.last == read_header(second)
    assert segment.last_position == len(first)


def test_an_entry_is_added_once_the_interval_has_passed() -> None:
    batches = [batch(at, size=20) for at in range(10)]

    segment, _ = written(*batches)

    assert segment.table is not None
    size = len(batches[0])
    assert list(segment.table.positions) == [
        at * size for at in range(10) if at % -(-200 // size) == 0
    ]


def test_a_cut_segment_equals_one_that_never_held_more() -> None:
    batches = [batch(at * 2, timestamp=30 - at, size=at * 9) for at in range(12)]
    whole, content = written(*batches)
    assert whole.table is not None

    for count in range(1, 13):
        size = sum(map(len, batches[:count]))
        tail = whole.cut(content.file, whole.table, size)
        shorter, _ = written(*batches[:count])

        assert tail.table is not None
        assert shorter.table is not None
        assert tail.table.encode() == shorter.table.encode()
        # Whether a shorter one would be dense is not known, and need not be.
        assert tail.proof()._replace(flags=0) == shorter.proof()._replace(flags=0)


def test_a_range_yields_its_batches_verified() -> None:
    batches = [batch(0, 2), batch(2), batch(3, 4)]
    _, content = written(*batches)

    assert [bytes(data) for _, data in content.batches()] == batches
    assert [header.base_offset for _, header in content.headers()] == [0, 2, 3]
    assert content.read() == b"".join(batches)
    assert content.verify() == 3


def test_a_flipped_bit_behind_a_header_is_found_by_verifying_only() -> None:
    _, content = written(batch(0), batch(1), batch(2))
    content.file.write(150, [b"\xff"])

    assert [header.base_offset for _, header in content.headers()] == [0, 1, 2]
    with pytest.raises(DamagedLog):
        list(content.batches())
    with pytest.raises(DamagedLog):
        content.verify()


def test_offsets_out_of_order_are_damage() -> None:
    _, content = written(batch(5), batch(3))

    with pytest.raises(DamagedLog, match="out of order"):
        content.verify()


def test_a_file_shorter_than_it_should_be_is_damage() -> None:
    _, content = written(batch(0), batch(1))
    content.file.truncate(content.size - 1)

    with pytest.raises(DamagedLog):
        content.read()
    with pytest.raises(DamagedLog):
        list(content.batches())


def test_walking_does_not_leave_its_range() -> None:
    first = batch(0)
    segment, content = written(first, batch(1))

    assert [position for position, _ in read_headers(content.file, 0, len(first))] == [0]
    with pytest.raises(DamagedLog, match="beyond"):
        list(read_headers(content.file, 0, segment.size - 1))


def test_walking_reads_headers_only(monkeypatch: pytest.MonkeyPatch) -> None:
    _, content = written(*[batch(at, size=50_000) for at in range(10)])
    read: list[int] = []

    class Counting:
        def read(self, at: int, size: int) -> bytes:
            read.append(size)
            return content.file.read(at, size)

    assert len(list(read_headers(Counting(), 0, content.size))) == 10  # type: ignore[arg-type]
    assert sum(read) <= 10 * module.WALK_BYTES


def test_long_batches_are_verified_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SCAN_BYTES", 100)
    _, content = written(batch(0), batch(1, size=1_000), batch(2, size=77))
    assert len(list(verify_range(content.file, 0, content.size))) == 3

    content.file.write(700, [b"\xff"])

    with pytest.raises(CorruptBatch):
        list(verify_range(content.file, 0, content.size))
