"""Frames between nodes: length, kind, checksum, payload.

    length  u32   of the payload
    crc     u32   CRC-32C of kind and payload
    kind    u8
    payload

Pure. A frame that breaks a rule is a `ProtocolError`, and ends its connection: nothing that follows
it can be trusted, and nothing is lost in silence.
"""

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct

from fastcrc import crc32

from millstream.errors import ProtocolError
from millstream.model import Buffer

FRAME_BYTES_MAX = 4 * 2**20
GREETING_BYTES_MAX = 4096  # Of frames before a peer has proven who it is.

_HEAD = Struct(">IIB")


class Kind(IntEnum):
    HELLO = 1
    PROOF = 2
    REFUSED = 3
    GROUPS = 4  # Messages of consensus and heartbeats, as many as one turn of the loop has.
    RECORDS = 5  # Part of one message with many records.
    CALL = 6
    ANSWER = 7
    CANCEL = 8


_KINDS = {kind.value: kind for kind in Kind}


def encode_frame(kind: Kind, payload: Buffer) -> bytes:
    assert len(payload) <= FRAME_BYTES_MAX, "a frame that no peer accepts"
    return _HEAD.pack(len(payload), _checksum(kind, payload), kind) + payload


class FrameReader:
    """Cuts a stream of bytes into frames."""

    def __init__(self, bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self._data = bytearray()

    def feed(self, data: Buffer) -> Iterator[tuple[Kind, bytes]]:
        """Yield the frames that are complete; raise `ProtocolError` at the first broken one."""
        self._data += data
        at = 0
        try:
            while len(self._data) - at >= _HEAD.size:
                length, crc, number = _HEAD.unpack_from(self._data, at)
                kind = _KINDS.get(number)
                if kind is None:
                    raise ProtocolError(f"a frame of the unknown kind {number}")
                if length > self.bytes_max:
                    raise ProtocolError(f"a frame of {length} bytes, at most {self.bytes_max}")
                end = at + _HEAD.size + length
                if end > len(self._data):
                    return
                payload = bytes(memoryview(self._data)[at + _HEAD.size : end])
                at = end
                if _checksum(kind, payload) != crc:
                    raise ProtocolError("a frame with a wrong checksum")
                yield kind, payload
        finally:
            del self._data[:at]


def _checksum(kind: Kind, payload: Buffer) -> int:
    # Plain bytes are passed as they are: the payload is copied once, by the frame.
    return crc32.iscsi(payload if isinstance(payload, bytes) else bytes(payload)) ^ kind
