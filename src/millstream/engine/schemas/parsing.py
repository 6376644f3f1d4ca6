"""Parses schemas, on a thread where that takes long, and keeps what was parsed.

Owns the cache of parsed schemas, and the texts of references: those of a schema, and of theirs, in
the order in which they build on each other. Nothing is fetched from anywhere.
"""

import binascii
import re
from base64 import b64decode
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from millstream.config import Registry
from millstream.engine.schemas.subjects import in_same_context
from millstream.errors.schemas import SchemaErrorCode, SchemaRefused, invalid_schema
from millstream.internal_topics.registry import RegistryState, context_of
from millstream.internal_topics.schemas import SchemaText
from millstream.ports import SchemaCompiler, Threads
from millstream.schemas.definition import (
    REFERENCES_MAX,
    InvalidSchema,
    Reference,
    Schema,
    SchemaType,
)

INLINE_TEXT_MAX = 4 * 2**10  # Parsed on the loop: less than a millisecond.
LATEST = -1
MAIN_FILE = "schema.proto"
_FILE_NAME = re.compile(r"(?!/)(?:(?!\.\.?(?:/|$))[A-Za-z0-9_.+-]+(?:/(?!$)|$))+")
_BASE64 = re.compile(r"[A-Za-z0-9+/\s]+=*\s*")

T = TypeVar("T")
# JSON of any shape.
Json = Any


class Draft(NamedTuple):
    """A schema as a client sends it. `id` and `version` are there where it is imported."""

    type: SchemaType
    text: str
    references: tuple[Reference, ...] = ()
    metadata: Json = None
    rule_set: Json = None
    id: int = -1
    version: int = 0


class Parsed(NamedTuple):
    schema: Schema
    text: SchemaText  # With the canonical text, or the normalised one.


class SchemaParser:
    def __init__(self, compiler: SchemaCompiler, threads: Threads, limits: Registry) -> None:
        self._compiler = compiler
        self._threads = threads
        self._limits = limits
        self._kept: OrderedDict[object, Schema] = OrderedDict()
        self._kept_bytes = 0
        self._has_validator = False  # Loading the library takes 13 ms: a thread does it.

    def types(self) -> list[str]:
        """The formats that can be used here."""
        has_protobuf = self._compiler.is_installed()
        return ["JSON", *(["PROTOBUF"] if has_protobuf else []), "AVRO"]

    async def parse_draft(
        self, state: RegistryState, context: str, draft: Draft, *, normalize: bool
    ) -> Parsed:
        """Parse a schema of a client; raises `SchemaRefused`."""
        if not draft.text.strip():
            raise SchemaRefused(SchemaErrorCode.INVALID_SCHEMA, "Empty schema")
        size, size_max = len(draft.text.encode("utf-8", "replace")), self._limits.schema_bytes_max
        if size > size_max:
            raise SchemaRefused(
                SchemaErrorCode.TOO_LARGE,
                f"The schema has {size} bytes, at most {size_max} (registry.schema_bytes_max)",
            )
        references = tuple(_resolved(state, context, each) for each in draft.references)
        texts = reference_texts(state, context, references)
        schema = await self.parse(draft.type, draft.text, texts)
        try:
            text = schema.normalized_text() if normalize else schema.canonical_text
        except InvalidSchema as problem:
            raise invalid_schema(str(problem)) from None
        known = SchemaText(draft.type, text, references, draft.metadata, draft.rule_set)
        return Parsed(schema, known)

    async def parse_known(self, state: RegistryState, context: str, schema: SchemaText) -> Schema:
        """Parse a registered schema; one from elsewhere may be none by our rules."""
        texts = reference_texts(state, context, schema.references)
        return await self.parse(schema.type, schema.text, texts)

    async def parse(
        self, schema_type: SchemaType, text: str, references: Mapping[str, str]
    ) -> Schema:
        key = (schema_type, text, tuple(references.items()))
        kept = self._kept.get(key)
        if kept is not None:
            self._kept.move_to_end(key)
            return kept
        work = self._work(schema_type, text, references)
        try:
            if self._is_short(schema_type, text, references):
                schema = work()
            else:
                schema = await self._threads.run(work)
        except InvalidSchema as problem:
            raise invalid_schema(str(problem)) from None
        if schema_type is SchemaType.JSON:
            self._has_validator = True
        self._keep(key, schema, len(text))
        return schema

    async def run(self, work: Callable[[], T], *, text_length: int) -> T:
        """Do work over parsed schemas: on a thread, if their texts are long."""
        if text_length <= 2 * INLINE_TEXT_MAX:
            return work()
        return await self._threads.run(work)

    def _is_short(self, schema_type: SchemaType, text: str, references: Mapping[str, str]) -> bool:
        if schema_type is SchemaType.PROTOBUF:
            return False
        if schema_type is SchemaType.JSON and not self._has_validator:
            return False
        return len(text) + sum(map(len, references.values())) <= INLINE_TEXT_MAX

    def _work(
        self, schema_type: SchemaType, text: str, references: Mapping[str, str]
    ) -> Callable[[], Schema]:
        # Imported here: most nodes see one format, or none.
        match schema_type:
            case SchemaType.AVRO:
                from millstream.schemas.avro.schema import AvroSchema

                return lambda: AvroSchema(text, references)
            case SchemaType.JSON:
                from millstream.schemas.json.schema import JsonSchema

                return lambda: JsonSchema(text, references)
            case SchemaType.PROTOBUF:
                return lambda: self._compile(text, references)

    def _compile(self, text: str, references: Mapping[str, str]) -> Schema:
        if not self._compiler.is_installed():
            raise InvalidSchema("Protobuf needs a library: pip install 'millstream[protobuf]'")
        from millstream.schemas.protobuf.schema import ProtobufSchema
        from millstream.schemas.protobuf.well_known import well_known_files

        files = {name: protobuf_text(other) for name, other in references.items()}
        for name in files:
            if _FILE_NAME.fullmatch(name) is None:
                raise InvalidSchema(f"{name[:200]!r} is no name of a file that can be imported")
        main = MAIN_FILE
        while main in files:
            main = f"_{main}"
        source = files[main] = protobuf_text(text)
        files |= well_known_files(list(files.values()), files)
        try:
            descriptors = self._compiler.compile(files, main)
        except (ValueError, OSError) as problem:
            raise InvalidSchema(str(problem).replace(main, "schema")) from None
        return ProtobufSchema(descriptors, source)

    def _keep(self, key: object, schema: Schema, size: int) -> None:
        if key in self._kept:
            return
        self._kept[key] = schema
        self._kept_bytes += size
        while (
            len(self._kept) > self._limits.parsed_max
            or self._kept_bytes > self._limits.parsed_bytes_max
        ) and len(self._kept) > 1:
            oldest, _ = self._kept.popitem(last=False)
            assert isinstance(oldest, tuple)
            self._kept_bytes -= len(oldest[1])


def protobuf_text(text: str) -> str:
    """A file as it is, or the text of a serialized `FileDescriptorProto` in base64."""
    if _BASE64.fullmatch(text) is None:
        return text
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    from millstream.schemas.protobuf.text import file_text

    try:
        return file_text(FileDescriptorProto.FromString(b64decode("".join(text.split()))))
    except (binascii.Error, DecodeError, KeyError):
        return text  # `protoc` says what is wrong with it.


def reference_texts(
    state: RegistryState, context: str, references: Sequence[Reference]
) -> dict[str, str]:
    """The texts of all references by name, those that others build on first."""
    texts: dict[str, str] = {}
    visited: set[tuple[str, str, int]] = set()
    # Not recursive: a chain of references may be as long as there are references.
    stack = [(each, context, False) for each in reversed(references)]
    while stack:
        reference, at, has_inner = stack.pop()
        subject = in_same_context(at, reference.subject)
        value = state.version(subject, reference.version)
        if value is None:
            raise invalid_schema(
                f'No schema reference found for subject "{reference.subject}" and version '
                f"{reference.version}"
            )
        place = (reference.name, subject, reference.version)
        if has_inner:
            if texts.setdefault(reference.name, value.schema.text) != value.schema.text:
                raise invalid_schema(f"two schemas are referenced as {reference.name!r}")
        elif place not in visited:
            if len(visited) >= REFERENCES_MAX:
                raise invalid_schema(f"more than {REFERENCES_MAX} references")
            visited.add(place)
            stack.append((reference, at, True))
            inner = reversed(value.schema.references)
            stack += [(each, context_of(subject), False) for each in inner]
    return texts


def _resolved(state: RegistryState, context: str, reference: Reference) -> Reference:
    """A reference to the latest version is one to the version that is the latest by now."""
    if reference.version != LATEST:
        return reference
    latest = state.latest(in_same_context(context, reference.subject))
    if latest is None:
        raise invalid_schema(
            f'No schema reference found for subject "{reference.subject}" and version latest'
        )
    return reference._replace(version=latest.version)
