"""Cutting a stream into frames with heads."""

import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.errors import ProtocolError
from millstream.framing import Cutter
from millstream.model import Buffer

HEAD_BYTES = 3  # Whose last byte is the size of the rest.


def measure(head: Buffer) -> int:
    assert len(head) == HEAD_BYTES
    if head[0] != ord("#"):
        raise ProtocolError(f"no head: {bytes(head)!r}")
    return HEAD_BYTES + int.from_bytes(head[1:])


def frame(payload: bytes) -> bytes:
    return b"#" + len(payload).to_bytes(2) + payload


@settings(deadline=None)
@given(st.lists(st.binary(max_size=30), max_size=6), st.data())
def test_frames_do_not_depend_on_how_the_stream_is_cut(rests: list[bytes], data) -> None:
    stream = b"".join(frame(payload) for payload in rests)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))

    cutter = Cutter(HEAD_BYTES, measure)
    edges = [0, *cuts, len(stream)]
    got = [f for i, j in pairwise(edges) for f in cutter.feed(stream[i:j])]

    assert got == [frame(payload) for payload in rests]


def test_a_frame_in_one_piece_is_not_copied() -> None:
    stream = frame(b"abc") + frame(b"") + frame(b"defg")

    whole = Cutter(HEAD_BYTES, measure).feed(stream)

    assert [frame.obj is stream for frame in whole] == [True, True, True]


def test_whole_frames_are_served_before_a_head_that_is_none() -> None:
    frames = Cutter(HEAD_BYTES, measure).feed(frame(b"a") + frame(b"b") + b"!!!whatever")

    assert [next(frames), next(frames)] == [frame(b"a"), frame(b"b")]
    with pytest.raises(ProtocolError, match="no head: b'!!!'"):
        next(frames)


def test_a_head_that_comes_in_pieces_is_judged_when_it_is_whole() -> None:
    cutter = Cutter(HEAD_BYTES, measure)

    assert list(cutter.feed(b"!")) == []
    assert list(cutter.feed(b"!")) == []
    with pytest.raises(ProtocolError):
        list(cutter.feed(b"!"))


def test_memory_does_not_follow_what_a_head_announces() -> None:
    cutters = [Cutter(HEAD_BYTES, lambda head: 2**30) for _ in range(100)]
    tracemalloc.start()
    for cutter in cutters:
        list(cutter.feed(b"#\xff\xff and little more"))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 2**20
