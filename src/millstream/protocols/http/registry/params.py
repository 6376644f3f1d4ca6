"""Parameters and bodies of the registry's REST, by the names that its clients know.

A path inside of a context, `/contexts/.mill/subjects/orders`, names its subjects without it.
"""

from typing import Any
from uuid import UUID

import msgspec

from millstream.engine.schemas.parsing import LATEST, Draft
from millstream.engine.schemas.service import Listed
from millstream.errors.schemas import (
    SchemaErrorCode,
    SchemaRefused,
    invalid_schema,
    unknown_schema,
)
from millstream.internal_topics.registry import DEFAULT_CONTEXT, in_context
from millstream.internal_topics.schemas import SchemaText, SchemaValue, guid
from millstream.protocols.http.router import Params
from millstream.schemas.definition import Reference, SchemaType

EVERY_CONTEXT = ":*:"
_INT32_MAX = 2**31 - 1

# JSON of any shape.
Json = Any


class RegistryParams(Params, frozen=True, kw_only=True, rename="camel"):
    context: str = DEFAULT_CONTEXT

    @property
    def whole_context(self) -> str:
        """`.mill`, `mill` and `:.mill:` are the same context."""
        return f".{self.context.strip(':').removeprefix('.')}"

    def whole(self, subject: str) -> str:
        """The whole name of a subject, which may have its context or be in that of the path."""
        return subject if subject.startswith(":.") else in_context(self.whole_context, subject)


class ListParams(RegistryParams, frozen=True, kw_only=True, rename="camel"):
    subject_prefix: str = EVERY_CONTEXT
    deleted: bool = False
    deleted_only: bool = False
    latest_only: bool = False
    offset: int = 0
    limit: int = -1

    @property
    def prefix(self) -> str:
        """Of subjects; without a context those of all of them."""
        prefix = self.subject_prefix
        if prefix.startswith(EVERY_CONTEXT):
            return in_context(self.whole_context, prefix.removeprefix(EVERY_CONTEXT))
        return self.whole(prefix)

    @property
    def listed(self) -> Listed:
        return Listed(self.deleted, self.deleted_only, max(0, self.offset), self.limit)


class SubjectParams(RegistryParams, frozen=True, kw_only=True, rename="camel"):
    subject: str
    deleted: bool = False
    deleted_only: bool = False
    permanent: bool = False
    normalize: bool = False
    format: str = ""
    key: str = ""
    value: str = ""
    offset: int = 0
    limit: int = -1

    @property
    def name(self) -> str:
        return self.whole(self.subject)

    @property
    def listed(self) -> Listed:
        return Listed(self.deleted, self.deleted_only, max(0, self.offset), self.limit)


class VersionParams(RegistryParams, frozen=True, kw_only=True, rename="camel"):
    subject: str
    version: str
    deleted: bool = False
    permanent: bool = False
    format: str = ""

    @property
    def name(self) -> str:
        return self.whole(self.subject)

    @property
    def number(self) -> int:
        return version_number(self.version)


class CheckParams(RegistryParams, frozen=True, kw_only=True, rename="camel"):
    subject: str
    version: str = ""
    verbose: bool = False
    normalize: bool = False

    @property
    def name(self) -> str:
        return self.whole(self.subject)

    @property
    def number(self) -> int | None:
        """None: all versions that the level asks for."""
        return version_number(self.version) if self.version else None


class IdParams(RegistryParams, frozen=True, kw_only=True, rename="camel"):
    id: int
    subject: str = ""  # Names the context, and perhaps the only subject to look at.
    deleted: bool = False
    fetch_max_id: bool = False
    format: str = ""

    @property
    def name(self) -> str:
        return self.whole(self.subject)


class GuidParams(RegistryParams, frozen=True, kw_only=True, rename="camel"):
    guid: str
    format: str = ""

    @property
    def uuid(self) -> UUID:
        try:
            return UUID(self.guid)
        except ValueError:
            raise unknown_schema(self.guid) from None


class ScopeParams(RegistryParams, frozen=True, kw_only=True, rename="camel"):
    """Of settings and modes: of a subject, a context, or all."""

    subject: str | None = None
    default_to_global: bool = False
    force: bool = False
    recursive: bool = False

    @property
    def scope(self) -> str | None:
        if self.subject is not None:
            return self.whole(self.subject)
        context = self.whole_context
        return None if context == DEFAULT_CONTEXT else in_context(context, "")


def version_number(text: str) -> int:
    """-1 for the latest."""
    if text in {"latest", "-1"}:
        return LATEST
    if text.isascii() and text.isdigit() and 0 < int(text) <= _INT32_MAX:
        return int(text)
    raise SchemaRefused(
        SchemaErrorCode.INVALID_VERSION,
        f"The specified version '{text}' is not a valid version id. Allowed values are "
        'between [1, 2^31-1] and the string "latest"',
    )


# -- bodies ----------------------------------------------------------------------------------------


class ReferenceBody(msgspec.Struct):
    name: str
    subject: str
    version: int


class SchemaBody(msgspec.Struct, rename="camel"):
    """A schema that is registered, looked up or checked. Other members are passed over."""

    schema: str | None = None
    schema_type: str | None = None
    references: list[ReferenceBody] | None = None
    metadata: Json = None
    rule_set: Json = None
    id: int | None = None
    version: int | None = None

    def draft(self) -> Draft:
        try:
            schema_type = SchemaType((self.schema_type or "AVRO").upper())
        except ValueError:
            raise invalid_schema(f"unknown type {self.schema_type!r}") from None
        references = self.references or ()
        return Draft(
            schema_type,
            self.schema or "",
            tuple(Reference(each.name, each.subject, each.version) for each in references),
            self.metadata,
            self.rule_set,
            -1 if self.id is None else self.id,
            0 if self.version is None else self.version,
        )


class ModeBody(msgspec.Struct):
    mode: str = ""


def text_members(schema: SchemaText, text: str | None = None) -> dict[str, Json]:
    """What makes a schema: members that say nothing are left away, as by the original."""
    members: dict[str, Json] = {}
    if schema.type is not SchemaType.AVRO:
        members["schemaType"] = schema.type.value
    if schema.references:
        members["references"] = [each._asdict() for each in schema.references]
    if schema.metadata is not None:
        members["metadata"] = schema.metadata
    if schema.rule_set is not None:
        members["ruleSet"] = schema.rule_set
    members["schema"] = schema.text if text is None else text
    return members


def value_members(value: SchemaValue, text: str | None = None) -> dict[str, Json]:
    """A version of a subject."""
    members = {
        "subject": value.subject,
        "version": value.version,
        "id": value.id,
        "guid": str(guid(value.schema)),
        **text_members(value.schema, text),
    }
    if value.is_deleted:
        members["deleted"] = True
    return members
