"""Requests and responses as they stand in a frame: a header, then one message.

Decodes a frame to a request and encodes a response to chunks; `frames` cuts the frames. A request
header says which API and version follows; a response header only repeats the number of the request,
so the version of a response is that of its request.
"""

from collections.abc import Collection
from functools import cache
from struct import Struct, error
from typing import NamedTuple

from millstream.codec.primitives import read_string, write_string
from millstream.errors import ProtocolError
from millstream.kafka_wire.apis.table import (
    API_VERSIONS,
    APIS,
    Api,
    unsupported_api_versions,
)
from millstream.kafka_wire.frames import LENGTH
from millstream.kafka_wire.readers import Reader, decode, read_tags, reader_of
from millstream.kafka_wire.schema import Chunk, Message
from millstream.kafka_wire.writers import Splices, Writer, splice, writer_of
from millstream.model import Buffer

_PREFIX = Struct(">hhi")  # API key, version, correlation id: in front of every request, for ever.
_SHORT = Struct(">h")
_CORRELATION_ID = Struct(">i")
_RESPONSE_START = Struct(">ii")  # Frame length and correlation id.


class RequestHeader(NamedTuple):
    """The header of a request. `correlation_id` goes back with the response."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None = None


class UnsupportedRequest(ProtocolError):
    """A request that we cannot read: no such API here, or not in that version.

    `refusal` has the only answer that Kafka knows; where there is none, close the connection.
    """

    def __init__(self, header: RequestHeader) -> None:
        api = APIS.get(header.api_key)
        name = f"API {header.api_key}" if api is None else api.name
        super().__init__(f"{name} v{header.api_version} is not served here")
        self.header = header


def decode_request(frame: Buffer, served: Collection[int] = APIS) -> tuple[RequestHeader, Message]:
    """Read the request that fills `frame`; records in it are views of the frame.

    Raises `UnsupportedRequest`, or another `ProtocolError` if the bytes break the rules.
    """
    try:
        key, version, correlation_id = _PREFIX.unpack_from(frame)
    except error:
        raise ProtocolError(f"frame of {len(frame)} bytes is too short for a request") from None
    api = APIS.get(key)
    if api is None or key not in served or not api.first <= version <= api.last:
        raise UnsupportedRequest(RequestHeader(key, version, correlation_id))
    client_id, at = _read_client_id(frame)
    if version >= api.flexible_since:
        if frame[at : at + 1] == b"\0":
            at += 1  # No tags, as every client known to us has it.
        else:
            _, at = read_tags(frame, at)
    reader, name = _request_reader(key, version)
    header = RequestHeader(key, version, correlation_id, client_id)
    return header, decode(reader, frame, at, name)


def encode_response(header: RequestHeader, response: Message) -> list[Chunk]:
    """Write the response to a request, frame length included; records in it are not copied."""
    api = APIS[header.api_key]
    assert type(response) is api.response
    out = bytearray(_RESPONSE_START.pack(0, header.correlation_id))
    writer, has_tags = _response_writer(api.key, header.api_version)
    if has_tags:
        out.append(0)
    return _finish(out, writer, response)


def refusal(problem: UnsupportedRequest) -> list[Chunk] | None:
    """The answer to an unsupported ApiVersions; None for other requests: close the connection."""
    if problem.header.api_key != API_VERSIONS:
        return None
    # The client starts over with a version it finds in this answer (KIP-511), so v0 it must be.
    return encode_response(problem.header._replace(api_version=0), unsupported_api_versions())


# -- the client's side -----------------------------------------------------------------------------


def encode_request(header: RequestHeader, request: Message) -> list[Chunk]:
    """Write a request, frame length included."""
    api = APIS[header.api_key]
    assert type(request) is api.request
    out = bytearray(LENGTH.size)
    out += _PREFIX.pack(header.api_key, header.api_version, header.correlation_id)
    write_string(out, header.client_id)  # In the old encoding, even in front of flexible versions.
    is_flexible = api.is_flexible(header.api_version)
    if is_flexible:
        out.append(0)
    return _finish(
        out, writer_of(api.request, header.api_version, is_flexible=is_flexible), request
    )


def decode_response(api: Api, version: int, frame: Buffer) -> tuple[int, Message]:
    """Read the response that fills `frame`; return the correlation id with it."""
    if len(frame) < _CORRELATION_ID.size:
        raise ProtocolError(f"frame of {len(frame)} bytes is too short for a response")
    (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
    at = _CORRELATION_ID.size
    if api.response_header_version(version) == 1:
        _, at = read_tags(frame, at)
    reader = reader_of(api.response, version, is_flexible=api.is_flexible(version))
    return correlation_id, decode(reader, frame, at, f"{api.name} response v{version}")


# -- parts -----------------------------------------------------------------------------------------


def _finish(out: bytearray, writer: Writer, message: Message) -> list[Chunk]:
    splices: Splices = []
    writer(message, out, splices)
    if not splices:
        LENGTH.pack_into(out, 0, len(out) - LENGTH.size)
        return [out]
    spliced = sum([size for _, size, _ in splices])
    LENGTH.pack_into(out, 0, len(out) + spliced - LENGTH.size)
    return splice(out, splices)


def _read_client_id(frame: Buffer) -> tuple[str | None, int]:
    """The same as `read_string`, in one step where nothing is wrong: each request has one."""
    start = _PREFIX.size + _SHORT.size
    if len(frame) >= start:
        end = start + _SHORT.unpack_from(frame, _PREFIX.size)[0]
        if start <= end <= len(frame):
            try:
                return str(frame[start:end], "utf-8"), end
            except UnicodeDecodeError:
                pass  # `read_string` says which bytes.
    return read_string(frame, _PREFIX.size)


@cache
def _request_reader(key: int, version: int) -> tuple[Reader, str]:
    """The reader of a request, and the request's name in errors."""
    api = APIS[key]
    reader = reader_of(api.request, version, is_flexible=api.is_flexible(version))
    return reader, f"{api.name} request v{version}"


@cache
def _response_writer(key: int, version: int) -> tuple[Writer, bool]:
    """The writer of a response, and whether its header has tags."""
    api = APIS[key]
    writer = writer_of(api.response, version, is_flexible=api.is_flexible(version))
    return writer, api.response_header_version(version) == 1
