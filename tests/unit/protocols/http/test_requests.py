"""HTTP requests byte by byte: bounds, hostile heads, paths, and h11 as a second opinion."""

from collections.abc import Iterator
from http import HTTPStatus

import h11
import pytest

from millstream.protocols.http.wire.requests import BadRequest, Limits, Request, Requests
from millstream.protocols.http.wire.responses import LAST_CHUNK, chunk, response, stream_head

LIMITS = Limits(header_bytes_max=400, headers_max=10, body_bytes_max=100)


def fed(data: bytes, *, piece: int = 0) -> list[Request]:
    requests = Requests(LIMITS)
    size = piece or len(data) or 1
    return [
        request
        for at in range(0, len(data), size)
        for request in requests.feed(data[at : at + size])
        if isinstance(request, Request)
    ]


def refusal(data: bytes) -> HTTPStatus:
    with pytest.raises(BadRequest) as caught:
        fed(data)
    return caught.value.status


def head(*lines: str, target: str = "/", method: str = "GET") -> bytes:
    return "\r\n".join([f"{method} {target} HTTP/1.1", "Host: x", *lines, "", ""]).encode()


STREAM = (
    head(target="/a%2Fb/c?x=1&y=a+b%26")
    + head("Content-Length: 3", method="POST")
    + b"abc"
    + head("Transfer-Encoding: chunked", method="PUT")
    + b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"
)


@pytest.mark.parametrize("piece", range(1, 40))
def test_requests_do_not_depend_on_how_the_stream_is_cut(piece: int) -> None:
    first, second, third = fed(STREAM, piece=piece)

    assert (first.method, first.parts, first.body) == ("GET", ("a/b", "c"), b"")
    assert first.query == (("x", "1"), ("y", "a b&"))
    assert (second.method, second.body) == ("POST", b"abc")
    assert (third.method, third.body) == ("PUT", b"abc")
    assert not any(request.is_last for request in (first, second, third))


def test_a_client_that_wants_to_close_is_told_apart() -> None:
    (request,) = fed(head("Connection: close"))

    assert request.is_last


def test_values_of_one_header_are_joined() -> None:
    (request,) = fed(head("Accept: a", "accept:  b "))

    assert request.headers["accept"] == "a, b"


def hostile() -> Iterator[tuple[bytes, HTTPStatus]]:
    bad = HTTPStatus.BAD_REQUEST
    yield b"\x00\x01\x02\x03", bad
    yield b"GET / HTTP/1.1\r\n\r\n", bad  # No Host.
    yield head("Host: y"), bad
    yield b"GET / HTTP/2.0\r\nHost: x\r\n\r\n", HTTPStatus.HTTP_VERSION_NOT_SUPPORTED
    yield b"GET /\r\n\r\n", HTTPStatus.HTTP_VERSION_NOT_SUPPORTED  # HTTP/0.9.
    yield head(target="http://elsewhere/"), bad
    yield b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n", bad
    yield head("Content-Length: 3", "Content-Length: 3") + b"abc", bad
    yield head("Content-Length: 3", "Transfer-Encoding: chunked") + b"0\r\n\r\n", bad
    yield head("Content-Length: +3") + b"abc", bad
    yield head("Accept : a"), bad
    yield head("Accept: a\r\n b"), bad
    yield head("Accept: a\nb"), bad
    yield head("Transfer-Encoding: chunked, identity") + b"0\r\n\r\n", bad
    yield head("Transfer-Encoding: chunked") + b"fffffffffffffffff\r\n", bad
    yield head("Content-Encoding: gzip"), HTTPStatus.UNSUPPORTED_MEDIA_TYPE
    yield head("Content-Length: 101"), HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    chunks = b"1\r\na\r\n" * 101
    yield head("Transfer-Encoding: chunked") + chunks, HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    too_large = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
    yield head("Accept: " + "a" * 400), too_large
    yield head(*(f"X-{number}: 1" for number in range(11))), too_large
    yield b"GET /" + b"a" * 500, too_large
    for path in ("//", "/a//b", "/a/../b", "/a/%2e%2e/b", "/./a", "/a%00b", "/%ff"):
        yield head(target=path), bad
    yield head(target="/a?x=%ff"), bad


@pytest.mark.parametrize(("data", "status"), list(hostile()))
def test_bytes_that_are_no_request_are_refused(data: bytes, status: HTTPStatus) -> None:
    assert refusal(data) == status


def test_a_head_without_an_end_is_bounded_whatever_its_pieces() -> None:
    data = head("A: b")[:-4] + b"c" * 1000

    with pytest.raises(BadRequest, match="400 bytes"):
        fed(data, piece=1)


def test_the_extension_of_a_chunk_is_bounded() -> None:
    data = head("Transfer-Encoding: chunked") + b"1;" + b"x" * 2000

    with pytest.raises(BadRequest, match="100 bytes"):
        fed(data, piece=100)


def test_requests_before_a_bad_one_are_served() -> None:
    requests = Requests(LIMITS)
    stream = requests.feed(head() + b"nonsense\r\n\r\n")

    assert isinstance(next(stream), Request)
    with pytest.raises(BadRequest):
        next(stream)
    assert list(requests.feed(head())) == []


def test_nothing_is_read_behind_an_upgrade() -> None:
    (request,) = fed(head("Connection: upgrade", "Upgrade: websocket") + b"\x81\x00")

    assert request.method == "GET"


def test_h11_reads_what_is_sent() -> None:
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method="GET", target="/", headers=[("Host", "x")]))
    client.send(h11.EndOfMessage())
    client.receive_data(response(HTTPStatus.OK, b"hello", headers={"ETag": '"1"'}))

    answer, data, end = (client.next_event() for _ in range(3))

    assert isinstance(answer, h11.Response)
    assert dict(answer.headers)[b"etag"] == b'"1"'
    assert isinstance(data, h11.Data)
    assert data.data == b"hello"
    assert isinstance(end, h11.EndOfMessage)


def test_a_response_has_the_length_of_its_body_and_head_leaves_it_out() -> None:
    whole = response(HTTPStatus.OK, b"four")

    assert b"Content-Length: 4\r\n" in whole
    assert whole.endswith(b"\r\n\r\nfour")
    assert response(HTTPStatus.OK, b"four", is_head=True) == whole[:-4]


def test_h11_reads_a_stream() -> None:
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method="GET", target="/", headers=[("Host", "x")]))
    client.send(h11.EndOfMessage())
    client.receive_data(stream_head("text/event-stream") + chunk(b"one") + chunk(b"two"))
    client.receive_data(LAST_CHUNK)

    events = [client.next_event() for _ in range(4)]

    assert [bytes(event.data) for event in events if isinstance(event, h11.Data)] == [
        b"one",
        b"two",
    ]
    assert isinstance(events[-1], h11.EndOfMessage)
