"""Rewrites a segment without its damaged records, crash-safe.

Owns the rewriting and its durable record. Sound batches of another replica take the place of the
damage; or an operator gives the records up. Then the damaged bytes are kept in a file of their own,
a line in the file `skipped` of the log has their offsets, the time, and their position, and a
control batch takes their offsets, which every Kafka client skips. Runs on another thread;
`Log.replace` swaps the result in.
"""

from collections.abc import Sequence

import msgspec
from fastcrc import crc32

from millstream.codec.batch import HEADER_BYTES, Header, read_header, seal
from millstream.codec.markers import ControlKind, encode_marker
from millstream.errors import DamagedLog, storage_error
from millstream.model import Buffer, Offset
from millstream.ports import Files
from millstream.storage.compaction.replacement import Replacement
from millstream.storage.files.replacing import try_replace_file
from millstream.storage.log.segment import FileRange, Segment, read_headers
from millstream.storage.log.verifying import BadRange, stand_in

SKIPPED = "skipped"
SKIPPED_MAX = 10_000  # Lines remembered of one log, newest last.
COPIED_BYTES = 2**20

_CRC_DIGITS = 8

# Stored batches and their headers.
Sound = tuple[Sequence[Buffer], Sequence[Header]]


class Skipped(msgspec.Struct, frozen=True, kw_only=True):
    """Records that an operator gave up."""

    base_offset: Offset
    end_offset: Offset
    time_ms: int
    file: str
    position: int
    size: int
    reason: str
    kept_in: str  # The file that has the damaged bytes.


class Repair:
    """Rewrites one sealed segment without one of its damaged ranges."""

    def __init__(
        self,
        files: Files,
        segment: Segment,
        contents: FileRange,
        bad: BadRange,
        *,
        epoch: int,
        now_ms: int,
        interval_bytes: int,
        sound: Sound | None = None,
    ) -> None:
        """`sound` takes the place of the damage, as it is stored; None: it is given up."""
        assert bad in segment.damage
        self.skipped = Skipped(
            base_offset=bad.base_offset,
            end_offset=bad.end_offset,
            time_ms=now_ms,
            file=segment.path,
            position=bad.position,
            size=bad.size,
            reason=bad.reason,
            kept_in=f"{segment.directory}/{bad.base_offset:020d}.damaged",
        )
        self._files = files
        self._segment = segment
        self._contents = contents
        self._bad = bad
        self._epoch = epoch
        self._interval_bytes = interval_bytes
        self._sound = sound

    def run(self) -> Segment:
        """Write the segment for `Log.replace`; blocks. The record of it is durable before."""
        try:
            return self._rewrite()
        except OSError as problem:
            raise storage_error(problem, f"repair of {self._segment.path}") from problem

    def _rewrite(self) -> Segment:
        if self._sound is None:
            data = self._read(self._bad.position, self._bad.end_position)
            _replace(self._files, self.skipped.kept_in, data)
            note_skipped(self._files, self._segment.directory, self.skipped)
        output = Replacement(self._files, [self._segment], interval_bytes=self._interval_bytes)
        try:
            damage = self._copy(output)
            new = output.finish()
        except BaseException:
            output.discard()
            raise
        new.damage = damage
        return new

    def _copy(self, output: Replacement) -> tuple[BadRange, ...]:
        """Copy all but the damage that is given up; return where the other damage is now."""
        damage = []
        at = 0
        for bad in self._segment.damage:
            self._copy_sound(output, at, bad.position)
            at = bad.end_position
            if bad == self._bad:
                chunks, headers = self._sound or _filler(bad, self._epoch)
                output.append(chunks, headers)
                continue
            damage.append(bad._replace(position=output.size))
            raw = self._read(bad.position, bad.end_position)
            output.append([raw], [stand_in(bad, self._epoch)])
        self._copy_sound(output, at, self._contents.size)
        return tuple(damage)

    def _copy_sound(self, output: Replacement, start: int, end: int) -> None:
        chunks: list[bytes] = []
        headers: list[Header] = []
        size = 0
        for position, header in read_headers(self._contents.file, start, end):
            chunks.append(self._read(position, position + header.size))
            headers.append(header)
            size += header.size
            if size >= COPIED_BYTES:
                output.append(chunks, headers)
                chunks, headers, size = [], [], 0
        if headers:
            output.append(chunks, headers)

    def _read(self, start: int, end: int) -> bytes:
        return self._contents.part(start, end - start).read()


def note_skipped(files: Files, directory: str, skipped: Skipped) -> None:
    """Add a line to the record of a log, durably."""
    before = read_skipped(files, directory)
    known = [line for line in before if line.base_offset != skipped.base_offset]
    lines = [_encode(line) for line in [*known, skipped][-SKIPPED_MAX:]]
    _replace(files, f"{directory}/{SKIPPED}", b"".join(lines))


def read_skipped(files: Files, directory: str) -> list[Skipped]:
    """All skipped ranges of a log, oldest first. A line that is damaged itself is left out."""
    path = f"{directory}/{SKIPPED}"
    if not files.exists(path):
        return []
    file = files.open(path)
    return decode_skipped(file.read(0, file.size()))


def decode_skipped(data: bytes) -> list[Skipped]:
    skipped = []
    for line in data.splitlines():
        crc, _, body = line.partition(b" ")
        try:
            if int(crc, 16) == crc32.iscsi(body):
                skipped.append(msgspec.json.decode(body, type=Skipped))
        except (ValueError, msgspec.DecodeError):
            continue
    return skipped


def damage_at(damage: Sequence[BadRange], offset: Offset) -> BadRange | None:
    return next((bad for bad in damage if bad.base_offset <= offset < bad.end_offset), None)


def _replace(files: Files, path: str, data: bytes) -> None:
    if not try_replace_file(files, path, [data]):
        raise DamagedLog(f"the disk is full: {path} was not written, nothing was repaired")


def _encode(skipped: Skipped) -> bytes:
    body = msgspec.json.encode(skipped)
    return f"{crc32.iscsi(body):0{_CRC_DIGITS}x} ".encode() + body + b"\n"


def _filler(bad: BadRange, epoch: int) -> Sound:
    """A control batch that takes all the offsets; an empty batch would stop some clients."""
    batch = encode_marker(
        ControlKind.COMMIT,
        producer_id=-1,  # It ends no transaction.
        producer_epoch=-1,
        coordinator_epoch=0,
        timestamp=-1,
        base_offset=bad.base_offset,
        epoch=epoch,
    )
    header = read_header(batch)._replace(last_offset_delta=bad.end_offset - bad.base_offset - 1)
    filler = seal(header, batch[HEADER_BYTES:])[1]
    return [filler], [read_header(filler)]
