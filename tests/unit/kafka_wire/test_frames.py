"""Cutting a stream into frames."""

import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.errors import ProtocolError
from millstream.kafka_wire.frames import LENGTH, Frames


def stream_of(bodies: list[bytes]) -> bytes:
    return b"".join(LENGTH.pack(len(body)) + body for body in bodies)


@settings(deadline=None)
@given(st.lists(st.binary(min_size=4, max_size=30), max_size=6), st.data())
def test_frames_do_not_depend_on_how_the_stream_is_cut(bodies: list[bytes], data) -> None:
    stream = stream_of(bodies)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))

    frames = Frames(frame_bytes_max=100)
    edges = [0, *cuts, len(stream)]
    got = [f for i, j in pairwise(edges) for f in frames.feed(stream[i:j])]

    assert got == bodies


def test_a_frame_in_one_piece_is_not_copied() -> None:
    stream = stream_of([b"abcd", b"efghi"])

    whole = Frames(frame_bytes_max=100).feed(stream)

    assert [frame.obj is stream for frame in whole] == [True, True]


def test_a_frame_byte_by_byte_costs_one_copy_of_each_byte() -> None:
    body = bytes(range(256)) * 1_000
    frames = Frames(frame_bytes_max=2**20)

    got = [frame for byte in stream_of([body]) for frame in frames.feed(bytes([byte]))]

    assert got == [body]


@pytest.mark.parametrize("size", [-(2**31), -1, 0, 3, 101, 2**31 - 1, int.from_bytes(b"GET ")])
def test_a_length_out_of_bounds_is_refused_at_once(size: int) -> None:
    frames = Frames(frame_bytes_max=100)

    with pytest.raises(ProtocolError, match=f"frame of {size} bytes, not 4 to 100"):
        list(frames.feed(LENGTH.pack(size)))


def test_whole_frames_are_served_before_a_length_out_of_bounds() -> None:
    stream = stream_of([b"abcd", b"efghi"]) + LENGTH.pack(-1) + b"whatever"
    served: list[bytes] = []

    with pytest.raises(ProtocolError, match="frame of -1 bytes"):
        served.extend(bytes(frame) for frame in Frames(frame_bytes_max=100).feed(stream))

    assert served == [b"abcd", b"efghi"]


def test_announcing_a_large_frame_takes_no_memory() -> None:
    frames = Frames(frame_bytes_max=2**30)
    tracemalloc.start()

    assert list(frames.feed(LENGTH.pack(2**30) + b"only this")) == []

    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10_000
