"""Avro and Protobuf values whose schemas are in a registry that speaks Confluent's REST.

Owns the few requests and the frame: a zero byte, the number of the schema, the bytes. A schema is
registered when the first value is written, and that of a value is fetched when the first one is
read; both are remembered. The libraries of the formats are imported when a serde is made.
"""

import base64
import http.client
import importlib
import json
import struct
import threading
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Mapping
from io import BytesIO
from typing import Any
from urllib.parse import quote

from millstream.client.errors import BadData, NotSupported, Refused, Unreachable
from millstream.client.serde import Serde

TIMEOUT_S = 10.0
SCHEMAS_KEPT_MAX = 1_000
ANSWER_BYTES_MAX = 2**24

_FRAME = struct.Struct(">bi")
_MAGIC = 0
_MEDIA = "application/vnd.schemaregistry.v1+json"


class Registry:
    """`Registry("http://localhost:8081")`. Threads may share it."""

    def __init__(
        self, url: str, *, user: str = "", password: str = "", timeout_s: float = TIMEOUT_S
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise Refused(f"{url!r} is no address of a registry, such as http://localhost:8081")
        self._url = url.rstrip("/")
        self._timeout_s = timeout_s
        self._headers = {"Accept": _MEDIA, "Content-Type": _MEDIA}
        if user:
            words = base64.b64encode(f"{user}:{password}".encode()).decode()
            self._headers["Authorization"] = f"Basic {words}"
        self._lock = threading.Lock()
        self._schemas: dict[int, str] = {}

    def avro(self, schema: str | Mapping[str, Any], *, subject: str) -> Serde:
        """Values as dicts. `subject` is the schema's name, by custom `<topic>-value`.

        What was written with another version of the schema is read as this one, where Avro's rules
        allow it.
        """
        return _Avro(self, schema if isinstance(schema, str) else json.dumps(schema), subject)

    def protobuf(self, message: type, *, subject: str) -> Serde:
        """Values as instances of a class that protoc generated, all of whose file stands alone."""
        return _Protobuf(self, message, subject)

    def register(self, subject: str, schema: str, kind: str) -> int:
        """The number of a schema under a subject, which is new or known."""
        body = {"schema": schema, "schemaType": kind}
        answer = self._ask(f"/subjects/{quote(subject, safe='')}/versions", body)
        return _number(answer, "id")

    def schema(self, number: int) -> str:
        """The text of a schema by its number; asked for once."""
        with self._lock:
            if number in self._schemas:
                return self._schemas[number]
        text = self._ask(f"/schemas/ids/{number}").get("schema")
        if not isinstance(text, str):
            raise Refused(f"the registry knows schema {number} and does not say what it is")
        with self._lock:
            if len(self._schemas) >= SCHEMAS_KEPT_MAX:
                self._schemas.clear()
            self._schemas[number] = text
        return text

    # What JSON holds is known when it is there.
    def _ask(self, path: str, body: Mapping[str, str] | None = None) -> Mapping[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, self._headers)
        try:
            with urllib.request.urlopen(request, timeout=self._timeout_s) as answer:
                return _object(answer.read(ANSWER_BYTES_MAX))
        except urllib.error.HTTPError as problem:
            with problem:
                said = _said(problem.read(ANSWER_BYTES_MAX)) or problem.reason
            raise Refused(f"the registry refuses: {said}", code=str(problem.code)) from None
        except (OSError, http.client.HTTPException) as problem:
            reason = getattr(problem, "reason", problem)
            raise Unreachable(f"no registry answers at {self._url}: {reason}") from problem


# The values of a serde are of any type: that is what it is for.
class _Framed(ABC):
    """A serde for values behind the number of their schema."""

    def __init__(self, registry: Registry, subject: str, schema: str, kind: str) -> None:
        self._registry = registry
        self._schema = subject, schema, kind
        self._number: int | None = None  # Not registered yet.

    def encode(self, value: Any) -> bytes:
        spelled = self._spell(value)
        if self._number is None:
            self._number = self._registry.register(*self._schema)
        return _FRAME.pack(_MAGIC, self._number) + spelled

    def decode(self, data: bytes) -> Any:
        if len(data) < _FRAME.size or data[0] != _MAGIC:
            raise BadData("it does not begin with the number of a schema")
        _, number = _FRAME.unpack_from(data)
        return self._read(number, data[_FRAME.size :])

    @abstractmethod
    def _spell(self, value: Any) -> bytes: ...

    @abstractmethod
    def _read(self, number: int, data: bytes) -> Any: ...


class _Avro(_Framed):
    def __init__(self, registry: Registry, schema: str, subject: str) -> None:
        super().__init__(registry, subject, schema, "AVRO")
        self._library = _imported("fastavro", "avro")
        self._mine = self._parsed(schema)
        self._theirs: dict[int, Any] = {}  # What values were written with, by its number.

    def _spell(self, value: Any) -> bytes:
        out = BytesIO()
        self._library.schemaless_writer(out, self._mine, value)
        return out.getvalue()

    def _read(self, number: int, data: bytes) -> Any:
        theirs = self._theirs.get(number)
        if theirs is None:
            if len(self._theirs) >= SCHEMAS_KEPT_MAX:
                self._theirs.clear()
            theirs = self._theirs[number] = self._parsed(self._registry.schema(number))
        source = BytesIO(data)
        value = self._library.schemaless_reader(source, theirs, self._mine)
        if source.tell() != len(data):
            raise BadData(f"{len(data) - source.tell()} bytes are left behind the value")
        return value

    def _parsed(self, schema: str) -> Any:
        try:
            return self._library.parse_schema(json.loads(schema))
        except Exception as problem:  # Whatever the library thinks of it.
            raise Refused(f"that is no Avro schema: {problem}") from problem


class _Protobuf(_Framed):
    # protoc's classes have no type of their own that says what they have.
    def __init__(self, registry: Registry, message: Any, subject: str) -> None:
        _imported("google.protobuf", "protobuf")
        descriptor = getattr(message, "DESCRIPTOR", None)
        if descriptor is None:
            raise Refused(f"{message!r} is no class that protoc generated")
        others = [one.name for one in descriptor.file.dependencies]
        if any(not name.startswith("google/protobuf/") for name in others):
            raise NotSupported(f"{descriptor.file.name} imports {others}: it must stand alone.")
        schema = base64.b64encode(descriptor.file.serialized_pb).decode()
        super().__init__(registry, subject, schema, "PROTOBUF")
        self._message = message
        self._path = _spell_path(_path(descriptor))

    def _spell(self, value: Any) -> bytes:
        if not isinstance(value, self._message):
            raise TypeError(f"a {type(value).__name__} is not a {self._message.__name__}")
        spelled: bytes = value.SerializeToString()
        return self._path + spelled

    def _read(self, number: int, data: bytes) -> Any:
        path = b"\0" if data[:1] == b"\0" else data[: len(self._path)]
        if path != self._path:
            raise BadData(f"it is another message of schema {number}")
        return self._message.FromString(data[len(path) :])


def _path(descriptor: Any) -> list[int]:
    """Which message of its file it is: an index, and for a nested one those of its outer ones."""
    outer = descriptor.containing_type
    if outer is None:
        return [list(descriptor.file.message_types_by_name).index(descriptor.name)]
    return [*_path(outer), [one.name for one in outer.nested_types].index(descriptor.name)]


def _spell_path(path: list[int]) -> bytes:
    """As zigzag varints behind their count; the first message of a file is a single zero."""
    if path == [0]:
        return b"\0"
    return b"".join(_varint(number << 1) for number in (len(path), *path))


def _varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _imported(module: str, extra: str) -> Any:  # A module.
    try:
        return importlib.import_module(module)
    except ImportError:
        raise NotSupported(f"this needs a library: pip install 'millstream[{extra}]'.") from None


def _object(data: bytes) -> Mapping[str, Any]:
    try:
        parsed = json.loads(data)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        raise Refused("what answers there is no schema registry")
    return parsed


def _said(data: bytes) -> str:
    try:
        return str(_object(data).get("message", ""))
    except Refused:
        return ""


def _number(answer: Mapping[str, Any], name: str) -> int:
    number = answer.get(name)
    if not isinstance(number, int):
        raise Refused(f"the registry's answer has no {name}")
    return number
