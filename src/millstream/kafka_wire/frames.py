"""Kafka's frames: a length of four bytes, then that many bytes.

Owns the length and its bounds; `framing` cuts.
"""

from collections.abc import Iterator
from functools import partial
from operator import itemgetter
from struct import Struct

from millstream.errors import ProtocolError
from millstream.framing import Cutter
from millstream.model import Buffer

LENGTH = Struct(">i")
FRAME_BYTES_MIN = 4  # A correlation id alone, the shortest response; a request is longer.

_BODY = itemgetter(slice(LENGTH.size, None))


class Frames:
    """Cuts a stream into frames. Feed it chunks of any size; after an error it is of no use."""

    def __init__(self, *, frame_bytes_max: int) -> None:
        assert FRAME_BYTES_MIN <= frame_bytes_max < 2**31
        self._cutter = Cutter(LENGTH.size, partial(_measure, frame_bytes_max))

    def allow(self, frame_bytes_max: int) -> None:
        """Take frames up to another size from here on."""
        self._cutter.remeasure(partial(_measure, frame_bytes_max))

    def sole(self, data: Buffer) -> memoryview | None:
        """The frame without its length if `data` is one whole frame; None: `feed` must take it."""
        frame = self._cutter.sole(data)
        return None if frame is None else frame[LENGTH.size :]

    def feed(self, data: Buffer) -> Iterator[memoryview]:
        """Yield the frames that `data` completes, without their lengths; feed again after all."""
        return map(_BODY, self._cutter.feed(data))


def _measure(frame_bytes_max: int, length: Buffer) -> int:
    (size,) = LENGTH.unpack(length)
    if not FRAME_BYTES_MIN <= size <= frame_bytes_max:
        raise ProtocolError(f"frame of {size} bytes, not {FRAME_BYTES_MIN} to {frame_bytes_max}")
    return LENGTH.size + int(size)
