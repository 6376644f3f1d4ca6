"""Seals the batches of a segment anew that another key has sealed, or none.

Owns the rewriting of one segment, and the count of bytes by key. Runs on a thread, as compaction
does, and writes aside; `Log.replace` swaps the result in. Where batches are written in clear
(`encryption.mode = "read"`) sealed ones are opened for good.
"""

from collections import Counter
from collections.abc import Iterator

from millstream.codec.batch import SEALED, Header
from millstream.errors import DamagedLog, storage_error
from millstream.ports import Files
from millstream.storage.compaction.replacement import Replacement
from millstream.storage.log.segment import FileRange, Segment
from millstream.storage.sealing.batches import BODY_AT, BadSeal, Sealer, key_id_of


class Rewriting:
    """One sealed segment without known damage."""

    def __init__(
        self, files: Files, segment: Segment, stored: FileRange, sealer: Sealer, interval_bytes: int
    ) -> None:
        self._files = files
        self._segment = segment
        self._stored = stored
        self._sealer = sealer
        self._interval_bytes = interval_bytes

    def run(self) -> Segment | None:
        """The segment for `Log.replace`; None if the current key has sealed all of it. Blocks."""
        try:
            current = self._sealer.current_id
            if all(key_id == current for key_id, _ in key_sizes(self._stored)):
                return None
            return self._rewrite(current)
        except OSError as problem:
            raise storage_error(problem, f"rewriting {self._segment.path}") from problem

    def _rewrite(self, current: int | None) -> Segment:
        output = Replacement(self._files, [self._segment], interval_bytes=self._interval_bytes)
        try:
            for header, data in self._stored.batches():
                if key_id_of(header, data) == current:
                    output.append([data], [header])
                else:
                    self._seal_anew(output, header, data)
            return output.finish()
        except BadSeal as problem:
            output.discard()
            raise DamagedLog(f"{self._segment.path}: {problem}") from None
        except BaseException:
            output.discard()
            raise

    def _seal_anew(self, output: Replacement, header: Header, data: memoryview) -> None:
        chunks = self._sealer.open(header, data)
        size = sum(map(len, chunks))
        attributes = header.attributes & ~SEALED
        crc = int.from_bytes(chunks[0][17:21], "big")
        plain = header._replace(size=size, attributes=attributes, crc=crc)
        output.append(*self._sealer.seal(chunks, [plain]))


def key_sizes(stored: FileRange) -> Iterator[tuple[int | None, int]]:
    """The id of the key of each batch, None for those in clear, and its stored size. Blocks."""
    for position, header in stored.headers():
        key_id = None
        if header.attributes & SEALED:
            key_id = key_id_of(header, stored.file.read(position, BODY_AT))
        yield key_id, header.size


def bytes_by_key(stored: FileRange) -> "Counter[int | None]":
    """Blocks: reads every header."""
    sizes: Counter[int | None] = Counter()
    try:
        for key_id, size in key_sizes(stored):
            sizes[key_id] += size
    except OSError as problem:
        raise storage_error(problem, "counting bytes by key") from problem
    return sizes
