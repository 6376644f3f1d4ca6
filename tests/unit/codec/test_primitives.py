from collections.abc import Callable

import pytest

from millstream.codec import primitives
from millstream.errors import ProtocolError


@pytest.mark.parametrize(
    ("value", "spelled"),
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
def test_signed_varints_zigzag(value: int, spelled: str) -> None:
    out = bytearray()
    primitives.write_varint(out, value)

    assert out.hex() == spelled
    assert primitives.read_varint(out, 0) == (value, len(out))
    assert primitives.read_varlong(b"--" + out, 2) == (value, 2 + len(out))


@pytest.mark.parametrize(
    ("value", "spelled"),
    [
        (2**63 - 1, "feffffffffffffffff01"),
        (-(2**63), "ffffffffffffffffff01"),
    ],
)
def test_a_varlong_takes_up_to_ten_bytes(value: int, spelled: str) -> None:
    out = bytearray()
    primitives.write_varint(out, value)

    assert out.hex() == spelled
    assert primitives.read_varlong(out, 0) == (value, 10)


@pytest.mark.parametrize(
    ("value", "spelled"), [(0, "00"), (127, "7f"), (128, "8001"), (2**32 - 1, "ffffffff0f")]
)
def test_unsigned_varints_do_not_zigzag(value: int, spelled: str) -> None:
    out = bytearray()
    primitives.write_uvarint(out, value)

    assert out.hex() == spelled
    assert primitives.read_uvarint(out, 0) == (value, len(out))


def test_a_longer_spelling_than_needed_is_read() -> None:
    assert primitives.read_varint(bytes.fromhex("8000"), 0) == (0, 2)
    assert primitives.read_varint(bytes.fromhex("8080808000"), 0) == (0, 5)


@pytest.mark.parametrize(
    "spelled",
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
    read: Callable[[bytes, int], tuple[int, int]], spelled: str
) -> None:
    with pytest.raises(ProtocolError):
        read(bytes.fromhex(spelled), 0)


@pytest.mark.parametrize("spelled", ["", "80", "ff" * 10, "ff" * 9 + "02", "80" * 10 + "01"])
def test_a_varlong_ends_in_time_or_is_refused(spelled: str) -> None:
    with pytest.raises(ProtocolError):
        primitives.read_varlong(bytes.fromhex(spelled), 0)


@pytest.mark.parametrize(
    ("name", "value", "spelled"),
    [
        ("int8", -2, "fe"),
        ("int16", 258, "0102"),
        ("int32", -2, "fffffffe"),
        ("int64", 1, "0000000000000001"),
    ],
)
def test_integers_are_big_endian_and_signed(name: str, value: int, spelled: str) -> None:
    read, write = getattr(primitives, f"read_{name}"), getattr(primitives, f"write_{name}")

    out = bytearray(b"-")
    write(out, value)

    assert out[1:].hex() == spelled
    assert read(out, 1) == (value, len(out))
    with pytest.raises(ProtocolError):
        read(out[:-1], 1)


@pytest.mark.parametrize(
    ("name", "value", "spelled"),
    [
        ("bytes", None, "ffffffff"),
        ("bytes", b"", "00000000"),
        ("bytes", b"ab", "000000026162"),
        ("string", None, "ffff"),
        ("string", "", "0000"),
        ("string", "é", "0002c3a9"),
        ("compact_bytes", None, "00"),
        ("compact_bytes", b"", "01"),
        ("compact_bytes", b"ab", "036162"),
        ("compact_string", None, "00"),
        ("compact_string", "", "01"),
        ("compact_string", "é", "03c3a9"),
    ],
)
def test_null_and_empty_are_spelled_differently(
    name: str, value: bytes | str | None, spelled: str
) -> None:
    read, write = getattr(primitives, f"read_{name}"), getattr(primitives, f"write_{name}")

    out = bytearray()
    write(out, value)

    assert out.hex() == spelled
    assert read(memoryview(out), 0) == (value, len(out))


@pytest.mark.parametrize(
    ("name", "spelled"),
    [
        ("bytes", "00000003ffff"),  # Reaches behind the end.
        ("bytes", "7fffffff"),
        ("bytes", "fffffffe"),  # -2 is neither a length nor null.
        ("bytes", "0000"),
        ("string", "0003ffff"),
        ("string", "fffe"),
        ("string", "0002ff61"),  # Not UTF-8.
        ("compact_bytes", "0461"),
        ("compact_bytes", "ffffffff0f"),
        ("compact_string", "0461"),
        ("compact_string", "02ff"),
    ],
)
def test_a_length_is_not_believed(name: str, spelled: str) -> None:
    with pytest.raises(ProtocolError):
        getattr(primitives, f"read_{name}")(bytes.fromhex(spelled), 0)
