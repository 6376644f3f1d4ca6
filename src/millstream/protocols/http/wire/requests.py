"""Splits a stream into HTTP/1.1 requests.

llhttp, inside `httptools`, refuses what could be read in two ways: two lengths, a length beside a
transfer coding, spaces before a colon, folded lines, bare line ends. This module refuses what it
lets pass: a missing or second `Host`, versions other than 1.0 and 1.1, CONNECT, absolute targets,
compressed bodies, heads and bodies beyond their bounds. Format: RFC 9112.

A path is split at `/` before its parts are decoded, so `%2F` belongs to a name and never parts the
path.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from millstream.errors import ProtocolError

CHUNK_EXTENSION_BYTES_MAX = 256
TARGETS_KEPT = 1_000  # Split targets, of so many bytes at most.
KEPT_TARGET_BYTES_MAX = 200
SHOWN_MAX = 100  # Characters of a refused text in an error message.


class Limits(NamedTuple):
    header_bytes_max: int
    headers_max: int
    body_bytes_max: int


class Head(NamedTuple):
    """The part of a request that comes before its body."""

    method: str
    target: str  # As it was sent, with its query.
    headers: Mapping[str, str]


class BodyRules(NamedTuple):
    """How a body is taken: at most so many bytes, whole or in pieces as they come."""

    bytes_max: int
    is_streamed: bool = False


class Continue(tuple[()]):
    """The client waits for `100 Continue` before it sends its body."""


class BodyPiece(NamedTuple):
    """Bytes of a streamed body; empty at its end."""

    data: bytes


class BadRequest(ProtocolError):
    """The bytes are no request that can be served: answer with `status`, then close."""

    def __init__(self, status: HTTPStatus, problem: str) -> None:
        super().__init__(problem)
        self.status = status


class Request:
    """A whole request. Its length is that of its bytes, which the connection counts."""

    __slots__ = (
        "_size",
        "body",
        "headers",
        "is_last",
        "is_streamed",
        "method",
        "parts",
        "query",
        "raw_parts",
        "version",
    )

    def __init__(
        self,
        *,
        method: str,
        parts: tuple[str, ...],
        raw_parts: tuple[str, ...],
        query: tuple[tuple[str, str], ...],
        headers: dict[str, str],
        body: bytes,
        version: str,
        is_last: bool,
        size: int,
        is_streamed: bool = False,
    ) -> None:
        self.method = method
        self.parts = parts  # Of the path, decoded: `/subjects/a%2Fb` is ("subjects", "a/b").
        self.raw_parts = raw_parts  # As they were sent: `a%2Fb`.
        self.query = query
        self.headers = headers  # Names in lower case; values of one name joined by ", ".
        self.body = body
        self.version = version
        self.is_streamed = is_streamed  # The body follows as `BodyPiece`s.
        self.is_last = is_last  # The client closes after this one, or wants the server to.
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __repr__(self) -> str:
        return f"Request({self.method} {self.path})"  # Headers may hold a password.

    @property
    def path(self) -> str:
        return "/" + "/".join(self.parts)


class Requests:
    """Feed it chunks of any size. After a `BadRequest` nothing more can be read from the stream."""

    def __init__(
        self, limits: Limits, body_rules: Callable[[Head], BodyRules] | None = None
    ) -> None:
        """`body_rules` decides about each body once its head is there."""
        self.unfinished_bytes = 0  # Received, and not yet part of a request that was yielded.
        self._limits = limits
        self._body_rules = body_rules
        self._parser = HttpRequestParser(self)
        self._whole: list[Request | Continue | BodyPiece] = []
        self._problem: BadRequest | None = None
        self._is_over = False
        self._begin()

    def feed(self, data: bytes) -> Iterator[Request | Continue | BodyPiece]:
        """Yield whole requests, then raise `BadRequest` if what follows them is none.

        A request with a streamed body comes before its body, the pieces follow.
        """
        if self._is_over:
            return
        self.unfinished_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            # `Upgrade` is answered as a plain request. What follows it may be another protocol.
            self._is_over = True
        except HttpParserError as problem:
            self._refuse(HTTPStatus.BAD_REQUEST, f"not HTTP/1.1: {self._reason(problem)}")
        if self._problem is None and not self._is_over:
            self._check_bounds()
        whole, self._whole = self._whole, []
        yield from whole
        if self._problem is not None:
            self._is_over = True
            raise self._problem

    @property
    def has_begun(self) -> bool:
        """Whether a part of a request has come."""
        return self._url_bytes > 0 or bool(self._headers)

    @property
    def is_in_body(self) -> bool:
        return self._is_in_body

    # -- callbacks of the parser -------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._problem is None and self._is_closing:
            self._refuse(HTTPStatus.BAD_REQUEST, "bytes behind the last request")
        self._begin()

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._url_bytes = len(self._url)
        self._bound_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._bound_head(len(name) + len(value) + 4)
        if self._problem is not None:
            return
        self._header_count += 1
        if self._header_count > self._limits.headers_max:
            self._refuse(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
                f"more than {self._limits.headers_max} headers",
            )
            return
        key, text = name.decode("latin-1").lower(), value.decode("latin-1").strip()
        if key == "host" and key in self._headers:
            self._refuse(HTTPStatus.BAD_REQUEST, "two Host headers")
        known = self._headers.get(key)
        self._headers[key] = text if known is None else f"{known}, {text}"

    def on_headers_complete(self) -> None:
        self._is_in_body = True
        if self._problem is None:
            self._check_head()
        if self._problem is None and self._is_streamed:
            self._is_closing = not self._parser.should_keep_alive()
            self._emit(b"")
        if self._problem is None and self._headers.get("expect", "").lower() == "100-continue":
            self._whole.append(Continue())

    def on_chunk_header(self) -> None:
        if not self._is_streamed:
            self._body_bytes += 1  # Chunks of nothing count as well.
            self._bound_body()

    def on_body(self, body: bytes) -> None:
        if self._is_streamed:
            if self._problem is None:
                self._whole.append(BodyPiece(body))
                self.unfinished_bytes = 0
            return
        self._body_bytes += len(body)
        self._bound_body()
        if self._problem is None:
            self._body.append(body)

    def on_message_complete(self) -> None:
        if self._problem is not None:
            return
        if self._is_streamed:
            self._whole.append(BodyPiece(b""))
        else:
            self._is_closing = not self._parser.should_keep_alive()
            self._emit(b"".join(self._body))
        self._begin()
        self.unfinished_bytes = 0

    # -- parts -------------------------------------------------------------------------------------

    _is_closing = False

    def _emit(self, body: bytes) -> None:
        split = (
            split_target if len(self._url) <= KEPT_TARGET_BYTES_MAX else split_target.__wrapped__
        )
        try:
            raw, parts, pairs = split(self._url)
        except BadRequest as problem:
            self._problem = problem
            return
        self._whole.append(
            Request(
                method=self._parser.get_method().decode("latin-1"),
                parts=parts,
                raw_parts=raw,
                query=pairs,
                headers=self._headers,
                body=body,
                version=self._parser.get_http_version(),
                is_last=self._is_closing,
                size=self._head_bytes + self._body_bytes,
                is_streamed=self._is_streamed,
            )
        )

    def _begin(self) -> None:
        self._is_streamed = False
        self._body_bytes_max = self._limits.body_bytes_max
        self._url = b""
        self._url_bytes = 0
        self._headers: dict[str, str] = {}
        self._header_count = 0
        self._head_bytes = 0
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._is_in_body = False

    def _check_head(self) -> None:
        version = self._parser.get_http_version()
        method = self._parser.get_method().decode("latin-1")
        length = self._headers.get("content-length", "0")
        coding = self._headers.get("content-encoding", "identity").lower()
        if version not in {"1.0", "1.1"}:
            self._refuse(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, f"HTTP/{version}, not 1.1")
        elif version == "1.1" and "host" not in self._headers:
            self._refuse(HTTPStatus.BAD_REQUEST, "no Host header")
        elif method == "CONNECT" or not self._url.startswith(b"/"):
            shown = self._url[:SHOWN_MAX].decode("latin-1")
            self._refuse(HTTPStatus.BAD_REQUEST, f"{method} {shown}: the target is not a path")
        elif coding != "identity":
            self._refuse(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"a body in {coding[:SHOWN_MAX]}")
        else:
            self._check_body(method, length)

    def _check_body(self, method: str, length: str) -> None:
        if self._body_rules is not None:
            target = self._url.decode("ascii", "replace")
            rules = self._body_rules(Head(method, target, self._headers))
            self._body_bytes_max, self._is_streamed = rules
        if not self._is_streamed and length.isdigit() and int(length) > self._body_bytes_max:
            self._refuse_body()

    def _bound_head(self, count: int) -> None:
        self._head_bytes += count
        if self._head_bytes > self._limits.header_bytes_max:
            self._refuse_head()

    def _bound_body(self) -> None:
        if self._body_bytes > self._body_bytes_max:
            self._refuse_body()

    def _check_bounds(self) -> None:
        """A head without an end, or the extension of a chunk, is nowhere but in the parser.

        What ends within the bytes that came at once needs no bound: it is held nowhere.
        """
        if not self._is_in_body and self.unfinished_bytes > self._limits.header_bytes_max:
            self._refuse_head()
        spent = self._head_bytes + self._body_bytes + CHUNK_EXTENSION_BYTES_MAX
        overhead = self._limits.header_bytes_max + 2 * self._body_bytes
        if self.unfinished_bytes > spent + overhead:
            self._refuse_body()

    def _refuse_head(self) -> None:
        most = self._limits.header_bytes_max
        self._refuse(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"a head of more than {most} bytes"
        )

    def _refuse_body(self) -> None:
        most = self._body_bytes_max
        self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body of more than {most} bytes")

    def _refuse(self, status: HTTPStatus, problem: str) -> None:
        if self._problem is None:
            self._problem = BadRequest(status, problem)
            self._body = []

    def _reason(self, problem: HttpParserError) -> str:
        return str(problem).splitlines()[0][:SHOWN_MAX] if str(problem) else "bad bytes"


def path_parts(target: str) -> tuple[str, ...]:
    """The decoded parts of a path; `BadRequest` for one that could be read in two ways."""
    return tuple(_decoded(part, target) for part in raw_parts(target))


@lru_cache(maxsize=TARGETS_KEPT)
def split_target(
    url: bytes,
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[tuple[str, str], ...]]:
    """The parts of a target as they were sent, decoded, and its query; raises `BadRequest`.

    Clients ask for the same few targets: splitting one took a tenth of a small request.
    """
    target, _, query = url.decode("ascii", "replace").partition("?")
    raw = raw_parts(target)
    return raw, tuple(_decoded(part, target) for part in raw), query_pairs(query)


def raw_parts(target: str) -> tuple[str, ...]:
    """The parts of a path as they were sent."""
    parts = target.split("/")[1:]
    if parts and parts[-1] == "":
        parts.pop()  # A slash at the end says nothing.
    return tuple(parts)


def decoded(part: str) -> str:
    """A part, or some of one, that `path_parts` has checked."""
    return unquote_to_bytes(part).decode("utf-8")


def _decoded(part: str, target: str) -> str:
    try:
        text = unquote_to_bytes(part).decode("utf-8")
    except UnicodeDecodeError:
        text = ""
    if text in {"", ".", ".."} or "\0" in text:
        shown = target[:SHOWN_MAX]
        raise BadRequest(HTTPStatus.BAD_REQUEST, f"{shown!r} has an empty or relative part")
    return text


def query_pairs(query: str) -> tuple[tuple[str, str], ...]:
    """Names and values of a query in their order; a name without `=` has an empty value."""
    pairs: list[tuple[str, str]] = []
    for item in query.split("&") if query else ():
        name, _, value = item.replace("+", " ").partition("=")
        try:
            pair = tuple(unquote_to_bytes(text).decode("utf-8") for text in (name, value))
        except UnicodeDecodeError:
            raise BadRequest(HTTPStatus.BAD_REQUEST, "a query that is not UTF-8") from None
        pairs.append((pair[0], pair[1]))
    return tuple(pairs)
