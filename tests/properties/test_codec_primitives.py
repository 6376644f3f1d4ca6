"""Primitives of any value survive, and bytes of any kind are refused in our own words."""

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.codec import primitives
from millstream.errors import ProtocolError

BITS = {"int16": 16, "int32": 32}
READERS = [getattr(primitives, name) for name in dir(primitives) if name.startswith("read_")]
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)


@settings(deadline=None)
@given(st.sampled_from(sorted(BITS)), st.data())
def test_integers_survive(name: str, data: st.DataObject) -> None:
    half = 2 ** (BITS[name] - 1)
    value = data.draw(st.integers(-half, half - 1))

    raw = b"before" + value.to_bytes(BITS[name] // 8, "big", signed=True)

    assert getattr(primitives, f"read_{name}")(raw + b"behind", 6) == (value, len(raw))


@settings(deadline=None)
@given(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1))
def test_varints_survive_and_take_no_more_bytes_than_their_width_allows(
    short: int, long: int
) -> None:
    out = bytearray()
    primitives.write_varint(out, short)
    middle = len(out)
    primitives.write_varint(out, long)

    assert primitives.read_varint(out, 0) == (short, middle)
    assert primitives.read_varlong(out, middle) == (long, len(out))
    assert middle <= 5
    assert len(out) - middle <= 10


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_unsigned_varints_survive(value: int) -> None:
    out = bytearray()
    primitives.write_uvarint(out, value)

    assert primitives.read_uvarint(out, 0) == (value, len(out))


@settings(deadline=None)
@given(st.none() | texts)
def test_strings_survive(value: str | None) -> None:
    out = bytearray()
    primitives.write_string(out, value)

    assert primitives.read_string(out + b"behind", 0) == (value, len(out))


@settings(deadline=None)
@given(st.binary(max_size=12), st.integers(0, 14), st.sampled_from(READERS))
def test_any_bytes_are_read_or_refused_and_never_read_past_their_end(
    raw: bytes, at: int, read: Callable[[bytes, int], tuple[object, int]]
) -> None:
    try:
        _, end = read(raw, at)
    except ProtocolError:
        return
    assert at <= end <= len(raw)
