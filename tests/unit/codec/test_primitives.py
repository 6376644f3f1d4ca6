from collections.abc import Callable

import pytest

from millstream.codec import primitives
from millstream.errors import ProtocolError


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (-65, "8101"),
        (8191, "fe7f"),
        (8192, "808001"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
    ],
)
def test_signed_varints_zigzag(value: int, encoded: str) -> None:
    out = bytearray()
    primitives.write_varint(out, value)

    assert out.hex() == encoded
    assert primitives.read_varint(out, 0) == (value, len(out))
    assert primitives.read_varlong(b"--" + out, 2) == (value, 2 + len(out))


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (2**63 - 1, "feffffffffffffffff01"),
        (-(2**63), "ffffffffffffffffff01"),
    ],
)
def test_a_varlong_takes_up_to_ten_bytes(value: int, encoded: str) -> None:
    out = bytearray()
    primitives.write_varint(out, value)

    assert out.hex() == encoded
    assert primitives.read_varlong(out, 0) == (value, 10)


@pytest.mark.parametrize(
    ("value", "encoded"), [(0, "00"), (127, "7f"), (128, "8001"), (2**32 - 1, "ffffffff0f")]
)
def test_unsigned_varints_do_not_zigzag(value: int, encoded: str) -> None:
    out = bytearray()
    primitives.write_uvarint(out, value)

    assert out.hex() == encoded
    assert primitives.read_uvarint(out, 0) == (value, len(out))


def test_a_longer_varint_than_needed_is_read() -> None:
    assert primitives.read_varint(bytes.fromhex("8000"), 0) == (0, 2)
    assert primitives.read_varint(bytes.fromhex("8080808000"), 0) == (0, 5)


@pytest.mark.parametrize(
    "encoded",
    [
        "",  # Nothing there.
        "80",  # Goes on behind the end.
        "808080",
        "808080808001",  # Six bytes.
        "ffffffff1f",  # 33 bits.
    ],
)
@pytest.mark.parametrize("read", [primitives.read_varint, primitives.read_uvarint])
def test_a_varint_ends_in_time_or_is_refused(
    read: Callable[[bytes, int], tuple[int, int]], encoded: str
) -> None:
    with pytest.raises(ProtocolError):
        read(bytes.fromhex(encoded), 0)


@pytest.mark.parametrize("encoded", ["", "80", "ff" * 10, "ff" * 9 + "02", "80" * 10 + "01"])
def test_a_varlong_ends_in_time_or_is_refused(encoded: str) -> None:
    with pytest.raises(ProtocolError):
        primitives.read_varlong(bytes.fromhex(encoded), 0)


@pytest.mark.parametrize(
    ("read", "value", "encoded"),
    [
        (primitives.read_int16, 258, "0102"),
        (primitives.read_int16, -2, "fffe"),
        (primitives.read_int32, -2, "fffffffe"),
    ],
)
def test_integers_are_big_endian_and_signed(
    read: Callable[[bytes, int], tuple[int, int]], value: int, encoded: str
) -> None:
    raw = b"-" + bytes.fromhex(encoded)

    assert read(raw, 1) == (value, len(raw))
    with pytest.raises(ProtocolError):
        read(raw[:-1], 1)


@pytest.mark.parametrize(("value", "encoded"), [(None, "ffff"), ("", "0000"), ("é", "0002c3a9")])
def test_null_and_empty_strings_are_encoded_differently(value: str | None, encoded: str) -> None:
    out = bytearray()
    primitives.write_string(out, value)

    assert out.hex() == encoded
    assert primitives.read_string(memoryview(out), 0) == (value, len(out))


@pytest.mark.parametrize(
    "encoded",
    [
        "0003ffff",  # Reaches behind the end.
        "fffe",  # -2 is neither a length nor null.
        "0002ff61",  # Not UTF-8.
        "00",
    ],
)
def test_a_length_is_compared_with_the_bytes_that_are_there(encoded: str) -> None:
    with pytest.raises(ProtocolError):
        primitives.read_string(bytes.fromhex(encoded), 0)
