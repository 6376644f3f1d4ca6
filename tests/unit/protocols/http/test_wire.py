"""Request heads however the stream is cut, and the text format of Prometheus."""

from http import HTTPStatus

import pytest

from millstream.errors import ProtocolError
from millstream.metrics import CONNECTIONS, GROUP_LAG, Sample
from millstream.protocols.http.wire import (
    HEAD_BYTES_MAX,
    Heads,
    Request,
    metric_lines,
    parse,
    response,
)

HEAD = b"GET /metrics?x=1 HTTP/1.1\r\nHost: here\r\n\r\n"


@pytest.mark.parametrize("size", [1, 3, 7, 1_000])
def test_heads_do_not_depend_on_how_the_stream_is_cut(size: int) -> None:
    stream = HEAD * 3
    heads = Heads()

    complete = [h for at in range(0, len(stream), size) for h in heads.feed(stream[at : at + size])]

    assert [parse(head) for head in complete] == [Request("GET", "/metrics")] * 3
    assert heads.unfinished_bytes == 0


@pytest.mark.parametrize("end", [b"", b"\r\n\r\n"])
def test_a_head_that_is_too_long_is_refused(end: bytes) -> None:
    with pytest.raises(ProtocolError, match="more than 8192 bytes"):
        list(Heads().feed(b"GET /" + b"x" * HEAD_BYTES_MAX + end))


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"GET /metrics",
        b"GET /metrics HTTP/2.0",
        b"\xff\x00",
        b"POST / HTTP/1.1\r\nContent-Length: 3",
        b"GET / HTTP/1.1\r\ntransfer-encoding: chunked",
    ],
)
def test_anything_but_a_request_without_a_body_is_refused(head: bytes) -> None:
    with pytest.raises(ProtocolError):
        parse(head)


def test_samples_stand_below_their_metric_and_labels_are_escaped() -> None:
    samples = [
        Sample(CONNECTIONS, (), 2),
        Sample(GROUP_LAG, ('a "b"\\\n', "orders"), 1e15),
        Sample(GROUP_LAG, ("c", "orders"), 0.5),
    ]

    assert "".join(metric_lines(iter(samples))) == (
        f"# HELP millstream_connections {CONNECTIONS.help}\n"
        "# TYPE millstream_connections gauge\n"
        "millstream_connections 2\n"
        f"# HELP millstream_group_lag {GROUP_LAG.help}\n"
        "# TYPE millstream_group_lag gauge\n"
        'millstream_group_lag{group="a \\"b\\"\\\\\\n",topic="orders"} 1000000000000000\n'
        'millstream_group_lag{group="c",topic="orders"} 0.5\n'
    )


def test_a_response_has_the_length_of_its_body_and_head_leaves_it_out() -> None:
    whole = response(HTTPStatus.OK, b"four")

    assert whole.endswith(b"Content-Length: 4\r\n\r\nfour")
    assert response(HTTPStatus.OK, b"four", is_head=True) == whole[:-4]
