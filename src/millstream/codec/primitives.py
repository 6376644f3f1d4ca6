"""Reads and writes integers, varints and strings in Kafka's formats.

Readers take `(buffer, at)` and return `(value, at)`; writers append to a `bytearray`.

Invariant: a reader compares every length with the bytes that are there. It raises `ProtocolError`
before it reads behind the end of the buffer, and allocates nothing but a slice of it.
"""

from struct import Struct

from millstream.errors import ProtocolError
from millstream.model import Buffer

_INT16 = Struct(">h")
_INT32 = Struct(">i")

# The value of a varint of one byte.
ZIGZAG = tuple((byte >> 1) ^ -(byte & 1) for byte in range(128))


# -- integers of a fixed size ----------------------------------------------------------------------


def read_int16(buffer: Buffer, at: int) -> tuple[int, int]:
    return _read(_INT16, buffer, at)


def read_int32(buffer: Buffer, at: int) -> tuple[int, int]:
    return _read(_INT32, buffer, at)


# -- varints ---------------------------------------------------------------------------------------


def read_uvarint(buffer: Buffer, at: int) -> tuple[int, int]:
    """Read an unsigned integer of at most 32 bits, seven bits to a byte, lowest first."""
    return _read_base128(buffer, at, 32)


def read_varint(buffer: Buffer, at: int, bits: int = 32) -> tuple[int, int]:
    """Read a signed integer of at most `bits` bits; zigzag puts the sign in the lowest one."""
    if at + 1 < len(buffer):
        # One byte or two: nearly all are, and records are full of them.
        low = buffer[at]
        if low < 0x80:
            return ZIGZAG[low], at + 1
        high = buffer[at + 1]
        if high < 0x80:
            return (high << 6 | (low & 0x7F) >> 1) ^ -(low & 1), at + 2
    raw, at = _read_base128(buffer, at, bits)
    return (raw >> 1) ^ -(raw & 1), at


def read_varlong(buffer: Buffer, at: int) -> tuple[int, int]:
    """Read a signed integer of at most 64 bits."""
    return read_varint(buffer, at, 64)


def write_uvarint(out: bytearray, value: int) -> None:
    """Write an unsigned varint of either width."""
    assert 0 <= value < 2**64
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def write_varint(out: bytearray, value: int) -> None:
    """Write a signed varint of either width: a varlong is a varint that may be longer."""
    write_uvarint(out, value << 1 if value >= 0 else ~(value << 1))


# -- strings ---------------------------------------------------------------------------------------


def read_string(buffer: Buffer, at: int) -> tuple[str | None, int]:
    """Read UTF-8 behind an int16 length; -1 stands for null."""
    size, at = _read(_INT16, buffer, at)
    if size == -1:
        return None, at
    return _read_text(buffer, at, size)


def write_string(out: bytearray, value: str | None) -> None:
    raw = None if value is None else value.encode()
    out += _INT16.pack(-1 if raw is None else len(raw))
    if raw is not None:
        out += raw


# -- private ---------------------------------------------------------------------------------------


def _read(form: Struct, buffer: Buffer, at: int) -> tuple[int, int]:
    end = at + form.size
    if end > len(buffer):
        raise ProtocolError(f"{form.size} bytes at {at}, {len(buffer) - at} are there")
    value: int = form.unpack_from(buffer, at)[0]
    return value, end


def _read_base128(buffer: Buffer, at: int, bits: int) -> tuple[int, int]:
    bytes_max = -(-bits // 7)
    value = shift = 0
    for byte in buffer[at : at + bytes_max]:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            if value >> bits:
                raise ProtocolError(f"varint at {at} has more than {bits} bits")
            return value, at + shift // 7
    raise ProtocolError(f"varint at {at} does not end within {bytes_max} bytes")


def _read_text(buffer: Buffer, at: int, size: int) -> tuple[str, int]:
    end = at + size
    if size < 0 or end > len(buffer):
        raise ProtocolError(f"{size} bytes at {at}, {len(buffer) - at} are there")
    try:
        return bytes(buffer[at:end]).decode(), end
    except UnicodeDecodeError:
        raise ProtocolError(f"{size} bytes at {at} are not UTF-8") from None
