"""Splits a stream into frames: a head of a fixed size that gives the length, then the body.

Serves every binary protocol with such heads. A frame that came in one piece is a view of that
piece, one that came in many is put together once, so a byte is copied at most once however the
stream was cut. Memory grows with what arrived, never with what was announced.
"""

from collections.abc import Callable, Iterator

from millstream.model import Buffer

# How many bytes a frame has, its head included, by its head; raises `ProtocolError` for nonsense.
Measure = Callable[[Buffer], int]


class Cutter:
    """Cuts a stream into frames. Feed it chunks of any size; after an error it is of no use.

    `measure` must hold no reference to the owner of the cutter: what has arrived of a large frame
    is to be freed with its connection, not when cycles are looked for.
    """

    def __init__(self, head_bytes: int, measure: Measure) -> None:
        assert head_bytes > 0
        self._head_bytes = head_bytes
        self._measure = measure
        self._size = 0  # Of the frame that is on its way; 0 as long as its head is not whole.
        self._begun = bytearray()  # What has arrived of it.

    def remeasure(self, measure: Measure) -> None:
        """Measure the frames from here on in another way."""
        self._measure = measure

    def sole(self, data: Buffer) -> memoryview | None:
        """`data` if it is one whole frame, as most requests come; None: `feed` must take it."""
        head_bytes = self._head_bytes
        if self._begun or len(data) < head_bytes:
            return None
        view = memoryview(data)
        return view if self._measure(view[:head_bytes]) == len(view) else None

    def feed(self, data: Buffer) -> Iterator[memoryview]:
        """Yield the frames that `data` completes, with their heads; feed again after all.

        They may be views of `data`: the caller must not write to it again. `ProtocolError` comes
        in the place of a frame that cannot be: those before it are as good as any.
        """
        view = memoryview(data)
        at, end = 0, len(view)
        while at < end:
            if not self._begun and end - at >= self._head_bytes:
                size = self._measure(view[at : at + self._head_bytes])
                if size <= end - at:
                    yield view[at : at + size]
                    at += size
                    continue
            at += self._gather(view[at:])
            if self._size and len(self._begun) == self._size:
                whole, self._begun, self._size = self._begun, bytearray(), 0
                yield memoryview(whole)

    def _gather(self, view: memoryview) -> int:
        """Take what is missing, first of the head and then of the frame; return how much."""
        taken = view[: (self._size or self._head_bytes) - len(self._begun)]
        self._begun += taken
        if not self._size and len(self._begun) == self._head_bytes:
            self._size = self._measure(self._begun)
            assert self._size >= self._head_bytes
        return len(taken)
