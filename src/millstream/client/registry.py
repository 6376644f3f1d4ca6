"""Avro and Protobuf values whose schemas are in a registry that speaks Confluent's REST.

Owns the frame: a zero byte, the id of the schema, the bytes. A schema is registered when the first
value is written, and the schema of a value is fetched when the first such value is read; both are
kept. The two requests go through confluent-kafka's `SchemaRegistryClient` where the program has
one, which has more ways to log in, and else over HTTP with a user and a password (decision 18).
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
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from millstream.client.errors import BadData, ClientError, NotSupported, Refused, Unreachable
from millstream.client.serde import Serde

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient

TIMEOUT_S = 10.0
SCHEMAS_KEPT_MAX = 1_000
ANSWER_BYTES_MAX = 2**24

_FRAME = struct.Struct(">bi")
_MAGIC = 0
_MEDIA = "application/vnd.schemaregistry.v1+json"


class Registry:
    """`Registry("http://localhost:8081")`, or `Registry(SchemaRegistryClient(...))`.

    Threads may share it. `user`, `password` and `timeout_s` are for an address; a
    `SchemaRegistryClient` has its own.
    """

    def __init__(
        self,
        url: "str | SchemaRegistryClient",
        *,
        user: str = "",
        password: str = "",
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._client: _HttpClient | _ConfluentClient
        if isinstance(url, str):
            self._client = _HttpClient(url, user=user, password=password, timeout_s=timeout_s)
        else:
            self._client = _ConfluentClient(url)
        self._lock = threading.Lock()
        self._schemas: dict[int, str] = {}

    def avro(self, schema: str | Mapping[str, Any], *, subject: str) -> Serde:
        """Values as dicts. `subject` is the schema's name, by custom `<topic>-value`.

        Values that were written with another version of the schema are read as this one, where
        Avro's rules allow it.
        """
        return _Avro(self, schema if isinstance(schema, str) else json.dumps(schema), subject)

    def protobuf(self, message: type, *, subject: str) -> Serde:
        """Values as instances of a class that protoc generated, all of whose file stands alone."""
        return _Protobuf(self, message, subject)

    def register(self, subject: str, schema: str, kind: str) -> int:
        """The id of a schema under a subject; the schema may be registered already."""
        return self._client.register(subject, schema, kind)

    def schema(self, number: int) -> str:
        """The text of a schema by its id; fetched once."""
        with self._lock:
            if number in self._schemas:
                return self._schemas[number]
        text = self._client.schema(number)
        with self._lock:
            if len(self._schemas) >= SCHEMAS_KEPT_MAX:
                self._schemas.clear()
            self._schemas[number] = text
        return text


class _ConfluentClient:
    """The two requests through confluent-kafka's client."""

    def __init__(self, client: "SchemaRegistryClient") -> None:
        for name in ("register_schema", "get_schema"):
            if not callable(getattr(client, name, None)):
                raise Refused(
                    f"{client!r} is neither the address of a registry nor a SchemaRegistryClient"
                )
        self._client = client

    def register(self, subject: str, schema: str, kind: str) -> int:
        # A program that has their client has their schemas; this client needs neither to be there.
        kinds = importlib.import_module("confluent_kafka.schema_registry")
        try:
            return self._client.register_schema(subject, kinds.Schema(schema, kind))
        except Exception as problem:
            raise _typed(problem) from problem

    def schema(self, number: int) -> str:
        try:
            text = self._client.get_schema(number).schema_str
        except Exception as problem:
            raise _typed(problem) from problem
        if text is None:
            raise Refused(f"the registry knows schema {number} and has no text of it")
        return text


def _typed(problem: Exception) -> ClientError:
    """Our error for theirs: their HTTP library raises its own when no registry answers."""
    status = getattr(problem, "http_status_code", None)
    if status is None:
        return Unreachable(f"the registry does not answer: {problem}")
    return Refused(f"the registry refuses: {problem}", code=str(status))


class _HttpClient:
    """The two requests over HTTP."""

    def __init__(self, url: str, *, user: str, password: str, timeout_s: float) -> None:
        if not url.startswith(("http://", "https://")):
            raise Refused(f"{url!r} is no address of a registry, such as http://localhost:8081")
        self._url = url.rstrip("/")
        self._timeout_s = timeout_s
        self._headers = {"Accept": _MEDIA, "Content-Type": _MEDIA}
        if user:
            login = base64.b64encode(f"{user}:{password}".encode()).decode()
            self._headers["Authorization"] = f"Basic {login}"

    def register(self, subject: str, schema: str, kind: str) -> int:
        body = {"schema": schema, "schemaType": kind}
        answer = self._call(f"/subjects/{quote(subject, safe='')}/versions", body)
        number = answer.get("id")
        if not isinstance(number, int):
            raise Refused("the registry's answer has no id")
        return number

    def schema(self, number: int) -> str:
        text = self._call(f"/schemas/ids/{number}").get("schema")
        if not isinstance(text, str):
            raise Refused(f"the registry knows schema {number} and has no text of it")
        return text

    # Any: JSON.
    def _call(self, path: str, body: Mapping[str, str] | None = None) -> Mapping[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, self._headers)
        try:
            with urllib.request.urlopen(request, timeout=self._timeout_s) as answer:
                return _object(answer.read(ANSWER_BYTES_MAX))
        except urllib.error.HTTPError as problem:
            with problem:
                reason = _message(problem.read(ANSWER_BYTES_MAX)) or problem.reason
            raise Refused(f"the registry refuses: {reason}", code=str(problem.code)) from None
        except (OSError, http.client.HTTPException) as problem:
            cause = getattr(problem, "reason", problem)
            raise Unreachable(f"no registry answers at {self._url}: {cause}") from problem


# Any: a serde takes values of any type.
class _Framed(ABC):
    """A serde for values behind the id of their schema."""

    def __init__(self, registry: Registry, subject: str, schema: str, kind: str) -> None:
        self._registry = registry
        self._schema = subject, schema, kind
        self._number: int | None = None  # Not registered yet.

    def encode(self, value: Any) -> bytes:
        encoded = self._encode(value)
        if self._number is None:
            self._number = self._registry.register(*self._schema)
        return _FRAME.pack(_MAGIC, self._number) + encoded

    def decode(self, data: bytes) -> Any:
        if len(data) < _FRAME.size or data[0] != _MAGIC:
            raise BadData("it does not begin with the id of a schema")
        _, number = _FRAME.unpack_from(data)
        return self._read(number, data[_FRAME.size :])

    @abstractmethod
    def _encode(self, value: Any) -> bytes: ...

    @abstractmethod
    def _read(self, number: int, data: bytes) -> Any: ...


class _AvroSchema(NamedTuple):
    parsed: Any  # As the library has it.
    # Only of types whose values may nest without end: the library follows them by calls in C, and
    # a linked list of 5,000 entries ends the process.
    check: Callable[[bytes], None] | None


class _Avro(_Framed):
    def __init__(self, registry: Registry, schema: str, subject: str) -> None:
        super().__init__(registry, subject, schema, "AVRO")
        self._library = _imported("fastavro", "avro")
        self._schema_read = self._parsed(schema)
        self._written: dict[int, _AvroSchema] = {}  # Those that values were written with, by id.

    def _encode(self, value: Any) -> bytes:
        if self._schema_read.check is not None:
            _check_nesting(value)
        out = BytesIO()
        self._library.schemaless_writer(out, self._schema_read.parsed, value)
        return out.getvalue()

    def _read(self, number: int, data: bytes) -> Any:
        writer = self._written.get(number)
        if writer is None:
            if len(self._written) >= SCHEMAS_KEPT_MAX:
                self._written.clear()
            writer = self._written[number] = self._parsed(self._registry.schema(number))
        if writer.check is not None:
            try:
                writer.check(data)
            except ValueError as problem:
                raise BadData(f"it is no value of schema {number}: {problem}") from None
        source = BytesIO(data)
        value = self._library.schemaless_reader(source, writer.parsed, self._schema_read.parsed)
        if source.tell() != len(data):
            raise BadData(f"{len(data) - source.tell()} bytes are left behind the value")
        return value

    def _parsed(self, schema: str) -> _AvroSchema:
        # Loaded here: a program without Avro needs neither.
        from millstream.schemas.avro.types import parse
        from millstream.schemas.avro.values import nesting_check

        try:
            parsed = self._library.parse_schema(json.loads(schema))
            return _AvroSchema(parsed, nesting_check(parse(schema, {})[0]))
        except Exception as problem:  # The library raises many kinds.
            raise Refused(f"that is no Avro schema: {problem}") from problem


def _check_nesting(value: Any) -> None:
    """Raise `BadData` for a value that nests too deeply to be written."""
    from millstream.schemas.avro.values import NESTING_MAX

    layer, depth = [value], 0
    while layer:
        depth += 1
        if depth > NESTING_MAX:
            raise BadData(f"it is nested deeper than {NESTING_MAX} levels")
        layer = [
            inner
            for outer in layer
            if isinstance(outer, Mapping | list | tuple)
            for inner in (outer.values() if isinstance(outer, Mapping) else outer)
        ]


class _Protobuf(_Framed):
    # Any: protoc's classes have no common type with these attributes.
    def __init__(self, registry: Registry, message: Any, subject: str) -> None:
        _imported("google.protobuf", "protobuf")
        descriptor = getattr(message, "DESCRIPTOR", None)
        if descriptor is None:
            raise Refused(f"{message!r} is no class that protoc generated")
        imports = [file.name for file in descriptor.file.dependencies]
        if any(not name.startswith("google/protobuf/") for name in imports):
            raise NotSupported(f"{descriptor.file.name} imports {imports}: it must stand alone.")
        schema = base64.b64encode(descriptor.file.serialized_pb).decode()
        super().__init__(registry, subject, schema, "PROTOBUF")
        self._message = message
        self._path = _encode_path(_path(descriptor))

    def _encode(self, value: Any) -> bytes:
        if not isinstance(value, self._message):
            raise TypeError(f"a {type(value).__name__} is not a {self._message.__name__}")
        encoded: bytes = value.SerializeToString()
        return self._path + encoded

    def _read(self, number: int, data: bytes) -> Any:
        path = b"\0" if data[:1] == b"\0" else data[: len(self._path)]
        if path != self._path:
            raise BadData(f"it is another message of schema {number}")
        return self._message.FromString(data[len(path) :])


def _path(descriptor: Any) -> list[int]:
    """The index of a message in its file; of a nested one, behind the indexes of its outer ones."""
    outer = descriptor.containing_type
    if outer is None:
        return [list(descriptor.file.message_types_by_name).index(descriptor.name)]
    return [*_path(outer), [nested.name for nested in outer.nested_types].index(descriptor.name)]


def _encode_path(path: list[int]) -> bytes:
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
        raise Refused("the server that answers there is no schema registry")
    return parsed


def _message(data: bytes) -> str:
    try:
        return str(_object(data).get("message", ""))
    except Refused:
        return ""
