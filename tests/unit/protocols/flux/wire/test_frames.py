"""Cutting a stream of lines and payloads into commands."""

import tracemalloc
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.protocols.flux.wire.commands import Acks, Mistake, Ping, Subscribe
from millstream.protocols.flux.wire.frames import (
    ACKS_MAX,
    KNOWN_LINES_MAX,
    Bounds,
    Known,
    Parser,
    Publications,
    Request,
)
from tests.support.tiers import sized

BOUNDS = Bounds(line_bytes_max=100, header_bytes_max=200, payload_bytes_max=1_000)


def parser(known: Known | None = None, bounds: Bounds = BOUNDS) -> Parser:
    return Parser({} if known is None else known, bounds)


def parts_of(requests: list[Request]) -> list[object]:
    """Requests as values: a run of publications becomes its publications, one by one."""
    values: list[object] = []
    for request in requests:
        if isinstance(request.command, Publications):
            values += [
                (heading.subject, heading.headers, payload)
                for heading, payload in zip(
                    request.command.headings, request.command.payloads, strict=True
                )
            ]
        elif isinstance(request.command, Acks):
            values += request.command.acks
        else:
            values.append(request.command)
    return values


def parsed(stream: bytes) -> list[object]:
    return parts_of(list(parser().feed(stream)))


def test_publications_in_a_row_are_one_request() -> None:
    stream = b"PUB a.b 2\r\nhi\r\nPUB a.c 0\r\n\r\nPUB a.b 2\r\nho\r\nPING\r\nPUB a 1\r\nx\r\n"

    requests = list(parser().feed(stream))

    assert [type(request.command) for request in requests] == [Publications, Ping, Publications]
    assert sum(len(request) for request in requests) == len(stream)
    assert parts_of(requests) == [
        (b"a.b", (), b"hi"),
        (b"a.c", (), b""),
        (b"a.b", (), b"ho"),
        Ping(),
        (b"a", (), b"x"),
    ]


def test_the_same_line_is_the_same_heading_for_everybody() -> None:
    known: Known = {}
    (first,) = parser(known).feed(b"PUB a 1\r\nx\r\n")
    (second,) = parser(known).feed(b"PUB a 1\r\ny\r\nPUB a 1\r\nz\r\nPUB a 2\r\nzz\r\n")

    assert isinstance(first.command, Publications)
    assert isinstance(second.command, Publications)
    (heading,) = first.command.headings
    assert [other is heading for other in second.command.headings] == [True, True, False]


def test_what_is_known_of_lines_is_bounded() -> None:
    known: Known = {}
    stream = b"".join(b"PUB subject.%d 1\r\nx\r\n" % n for n in range(KNOWN_LINES_MAX + 10))

    assert len(parts_of(list(parser(known).feed(stream)))) == KNOWN_LINES_MAX + 10

    assert len(known) <= KNOWN_LINES_MAX


def test_headers_come_before_the_payload() -> None:
    block = b"Msg-ID: 7\r\nTrace-ID: a: b\r\n\r\n"

    (request,) = parsed(
        b"HPUB orders.us %d %d\r\n%bhello\r\n" % (len(block), len(block) + 5, block)
    )

    assert request == (b"orders.us", (("ms-message-id", b"7"), ("Trace-ID", b"a: b")), b"hello")


def test_headers_of_no_bytes_are_none() -> None:
    assert parsed(b"HPUB a 0 2\r\nhi\r\n") == [(b"a", (), b"hi")]


def test_white_space_and_case_do_not_matter() -> None:
    stream = b"\r\n\n  ping \npub  a\t2\nhi\nsub a.> s1\r\n"

    assert parsed(stream) == [Ping(), (b"a", (), b"hi"), Subscribe("a.>", "s1")]


def test_a_payload_may_hold_anything() -> None:
    payload = b"\r\nPUB x 1\r\n\0\xff"

    assert parsed(b"PUB a %d\r\n%b\r\nPING\r\n" % (len(payload), payload)) == [
        (b"a", (), payload),
        Ping(),
    ]


@pytest.mark.parametrize(
    ("stream", "text"),
    [
        (b"PUB a\r\n", "usage: PUB <subject> <bytes>"),
        (b"PUB a b 2\r\n", "usage: PUB <subject> <bytes>"),
        (b"PUB a -1\r\n", "usage: PUB <subject> <bytes>"),
        (b"PUB a 1_0\r\n", "usage: PUB <subject> <bytes>"),
        (b"PUB a 99999999999999999999\r\n", "usage: PUB <subject> <bytes>"),
        (b"PUB a 1001\r\n" + bytes(1001) + b"\r\n", "a payload of more than 1000 bytes"),
        (b"PUB a 2\r\nhi!\r\n", "what follows is longer than 2 bytes"),
        (b"HPUB a 2\r\n", "usage: HPUB <subject> <header bytes> <total bytes>"),
        (b"HPUB a 5 4\r\n", "usage: HPUB <subject> <header bytes> <total bytes>"),
        (b"HPUB a 201 202\r\n" + bytes(202) + b"\r\n", "headers of more than 200 bytes"),
        (b"HPUB a 6 6\r\nA: b\r\n\r\n", "the headers do not end with an empty line"),
        (b"HPUB a 6 6\r\nAb\r\n\r\n\r\n", "a header is a line 'Name: value'"),
        (b"HPUB a 8 8\r\n: ab\r\n\r\n\r\n", "a header is a line 'Name: value'"),
        (b"HPUB a 8 8\r\n\xff: b\r\n\r\n\r\n", "the name of a header is UTF-8"),
        (b"X" * 101 + b"\r\n", "a line of more than 100 bytes"),
        (b"PUB " + b"a" * 101 + b" 2\r\n", "a line of more than 100 bytes"),
        (b"PUN a 2\r\n", "unknown command 'PUN'"),
        (b"\xff\r\n", "a command is UTF-8"),
    ],
)
def test_a_mistake_is_told_and_the_next_command_is_read(stream: bytes, text: str) -> None:
    assert parsed(stream + b"PING\r\n") == [Mistake(text), Ping()]


def test_a_mistake_among_publications_takes_none_of_them_along() -> None:
    stream = b"PUB a 1\r\nx\r\nPUB a 1\r\nyy\r\nPUB a 1\r\nz\r\n"

    assert parsed(stream) == [
        (b"a", (), b"x"),
        Mistake("what follows is longer than 1 bytes"),
        (b"a", (), b"z"),
    ]


def test_acks_in_a_row_are_one_request_up_to_a_bound() -> None:
    stream = b"".join(b"ACK %d\r\n" % n for n in range(ACKS_MAX + 1)) + b"ACK 5\nACK\r\n"

    requests = list(parser().feed(stream))

    assert [len(parts_of([request])) for request in requests] == [ACKS_MAX, 2, 1]
    assert parts_of(requests[1:]) == [
        (ACKS_MAX, None),
        (5, None),
        Mistake("usage: ACK <seq> [sid | durable name]"),
    ]


STREAM = (
    b"PUB a.b 5\r\nhello\r\nPUB a.b 5\r\nworld\r\nPING\r\nHPUB a 12 14\r\nKey: v\r\n\r\n\r\nhi\r\n"
    b"ACK 1\r\nACK 2 x\r\nPUB a 3\r\ntoo long\r\nPUB a 2000\r\n" + bytes(2000) + b"\r\n"
    b"\r\n" + b"y" * 300 + b"\r\nPUB b 0\n\nSUB a s\r\nPUB b 0\r\n\r\n"
)


@settings(deadline=None, max_examples=sized(200))
@given(st.data())
def test_commands_do_not_depend_on_how_the_stream_is_cut(data: Any) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(STREAM)), max_size=12)))
    whole = parsed(STREAM)

    frame_parser = parser()
    edges = [0, *cuts, len(STREAM)]
    got = parts_of([r for i, j in pairwise(edges) for r in frame_parser.feed(STREAM[i:j])])

    assert got == whole
    assert frame_parser.unfinished_bytes == 0


def published(subject: bytes, payload: bytes, headers: bytes = b"") -> tuple[bytes, object]:
    if not headers:
        return b"PUB %b %d\r\n%b\r\n" % (subject, len(payload), payload), (subject, (), payload)
    block = b"A: %b\r\n\r\n" % headers
    sizes = len(block), len(block) + len(payload)
    line = b"HPUB %b %d %d\r\n" % (subject, *sizes)
    return line + block + payload + b"\r\n", (subject, (("A", headers),), payload)


SPELLED = st.one_of(
    st.builds(published, st.sampled_from([b"a", b"b.c"]), st.binary(max_size=3)),
    st.builds(published, st.just(b"a"), st.sampled_from([b"same", b"PUB\r", b"\r\n\r\n"])),
    st.builds(published, st.just(b"h"), st.binary(max_size=9), st.sampled_from([b"1", b"2: 3"])),
    st.sampled_from(
        [
            (b"PING\r\n", Ping()),
            (b"ACK 7\n", (7, None)),
            (b"ACK 8 s1\r\n", (8, "s1")),
            (b"SUB a s\r\n", Subscribe("a", "s")),
            (b"PUB a 2\r\nlonger\r\n", Mistake("what follows is longer than 2 bytes")),
            (b"NO\r\n", Mistake("unknown command 'NO'")),
        ]
    ),
)


@settings(deadline=None, max_examples=sized(300))
@given(st.lists(SPELLED, max_size=30), st.data())
def test_every_stream_is_read_as_it_was_spelled(
    commands: list[tuple[bytes, object]], data: Any
) -> None:
    stream = b"".join(spelled for spelled, _ in commands)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))

    frame_parser = parser()
    edges = [0, *cuts, len(stream)]
    requests = [r for i, j in pairwise(edges) for r in frame_parser.feed(stream[i:j])]

    assert parts_of(requests) == [expected for _, expected in commands]


TRICKY = [
    published(b"a", b"same"),
    published(b"b.c", b"same"),
    published(b"b.c", b""),
    published(b"d", b"x" * 200),
    published(b"e", b"PUB a 1\r\nx"),
    published(b"f", b"\r"),
    published(b"f", b"\n"),
    published(b"g", b"\r\n\r\n"),
    published(b"h", b"1", b"2"),
    (b"PUB a 4\nsame\n", (b"a", (), b"same")),
    (b"PUB a 4\r\nsame\n", (b"a", (), b"same")),
    (b"PUB  a 4\r\nsame\r\n", (b"a", (), b"same")),
    (b"PUB a 4\r\nlonger\r\n", Mistake("what follows is longer than 4 bytes")),
    (b"PUB a x\r\n", Mistake("usage: PUB <subject> <bytes>")),
    (b"PING\r\n", Ping()),
]


@settings(deadline=None, max_examples=sized(60))
@given(st.integers(0, 2**32), st.integers(1, len(TRICKY)), st.integers(20, 30_000))
def test_mixed_publications_are_read_one_by_one_or_at_once(
    seed: int, kinds: int, chunk: int
) -> None:
    random = Random(seed)
    # Plain ones are many, so that rows of them are long enough to be taken at once.
    order = random.choices(TRICKY[:kinds], [100] * min(kinds, 4) + [1] * (kinds - 4), k=1_000)
    stream = b"".join(spelled for spelled, _ in order)

    frame_parser = parser()
    chunks = [stream[at : at + chunk] for at in range(0, len(stream), chunk)]
    requests = [request for some in chunks for request in frame_parser.feed(some)]

    assert parts_of(requests) == [expected for _, expected in order]


def test_a_stream_may_come_one_byte_at_a_time() -> None:
    frame_parser = parser()

    got = parts_of([r for byte in STREAM for r in frame_parser.feed(bytes([byte]))])

    assert got == parsed(STREAM)


@settings(deadline=None, max_examples=sized(300))
@given(st.binary(max_size=300), st.integers(1, 50))
def test_no_bytes_break_the_parser(garbage: bytes, chunk: int) -> None:
    frame_parser = parser()
    for at in range(0, len(garbage), chunk):
        list(frame_parser.feed(garbage[at : at + chunk]))

    assert frame_parser.unfinished_bytes <= len(garbage)


def test_a_payload_in_many_pieces_is_put_together_once() -> None:
    size = 2 * 2**20
    frame_parser = parser(
        bounds=Bounds(line_bytes_max=100, header_bytes_max=9, payload_bytes_max=size)
    )
    list(frame_parser.feed(b"PUB a %d\r\n" % size))
    tracemalloc.start()
    for _ in range(size // 2**10):
        assert list(frame_parser.feed(bytes(2**10))) == []
    assert frame_parser.unfinished_bytes == size + len(b"PUB a %d\r\n" % size)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    (request,) = frame_parser.feed(b"\r\n")

    assert len(parts_of([request])[0][2]) == size  # type: ignore[index]
    assert peak < 2 * size


def test_what_is_refused_takes_no_memory() -> None:
    frame_parser = parser()
    (mistake,) = frame_parser.feed(b"PUB a 100000000\r\n")
    for _ in range(1_000):
        assert list(frame_parser.feed(bytes(1_000))) == []
        assert frame_parser.unfinished_bytes == 0
    (endless,) = parser().feed(b"x" * 1_000)

    assert mistake.command == Mistake("a payload of more than 1000 bytes")
    assert endless.command == Mistake("a line of more than 100 bytes")
