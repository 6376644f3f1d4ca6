"""From values to bytes and back: by name, by type, or by a pair of your own.

Owns the choice. `None` never reaches a serde: it is a record without key or value, which compacted
topics read as a deletion. Pydantic and msgspec are imported when a type of theirs is used.
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass
from typing import Any, Protocol, runtime_checkable

from millstream.client.errors import BadData, NotSupported, Refused

_LONG = struct.Struct(">q")


# Any: a serde takes values of any type.
@runtime_checkable
class Serde(Protocol):
    def encode(self, value: Any) -> bytes: ...
    def decode(self, data: bytes) -> Any: ...


SerdeSpec = str | type | Serde


@dataclass(frozen=True, slots=True)
class _Pair:
    """A serde made of two functions."""

    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]


def _raw(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise TypeError(f"a {type(value).__name__} is not bytes or str; set_serde('json') takes it")


def _text(value: Any) -> bytes:
    if not isinstance(value, str):
        raise TypeError(f"a {type(value).__name__} is not a str")
    return value.encode()


def _json_encode(value: Any) -> bytes:
    import msgspec

    return msgspec.json.encode(value)


def _json_decode(data: bytes) -> Any:
    import msgspec

    return msgspec.json.decode(data)


def _whole(data: bytes) -> int:
    (value,) = _LONG.unpack(data)
    return int(value)


# `int` is as Java's LongSerializer writes it: eight bytes, the high ones first.
BYTES = _Pair(_raw, bytes)
BUILT_IN: dict[str, Serde] = {
    "bytes": BYTES,
    "string": _Pair(_text, bytes.decode),
    "json": _Pair(_json_encode, _json_decode),
    "int": _Pair(_LONG.pack, _whole),
}
_WITH_A_REGISTRY = ("avro", "protobuf", "jsonschema")


class Serdes:
    """Which serde is for which topic, keys and values apart. One per client."""

    def __init__(self) -> None:
        self._named = dict(BUILT_IN)
        self._keys: dict[str | None, Serde] = {None: BYTES}
        self._values: dict[str | None, Serde] = {None: BYTES}

    def register(self, name: str, serde: Serde) -> None:
        """Make `serde` known under a name of its own."""
        if name in BUILT_IN or name in _WITH_A_REGISTRY:
            raise Refused(f"the serde {name!r} is built in; give yours another name")
        self._named[name] = self.resolve(serde)

    def set(
        self, value: SerdeSpec | None, *, key: SerdeSpec | None, topic: str | None = None
    ) -> None:
        if value is not None:
            self._values[topic] = self.resolve(value)
        if key is not None:
            self._keys[topic] = self.resolve(key)

    def resolve(self, spec: SerdeSpec) -> Serde:
        if isinstance(spec, str):
            return self._by_name(spec)
        if isinstance(spec, type):
            return for_type(spec)
        if isinstance(spec, Serde):
            return spec
        raise Refused(f"{spec!r} is no serde: it needs encode(value) and decode(bytes)")

    def with_choice(self, value: SerdeSpec | None, key: SerdeSpec | None) -> "Serdes":
        """A copy in which these go before everything that was set so far."""
        copy = Serdes()
        copy._named = dict(self._named)
        copy._keys = dict(self._keys) if key is None else {None: self.resolve(key)}
        copy._values = dict(self._values) if value is None else {None: self.resolve(value)}
        return copy

    def share(self, names: Mapping[str, str]) -> None:
        """Treat each second name like the first."""
        for serdes in (self._keys, self._values):
            serdes.update({names[topic]: serdes[topic] for topic in names if topic in serdes})

    def encode(self, topic: str, key: Any, value: Any) -> tuple[bytes | None, bytes | None]:
        return (
            _encode(self._keys, topic, key, "key"),
            _encode(self._values, topic, value, "value"),
        )

    def decode(self, topic: str, key: bytes | None, value: bytes | None) -> tuple[Any, Any]:
        return (
            _decode(self._keys, topic, key, "key"),
            _decode(self._values, topic, value, "value"),
        )

    def _by_name(self, name: str) -> Serde:
        if name in _WITH_A_REGISTRY:
            raise NotSupported(
                f"the serde {name!r} needs a schema: use Registry(url).avro(schema, subject=...) "
                "or .protobuf(message, subject=...) of millstream.client."
            )
        if name not in self._named:
            raise Refused(f"there is no serde {name!r}; there are {', '.join(sorted(self._named))}")
        return self._named[name]


def for_type(kind: type) -> Serde:
    """JSON that is checked against a Pydantic model, a msgspec Struct or a dataclass."""
    if kind in (bytes, str, int):
        return BUILT_IN[{bytes: "bytes", str: "string", int: "int"}[kind]]
    if hasattr(kind, "model_validate_json"):  # A Pydantic model, without importing Pydantic.
        return _pydantic(kind)
    if is_dataclass(kind) or hasattr(kind, "__struct_fields__"):
        import msgspec

        return _Pair(_instance(kind, _json_encode), msgspec.json.Decoder(kind).decode)
    raise Refused(
        f"{kind.__name__} is no Pydantic model, msgspec Struct or dataclass; give a serde for it"
    )


def _pydantic(kind: Any) -> Serde:
    encode = _instance(kind, lambda model: model.model_dump_json().encode())
    return _Pair(encode, kind.model_validate_json)


def _instance(kind: type, encode: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    def checked(value: Any) -> bytes:
        if not isinstance(value, kind):
            raise TypeError(f"a {type(value).__name__} is not a {kind.__name__}")
        return encode(value)

    return checked


def _encode(serdes: dict[str | None, Serde], topic: str, value: Any, part: str) -> bytes | None:
    if value is None:
        return None
    try:
        return serdes.get(topic, serdes[None]).encode(value)
    # A serde is foreign code: any error of it means that it cannot do it.
    except Exception as problem:
        raise BadData(f"cannot encode the {part} for topic {topic!r}: {problem}") from problem


def _decode(serdes: dict[str | None, Serde], topic: str, data: bytes | None, part: str) -> Any:
    if data is None:
        return None
    try:
        return serdes.get(topic, serdes[None]).decode(data)
    except Exception as problem:
        raise BadData(f"cannot decode the {part} of a record of {topic!r}: {problem}") from problem
