"""Frames: a length of four bytes, then that many bytes.

Owns where one request ends and the next begins. The one thing to know: a frame that came in one
piece is a view of that piece, one that came in many is put together once, so a byte is copied at
most once however the stream was cut. Memory grows with what arrived, never with what was announced.
"""

from collections.abc import Iterator
from struct import Struct

from millstream.errors import ProtocolError
from millstream.model import Buffer

LENGTH = Struct(">i")
FRAME_BYTES_MIN = 4  # A correlation id alone, the shortest response; a request is longer.


class Frames:
    """Cuts a stream into frames. Feed it chunks of any size; after an error it is of no use."""

    def __init__(self, *, frame_bytes_max: int) -> None:
        assert FRAME_BYTES_MIN <= frame_bytes_max < 2**31
        self._frame_bytes_max = frame_bytes_max
        self._length = bytearray()  # The first bytes of a length that is not whole yet.
        self._size = 0  # Of the frame that is on its way; 0 between frames.
        self._body = bytearray()  # What has arrived of it.

    def feed(self, data: Buffer) -> Iterator[memoryview]:
        """Yield the frames that `data` completes, without their lengths; feed again after all.

        They may be views of `data`: whoever feeds must not write to it again. `ProtocolError` comes
        in the place of a frame that cannot be: those before it are as good as any.
        """
        view = memoryview(data)
        at, end = 0, len(view)
        while at < end:
            if not self._size:
                at = self._read_length(view, at)
                continue
            start, at = at, at + self._size - len(self._body)
            if not self._body and end >= at:
                self._size = 0
                yield view[start:at]
                continue
            self._body += view[start:at]
            if len(self._body) == self._size:
                whole, self._body = self._body, bytearray()
                self._size = 0
                yield memoryview(whole)

    def _read_length(self, view: memoryview, at: int) -> int:
        taken = view[at : at + LENGTH.size - len(self._length)]
        self._length += taken
        if len(self._length) == LENGTH.size:
            (size,) = LENGTH.unpack(self._length)
            if not FRAME_BYTES_MIN <= size <= self._frame_bytes_max:
                raise ProtocolError(
                    f"frame of {size} bytes, not {FRAME_BYTES_MIN} to {self._frame_bytes_max}"
                )
            self._length.clear()
            self._size = size
        return at + len(taken)
