"""Small logs for tests: batches in a line each, segments that roll all the time."""

from collections.abc import Sequence

from millstream.codec.batch import Header, read_header
from millstream.codec.compression import Codec
from millstream.codec.encoding import encode_batch
from millstream.codec.records import Record, decode_all
from millstream.model import Buffer, CleanEnd
from millstream.ports import Files
from millstream.settings import TopicSettings
from millstream.storage.log.cache import LogCache
from millstream.storage.log.log import Log
from millstream.storage.log.recovery import open_log
from millstream.storage.log.time_lookup import Steps
from tests.support.sealed import sealer_if_sealing

DIRECTORY = "logs/orders"
EVERYTHING = 2**31
SMALL = TopicSettings(segment_bytes=1024, index_interval_bytes=128)


def batch(
    offset: int,
    count: int = 1,
    *,
    timestamp: int = 0,
    epoch: int = 0,
    size: int = 16,
    fill: int = 0,
    gap: int = 0,
    codec: Codec = Codec.NONE,
    producer_id: int = -1,
    sequence: int = -1,
    is_transactional: bool = False,
) -> bytes:
    """A batch of `count` records of `size` bytes; `gap` offsets are left out before each."""
    value = bytes([fill]) * size
    step = gap + 1
    return encode_batch(
        [Record(offset + (at + 1) * step - 1, timestamp, None, value) for at in range(count)],
        base_offset=offset,
        epoch=epoch,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )


def append(log: Log, *batches: bytes, now_ms: int = 0) -> None:
    log.append(batches, [read_header(batch) for batch in batches], now_ms=now_ms)


def stored(log: Log, data: Buffer, header: Header) -> tuple[Sequence[Buffer], Sequence[Header]]:
    """A batch as the log would store it, for a `Replacement`."""
    return ([data], [header]) if log.sealer is None else log.sealer.seal([data], [header])


def fill(log: Log, count: int, *, size: int = 16, epoch: int = 0, now_ms: int = 0) -> list[bytes]:
    """Append `count` batches of one record, each with its offset as its timestamp."""
    added = []
    for _ in range(count):
        offset = log.end_offset
        added.append(batch(offset, timestamp=offset, size=size, fill=offset % 251, epoch=epoch))
        append(log, added[-1], now_ms=now_ms)
    return added


def open_small(
    files: Files,
    *,
    settings: TopicSettings = SMALL,
    cache: LogCache | None = None,
    start_offset: int = 0,
    boundaries: tuple = (),
    directory: str = DIRECTORY,
    was_clean: bool = False,
    clean_end: CleanEnd | None = None,
    may_have_gaps: bool = True,
) -> Log:
    return open_log(
        files,
        directory,
        settings=settings,
        cache=cache or LogCache(index_bytes_max=2**20, open_files_max=100),
        start_offset=start_offset,
        boundaries=boundaries,
        was_clean=was_clean,
        clean_end=clean_end,
        may_have_gaps=may_have_gaps,
        decompressed_bytes_max=2**26,
        sealer=sealer_if_sealing(directory),
    )


def sync(log: Log) -> None:
    work = log.begin_sync()
    if work is not None:
        work()
        log.end_sync()


def split(data: bytes) -> list[bytes]:
    """Cut a run of batches into batches."""
    collected = []
    at = 0
    while at < len(data):
        size = read_header(data, at).size
        collected.append(data[at : at + size])
        at += size
    return collected


def read_all(log: Log, *, bytes_max: int = 700) -> list[bytes]:
    """Every batch from the log start, as a reader gets them, range by range."""
    collected: list[bytes] = []
    offset = log.start_offset
    while (part := log.read(offset, bytes_max=bytes_max, end_offset=log.end_offset)) is not None:
        batches = split(part.read())
        assert read_header(batches[0]).base_offset == part.base_offset
        assert part.end_offset > offset
        collected += batches
        offset = part.end_offset
    assert offset == log.end_offset
    return collected


def offsets(batches: list[bytes]) -> list[int]:
    return [r.offset for batch in batches for r in decode_all(batch, decompressed_bytes_max=2**20)]


def searched(steps: Steps) -> tuple[int, int] | None:
    """Take all steps of a search by time, on this thread."""
    while True:
        try:
            search = next(steps)
        except StopIteration as end:
            position: tuple[int, int] | None = end.value
            return position
        if search is not None:
            search.run()
