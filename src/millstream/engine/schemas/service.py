"""Reads the schema registry: subjects, versions, schemas by id, settings, compatibility.

Owns the access checks: a subject needs the right to the topic that it names, and listings leave out
what a session may not see. Changes are `changes`' own.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar
from uuid import UUID

from millstream.config import Registry
from millstream.engine.gate import Gate, Operation
from millstream.engine.schemas.comparing import Comparison, messages, properties_of
from millstream.engine.schemas.decoding import Decoding, Readers
from millstream.engine.schemas.encoding import Encoders, Encoding
from millstream.engine.schemas.log import RegistryLog
from millstream.engine.schemas.parsing import LATEST, Draft, SchemaParser
from millstream.engine.schemas.subjects import (
    alias_of,
    config_of,
    level_of,
    mode_of,
    resource_of,
    scope_key,
    scopes,
)
from millstream.engine.schemas.validation import Named
from millstream.errors.schemas import (
    SchemaErrorCode,
    SchemaRefused,
    unknown_schema,
    unknown_subject,
    unknown_version,
)
from millstream.internal_topics.registry import (
    DEFAULT_CONTEXT,
    RegistryState,
    context_of,
    in_context,
    qualified,
)
from millstream.internal_topics.schemas import SchemaText, SchemaValue
from millstream.model import Session
from millstream.schemas.definition import SchemaType
from millstream.schemas.levels import Breach, Level

SUBJECTS_LISTING = "topics"  # A listing of subjects leaves out what a listing of topics does.
STEP_ITEMS = 256  # Between two turns of the loop.

# JSON of any shape.
Json = Any


class Listed(NamedTuple):
    """Which part of a listing is asked for."""

    with_deleted: bool = False
    only_deleted: bool = False
    offset: int = 0
    limit: int = -1  # Without end.

    def takes(self, value: SchemaValue) -> bool:
        return value.is_deleted if self.only_deleted else self.with_deleted or not value.is_deleted


class Identified(NamedTuple):
    """A schema by its id. `id_max` is the highest id of its context."""

    schema: SchemaText
    id: int
    guid: UUID
    id_max: int


class Explained(NamedTuple):
    """What a level says of a schema, against the versions that it asks for."""

    level: Level
    breaches: Sequence[Breach]


class Schemas:
    def __init__(
        self, gate: Gate, log: RegistryLog, parser: SchemaParser, config: Registry
    ) -> None:
        self._gate = gate
        self._log = log
        self._parser = parser
        self._comparison = Comparison(parser)
        self._decoders = Readers(parser, lambda schema: schema.value_decoder)
        self._checkers = Readers(parser, lambda schema: schema.value_checker)
        self._encoders = Encoders(parser)
        self._config = config

    def types(self, session: Session) -> list[str]:
        """The formats that can be used here."""
        self._gate.admit(session, Operation.DESCRIBE, SUBJECTS_LISTING)
        return self._parser.types()

    # -- subjects and versions -------------------------------------------------------------------

    async def subjects(self, session: Session, prefix: str, listed: Listed) -> list[str]:
        self._gate.admit(session, Operation.DESCRIBE, SUBJECTS_LISTING)
        state = await self._log.state()
        page: _Page[str] = _Page(listed)
        with_deleted = listed.with_deleted or listed.only_deleted
        for count, subject in enumerate(state.subjects(prefix=prefix, with_deleted=with_deleted)):
            if count % STEP_ITEMS == STEP_ITEMS - 1:
                await asyncio.sleep(0)
            if listed.only_deleted and state.exists(subject):
                continue
            if self._sees(session, subject) and page.add(subject):
                break
        return page.items

    async def schemas(
        self, session: Session, prefix: str, listed: Listed, *, latest_only: bool = False
    ) -> list[SchemaValue]:
        """The versions of all subjects."""
        self._gate.admit(session, Operation.DESCRIBE, SUBJECTS_LISTING)
        state = await self._log.state()
        page: _Page[SchemaValue] = _Page(listed)
        with_deleted = listed.with_deleted or listed.only_deleted
        count = 0
        for subject in state.subjects(prefix=prefix, with_deleted=with_deleted):
            if not self._sees(session, subject):
                continue
            values = list(filter(listed.takes, state.versions(subject, with_deleted=True)))
            for value in values[-1:] if latest_only else values:
                count += 1
                if page.add(value):
                    return page.items
            if count >= STEP_ITEMS:
                count = 0
                await asyncio.sleep(0)
        return page.items

    async def versions(self, session: Session, subject: str, listed: Listed) -> list[int]:
        state, name = await self._open(session, subject)
        if not state.exists(name, with_deleted=listed.with_deleted or listed.only_deleted):
            raise unknown_subject(subject)
        page: _Page[int] = _Page(listed)
        for value in state.versions(name, with_deleted=True):
            if listed.takes(value) and page.add(value.version):
                break
        return page.items

    async def version(
        self, session: Session, subject: str, number: int, *, with_deleted: bool = False
    ) -> SchemaValue:
        """A version by its number, or the latest one by -1."""
        state, name = await self._open(session, subject)
        return find_version(state, name, number, with_deleted=with_deleted)

    async def users(self, session: Session, subject: str, number: int) -> list[int]:
        """The ids of the schemas that reference a version."""
        state, name = await self._open(session, subject)
        value = find_version(state, name, number)
        users = state.users(name, value.version)
        return sorted({user.id for user in users if not user.is_deleted})

    async def with_metadata(
        self,
        session: Session,
        subject: str,
        pairs: Mapping[str, str],
        *,
        with_deleted: bool = False,
    ) -> SchemaValue:
        """The newest version whose metadata has these properties."""
        state, name = await self._open(session, subject)
        if not state.exists(name, with_deleted=with_deleted):
            raise unknown_subject(subject)
        for value in reversed(state.versions(name, with_deleted=with_deleted)):
            if pairs.items() <= properties_of(value.schema).items():
                return value
        raise unknown_schema()

    async def lookup(
        self,
        session: Session,
        subject: str,
        draft: Draft,
        *,
        normalize: bool = False,
        with_deleted: bool = False,
    ) -> SchemaValue:
        """The version of a subject that is this schema."""
        state, name = await self._open(session, subject)
        if not state.exists(name, with_deleted=with_deleted):
            raise unknown_subject(subject)
        normalize = normalize or bool(config_of(state, name, "normalize"))
        parsed = await self._parser.parse_draft(state, context_of(name), draft, normalize=normalize)
        value = state.lookup(name, parsed.text, with_deleted=with_deleted)
        if value is None:
            raise unknown_schema()
        return value

    async def record_names(self, session: Session, topic: str, draft: Draft) -> list[str]:
        """The names that subjects of a schema may be called by, in the records of a topic."""
        state, name = await self._open(session, f"{topic}-value")
        context = context_of(name)
        parsed = await self._parser.parse_draft(state, context, draft, normalize=False)
        return parsed.schema.record_names()

    async def formatted(self, session: Session, value: SchemaValue, form: str) -> str:
        """The text of a schema in another form: `resolved` of Avro, `serialized` of Protobuf.

        A form that the type does not have is its text, as of other registries.
        """
        self._gate.admit(session, Operation.DESCRIBE, SUBJECTS_LISTING)
        schema = value.schema
        if (schema.type, form) not in _FORMS:
            return schema.text
        state = await self._log.state()
        parsed = await self._parser.parse_known(state, context_of(value.subject), schema)
        return parsed.formatted_text(form)

    # -- ids -------------------------------------------------------------------------------------

    async def by_id(self, session: Session, number: int, subject: str = "") -> Identified:
        """The schema of an id, in the context of `subject`."""
        self._gate.admit(session, Operation.DESCRIBE, SUBJECTS_LISTING)
        state = self._log.state_now() or await self._log.state()
        return self._identified(session, state, number, subject)

    def by_id_now(self, session: Session, number: int, subject: str = "") -> Identified | None:
        """The same without waiting: clients ask for little else. None while the registry loads."""
        self._gate.admit(session, Operation.DESCRIBE, SUBJECTS_LISTING)
        state = self._log.state_now()
        return None if state is None else self._identified(session, state, number, subject)

    async def places(
        self, session: Session, number: int, subject: str = "", *, with_deleted: bool = False
    ) -> list[SchemaValue]:
        """The versions that have an id; `subject` names the context, and perhaps the only one."""
        self._gate.admit(session, Operation.DESCRIBE, SUBJECTS_LISTING)
        state = await self._log.state()
        context = context_of(subject)
        places = list(self._seen(session, state, context, number))
        if not places:
            raise unknown_schema(number)
        name = qualified(subject)
        only = name if state.exists(name, with_deleted=True) else None
        return [
            value
            for value in places
            if (with_deleted or not value.is_deleted) and only in {None, value.subject}
        ]

    async def by_guid(self, session: Session, name: UUID) -> list[tuple[str, Identified]]:
        """A schema by its GUID: in each context that has it."""
        self._gate.admit(session, Operation.DESCRIBE, SUBJECTS_LISTING)
        state = await self._log.state()
        known = []
        for context, number in state.with_guid(name):
            schema = state.schema(context, number)
            if schema is not None and next(self._seen(session, state, context, number), None):
                known.append((context, Identified(schema, number, name, state.id_max(context))))
        if not known:
            raise unknown_schema(name)
        return known

    async def decoding(self, session: Session, named: Named, subject: str) -> Decoding | None:
        """How bytes are read that name a schema; None if there is no such schema to be seen.

        Of the subjects that have the schema, `subject` is shown if it is one of them. Raises
        `SchemaRefused` or `ValueError` for a schema that cannot be used here.
        """
        self._gate.admit(session, Operation.DESCRIBE, SUBJECTS_LISTING)
        state = self._log.state_now() or await self._log.state()
        known = [(context_of(subject), named)] if isinstance(named, int) else state.with_guid(named)
        for context, number in known:
            schema = state.schema(context, number)
            subjects = [value.subject for value in self._seen(session, state, context, number)]
            if schema is not None and subjects:
                decoder = await self._decoders.of(state, context, number, schema)
                shown = subject if subject in subjects else subjects[-1]
                return Decoding(number, schema.type, shown, decoder)
        return None

    async def encoding(
        self,
        session: Session,
        subject: str,
        *,
        number: int = 0,
        version: int = LATEST,
        message: str = "",
    ) -> Encoding:
        """How JSON becomes bytes of a schema: that of an id, or a version of `subject`.

        Raises `SchemaRefused`, and `ValueError` for a schema that cannot be used here.
        """
        if number:
            by_id = await self.by_id(session, number, subject)
            state, schema = await self._log.state(), by_id.schema
        else:
            state, name = await self._open(session, subject)
            value = find_version(state, name, version)
            number, schema = value.id, value.schema
        encode = await self._encoders.of(state, context_of(subject), number, schema, message)
        return Encoding(number, schema.type, subject, encode)

    async def problem(self, session: Session, value: SchemaValue, data: bytes) -> str:
        """Why bytes are no value of a version; empty if they are. Those of Protobuf stand behind
        the indexes of their message."""
        state, name = await self._open(session, value.subject)
        context = context_of(name)
        try:
            check = await self._checkers.of(state, context, value.id, value.schema)
            check(data)
        except ValueError as problem:
            return str(problem) or "not a value of the schema"
        return ""

    # -- settings --------------------------------------------------------------------------------

    async def config(
        self, session: Session, subject: str | None, *, default_to_global: bool = False
    ) -> dict[str, Json]:
        """The settings of a subject, or those that hold for it."""
        key, state = await self._open_settings(session, subject)
        own = state.configs.get(key)
        if key is not None and own is None and not default_to_global:
            raise SchemaRefused(
                SchemaErrorCode.NO_OWN_COMPATIBILITY,
                f"Subject '{subject}' does not have subject-level compatibility configured",
            )
        members = dict(own or {})
        if key is None or default_to_global:
            for scope in scopes(key):
                members = {**state.configs.get(scope, {}), **members}
            members["compatibilityLevel"] = level_of(state, key, self._config.compatibility).value
        members.pop("subject", None)
        return members

    async def mode(
        self, session: Session, subject: str | None, *, default_to_global: bool = False
    ) -> str:
        key, state = await self._open_settings(session, subject)
        if key is not None and key not in state.modes and not default_to_global:
            raise SchemaRefused(
                SchemaErrorCode.NO_OWN_MODE,
                f"Subject '{subject}' does not have subject-level mode configured",
            )
        return mode_of(state, key) if default_to_global or key is None else state.modes[key]

    async def contexts(self, session: Session) -> list[str]:
        """The contexts that have subjects which the session may see; the default one always."""
        self._gate.admit(session, Operation.DESCRIBE, SUBJECTS_LISTING)
        state = await self._log.state()
        return sorted(
            context
            for context in state.contexts
            if context == DEFAULT_CONTEXT
            or any(
                self._sees(session, subject)
                for subject in state.subjects(prefix=in_context(context, ""), with_deleted=True)
            )
        )

    # -- compatibility ---------------------------------------------------------------------------

    async def check(
        self,
        session: Session,
        subject: str,
        draft: Draft,
        *,
        number: int | None = None,
        normalize: bool = False,
    ) -> list[str]:
        """Why a schema breaks the rules of its subject: against all versions that the level asks
        for, or against one. Empty if it is compatible."""
        state, name = await self._open(session, subject)
        normalize = normalize or bool(config_of(state, name, "normalize"))
        parsed = await self._parser.parse_draft(state, context_of(name), draft, normalize=normalize)
        if number is None:
            earlier = state.versions(name)
        elif number == LATEST:
            earlier = state.versions(name)[-1:]
        else:
            earlier = [find_version(state, name, number)]
        level = level_of(state, name, self._config.compatibility)
        broken = await self._comparison.compare(state, name, parsed, earlier, level)
        return messages(broken, level)

    async def explain(self, session: Session, subject: str, draft: Draft) -> list[Explained]:
        """What each level says of a schema, and why."""
        state, name = await self._open(session, subject)
        parsed = await self._parser.parse_draft(state, context_of(name), draft, normalize=False)
        earlier = state.versions(name)
        return [
            Explained(level, await self._comparison.compare(state, name, parsed, earlier, level))
            for level in Level
        ]

    # -- parts -----------------------------------------------------------------------------------

    def _identified(
        self, session: Session, state: RegistryState, number: int, subject: str
    ) -> Identified:
        context = context_of(subject)
        schema = state.schema(context, number)
        if schema is None or next(self._seen(session, state, context, number), None) is None:
            raise unknown_schema(number)
        return Identified(schema, number, state.guid_of(context, number), state.id_max(context))

    async def _open(self, session: Session, subject: str) -> tuple[RegistryState, str]:
        """The state, and the name that a subject is kept under."""
        self._gate.admit(session, Operation.DESCRIBE, resource_of(subject))
        state = self._log.state_now() or await self._log.state()
        name = alias_of(state, qualified(subject))
        if name != qualified(subject):
            self._gate.admit(session, Operation.DESCRIBE, resource_of(name))
        return state, name

    async def _open_settings(
        self, session: Session, subject: str | None
    ) -> tuple[str | None, RegistryState]:
        self._gate.admit(session, Operation.DESCRIBE_CONFIGS, resource_of(subject))
        return scope_key(subject), await self._log.state()

    def _sees(self, session: Session, subject: str) -> bool:
        return self._gate.sees(session, resource_of(subject))

    def _seen(
        self, session: Session, state: RegistryState, context: str, number: int
    ) -> Iterator[SchemaValue]:
        return (
            value for value in state.places(context, number) if self._sees(session, value.subject)
        )


_FORMS = {(SchemaType.AVRO, "resolved"), (SchemaType.PROTOBUF, "serialized")}

T = TypeVar("T")


class _Page(Generic[T]):
    """The part of a listing that was asked for."""

    def __init__(self, listed: Listed) -> None:
        self.items: list[T] = []
        self._left = listed.offset
        self._limit = listed.limit

    def add(self, item: T) -> bool:
        """Take an item in its turn; return whether the page is full."""
        if self._left > 0:
            self._left -= 1
        elif self._limit < 0 or len(self.items) < self._limit:
            self.items.append(item)
        return self._left == 0 and 0 <= self._limit <= len(self.items)


def find_version(
    state: RegistryState, subject: str, number: int, *, with_deleted: bool = False
) -> SchemaValue:
    """A version by its number, or the latest one by -1; raises `SchemaRefused`."""
    if not state.exists(subject, with_deleted=with_deleted):
        raise unknown_subject(subject)
    if number == LATEST:
        value = state.latest(subject, with_deleted=with_deleted)
    else:
        value = state.version(subject, number)
    if value is None or (value.is_deleted and not with_deleted):
        raise unknown_version(number)
    return value
