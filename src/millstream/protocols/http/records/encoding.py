"""Records that are sent as JSON and stored as values of a schema, behind its frame."""

from functools import partial
from http import HTTPStatus
from typing import Annotated, Literal

import msgspec

from millstream.engine.schemas.encoding import Encoding
from millstream.engine.schemas.parsing import LATEST
from millstream.protocols.http.calls import Call
from millstream.protocols.http.problems import HttpProblem
from millstream.protocols.http.records.shown import SentBytes, json_of

INLINE_BYTES_MAX = 16 * 1024  # A longer text is encoded on a thread: a millisecond and more.

SchemaId = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]


class SchemaChoice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A schema by its id, or a version of a subject: by default the latest of the topic's own."""

    id: SchemaId | None = None
    subject: str | None = None
    version: SchemaId | Literal["latest"] = "latest"
    message: str = ""  # Of a Protobuf file; by default its first.


async def framed_bytes(
    call: Call,
    topic: str,
    part: Literal["key", "value"],
    choice: SchemaChoice | int,
    sent: SentBytes,
    place: str,
) -> bytes | None:
    """The bytes of a part that was sent as JSON; null stays null. Raises 422 for another value."""
    if sent is None:
        return None
    if isinstance(choice, int):
        choice = SchemaChoice(id=choice)
    encoding = await find_encoding(call, topic, part, choice, place)
    return await encoded(call, encoding, json_of(sent, place), place)


async def find_encoding(
    call: Call, topic: str, part: str, choice: SchemaChoice, place: str
) -> Encoding:
    schemas = call.services.schemas
    if schemas is None:
        raise HttpProblem(
            HTTPStatus.NOT_FOUND, "registry_off", "this node has no registry (registry.enabled)"
        )
    try:
        return await schemas.encoding(
            call.session,
            f"{topic}-{part}" if choice.subject is None else choice.subject,
            number=choice.id or 0,
            version=LATEST if choice.version == "latest" else choice.version,
            message=choice.message,
        )
    except ValueError as problem:
        raise _not_of_schema(f"{place}: {problem}", place) from None


async def encoded(call: Call, encoding: Encoding, text: bytes, place: str) -> bytes:
    work = partial(encoding.encode, text)
    try:
        return work() if len(text) <= INLINE_BYTES_MAX else await call.services.threads.run(work)
    except ValueError as problem:
        raise _not_of_schema(f"{place}: not of schema {encoding.id}: {problem}", place) from None


def _not_of_schema(message: str, place: str) -> HttpProblem:
    return HttpProblem(HTTPStatus.UNPROCESSABLE_ENTITY, "not_of_schema", message, fields=(place,))
