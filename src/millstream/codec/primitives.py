"""Integers, varints, strings and byte strings, as Kafka's formats spell them.

Readers take `(buffer, at)` and return `(value, at)`; writers append to a `bytearray`. The one
thing to know: no length is believed. A reader raises `ProtocolError` before it looks behind the end
of the buffer, and a slice is the only thing that is ever allocated.
"""

from struct import Struct

from millstream.errors import ProtocolError
from millstream.model import Buffer

_INT8 = Struct(">b")
_INT16 = Struct(">h")
_INT32 = Struct(">i")
_INT64 = Struct(">q")

# The value of a varint of one byte.
ZIGZAG = tuple((byte >> 1) ^ -(byte & 1) for byte in range(128))


# -- integers of a fixed size ----------------------------------------------------------------------


def read_int8(buffer: Buffer, at: int) -> tuple[int, int]:
    return _read(_INT8, buffer, at)


def read_int16(buffer: Buffer, at: int) -> tuple[int, int]:
    return _read(_INT16, buffer, at)


def read_int32(buffer: Buffer, at: int) -> tuple[int, int]:
    return _read(_INT32, buffer, at)


def read_int64(buffer: Buffer, at: int) -> tuple[int, int]:
    return _read(_INT64, buffer, at)


def write_int8(out: bytearray, value: int) -> None:
    out += _INT8.pack(value)


def write_int16(out: bytearray, value: int) -> None:
    out += _INT16.pack(value)


def write_int32(out: bytearray, value: int) -> None:
    out += _INT32.pack(value)


def write_int64(out: bytearray, value: int) -> None:
    out += _INT64.pack(value)


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


# -- strings and bytes -----------------------------------------------------------------------------


def read_slice(buffer: Buffer, at: int, size: int) -> tuple[bytes, int]:
    """Read exactly `size` bytes."""
    end = at + size
    if size < 0 or end > len(buffer):
        raise ProtocolError(f"{size} bytes at {at}, {len(buffer) - at} are there")
    return bytes(buffer[at:end]), end


def read_bytes(buffer: Buffer, at: int) -> tuple[bytes | None, int]:
    """Read bytes behind an int32 length; -1 stands for null."""
    size, at = _read(_INT32, buffer, at)
    if size == -1:
        return None, at
    return read_slice(buffer, at, size)


def read_string(buffer: Buffer, at: int) -> tuple[str | None, int]:
    """Read UTF-8 behind an int16 length; -1 stands for null."""
    size, at = _read(_INT16, buffer, at)
    if size == -1:
        return None, at
    return _read_text(buffer, at, size)


def read_compact_bytes(buffer: Buffer, at: int) -> tuple[bytes | None, int]:
    """Read bytes behind an unsigned varint of length + 1; 0 stands for null."""
    size, at = read_uvarint(buffer, at)
    if size == 0:
        return None, at
    return read_slice(buffer, at, size - 1)


def read_compact_string(buffer: Buffer, at: int) -> tuple[str | None, int]:
    """Read UTF-8 behind an unsigned varint of length + 1; 0 stands for null."""
    size, at = read_uvarint(buffer, at)
    if size == 0:
        return None, at
    return _read_text(buffer, at, size - 1)


def write_bytes(out: bytearray, value: Buffer | None) -> None:
    out += _INT32.pack(-1 if value is None else len(value))
    if value is not None:
        out += value


def write_string(out: bytearray, value: str | None) -> None:
    raw = None if value is None else value.encode()
    out += _INT16.pack(-1 if raw is None else len(raw))
    if raw is not None:
        out += raw


def write_compact_bytes(out: bytearray, value: Buffer | None) -> None:
    write_uvarint(out, 0 if value is None else len(value) + 1)
    if value is not None:
        out += value


def write_compact_string(out: bytearray, value: str | None) -> None:
    write_compact_bytes(out, None if value is None else value.encode())


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
    raw, end = read_slice(buffer, at, size)
    try:
        return raw.decode(), end
    except UnicodeDecodeError:
        raise ProtocolError(f"{size} bytes at {at} are not UTF-8") from None
