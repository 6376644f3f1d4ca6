"""Writes the segment that replaces sealed ones: aside first, then swapped in by the log.

Owns the output of compaction: the figures of the new `Segment` are gathered while its batches are
written. Runs on another thread, so it touches files only, never the log. A power cut at any moment
leaves either the old segments or the new one; other files are removed when the log is opened again.

    old = log.sealed()[first:last]                     # on the event loop
    ranges = [log.opened(segment) for segment in old]
    new = Replacement(files, old, interval_bytes=...)  # on a thread, from here
    for header, batch in ...:
        new.append([batch], [header])
    segment = new.finish()
    give_up_index = log.begin_replace(old)             # on the event loop
    give_up_index()                                    # on a thread
    log.replace(old, segment)                          # on the event loop: False if `old` changed
"""

from collections.abc import Sequence

from millstream.codec.batch import Header
from millstream.model import Buffer
from millstream.ports import Files
from millstream.storage.log.index import POSITION_MAX, Table
from millstream.storage.log.segment import CLEANED, Segment, file_path


class Replacement:
    """Batches for the offsets of `old`, consecutive segments as `Log.sealed` lists them.

    Methods raise `OSError`, as the files below them do; `discard` then tidies up.
    """

    def __init__(self, files: Files, old: Sequence[Segment], *, interval_bytes: int) -> None:
        assert old
        first = old[0]
        self._files = files
        self._old = old
        self._interval_bytes = interval_bytes
        self._path = file_path(first.directory, first.base_offset, CLEANED)
        self._segment = Segment(files, first.directory, first.base_offset)
        self._segment.opened_ms = first.opened_ms
        self._segment.table = Table()
        self._segment.file = files.open(self._path, create=True)
        self._segment.file.truncate(0)

    @property
    def size(self) -> int:
        return self._segment.size

    def append(self, chunks: Sequence[Buffer], headers: Sequence[Header]) -> None:
        """Write whole batches, in order; the last must end where the last of `old` ends."""
        segment = self._segment
        assert segment.file is not None
        assert headers[0].base_offset >= segment.end_offset
        assert segment.size + sum(header.size for header in headers) <= POSITION_MAX
        segment.file.write(segment.size, chunks)
        segment.extend(headers, self._interval_bytes)

    def finish(self) -> Segment:
        """Make the bytes durable, and return what `Log.replace` takes."""
        segment = self._segment
        assert segment.file is not None
        assert segment.end_offset == self._old[-1].end_offset, "a log never loses its end"
        segment.file.sync()
        return segment

    def discard(self) -> None:
        """Forget it: the log stays as it is."""
        self._files.remove(self._path)
