"""Changes the schema registry: registers and deletes versions, sets compatibility and modes.

Changes are made one after the other, so that two clients that register the same schema at once get
one id. A change is answered when its records are durable and folded.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from millstream.config import Registry
from millstream.engine.controller import Controller
from millstream.engine.gate import Gate, Operation
from millstream.engine.ledgers.ledger import Entry
from millstream.engine.schemas.comparing import Comparison, messages
from millstream.engine.schemas.log import RegistryLog
from millstream.engine.schemas.parsing import LATEST, Draft, Parsed, SchemaParser
from millstream.engine.schemas.service import find_version
from millstream.engine.schemas.subjects import (
    MODES,
    POLICIES,
    alias_of,
    config_of,
    level_of,
    mode_of,
    resource_of,
    scope_key,
)
from millstream.errors import Overloaded
from millstream.errors.schemas import (
    SchemaErrorCode,
    SchemaRefused,
    not_permitted,
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
from millstream.internal_topics.schemas import (
    DeletedSubject,
    Key,
    KeyType,
    SchemaValue,
    encode_deleted,
    encode_key,
    encode_schema,
    encode_settings,
)
from millstream.model import Session
from millstream.schemas.levels import Level

VERSIONS_NOTED_MAX = 100  # In one event of the audit trail.
TOMBSTONES_MAX = 1_000  # In one batch.
SUBJECT_LENGTH_MAX = 10_000
ID_MAX = 2**31 - 1
RESERVED_SUBJECTS = frozenset({"__GLOBAL", "__EMPTY"})
LEVELS = frozenset(level.value for level in Level)
READ_ONLY = frozenset({"READONLY", "READONLY_OVERRIDE"})
# The settings of a subject, and the types of their values.
CONFIG_TYPES: Mapping[str, type] = {
    "compatibilityLevel": str,
    "normalize": bool,
    "compatibilityPolicy": str,
    "alias": str,
    "compatibilityGroup": str,
    "validateFields": bool,
}

# JSON of any shape.
Json = Any


class SchemaChanges:
    def __init__(
        self,
        gate: Gate,
        log: RegistryLog,
        parser: SchemaParser,
        controller: Controller,
        config: Registry,
    ) -> None:
        self._gate = gate
        self._log = log
        self._parser = parser
        self._comparison = Comparison(parser)
        self._controller = controller
        self._config = config
        self._changing = asyncio.Lock()
        self._waiting = 0

    # -- versions --------------------------------------------------------------------------------

    async def register(
        self, session: Session, subject: str, draft: Draft, *, normalize: bool = False
    ) -> SchemaValue:
        """Register a schema; return the version that it is, which may have been there before."""
        self._gate.admit(session, Operation.APPEND, resource_of(subject))
        _check_subject(subject)
        state = self._log.state_now() or await self._log.state()
        name = alias_of(state, qualified(subject))
        if name != qualified(subject):
            self._gate.admit(session, Operation.APPEND, resource_of(name))
        normalize = normalize or bool(config_of(state, name, "normalize"))
        context = context_of(name)
        parsed = await self._parser.parse_draft(state, context, draft, normalize=normalize)
        known = state.lookup(name, parsed.text)
        if known is not None and draft.id in {-1, known.id} and draft.version in {0, known.version}:
            return known
        async with self._alone() as state:
            known = state.lookup(name, parsed.text)
            if known is not None and draft.id in {-1, known.id}:
                return known
            if draft.id >= 0:
                value = _imported(state, name, draft, parsed)
            else:
                value = await self._admitted(state, name, draft, parsed)
            if state.version_count >= self._config.versions_max:
                raise not_permitted(
                    f"there are {state.version_count} versions already (registry.versions_max)"
                )
            state = await self._log.write([_entry(value)])
            details = {"version": value.version, "id": value.id}
            self._gate.note("schema.register", session, f"subject:{name}", details)
            return state.version(name, value.version) or value

    async def delete_version(
        self, session: Session, subject: str, number: int, *, permanent: bool = False
    ) -> int:
        """Delete a version softly, or one that was deleted softly for good; return its number."""
        self._gate.admit(session, Operation.DELETE, resource_of(subject))
        async with self._alone() as state:
            name = alias_of(state, qualified(subject))
            self._gate.admit(session, Operation.DELETE, resource_of(name))
            value = _deletable(state, name, number, permanent=permanent)
            _check_unlocked(state, name)
            _check_unused(state, value)
            if permanent:
                await self._keep_ids(session, state, context_of(name))
                await self._log.write([Entry(_key(value), None)])
            else:
                await self._log.write([_entry(value._replace(is_deleted=True))])
            details = {"versions": [value.version], "permanent": permanent}
            self._gate.note("schema.delete", session, f"subject:{name}", details)
            return value.version

    async def delete_subject(
        self, session: Session, subject: str, *, permanent: bool = False
    ) -> list[int]:
        """The same for all versions of a subject; its settings and its mode go with it."""
        self._gate.admit(session, Operation.DELETE, resource_of(subject))
        async with self._alone() as state:
            name = alias_of(state, qualified(subject))
            self._gate.admit(session, Operation.DELETE, resource_of(name))
            values = _deletable_all(state, name, permanent=permanent)
            _check_unlocked(state, name)
            for value in values:
                _check_unused(state, value)
            if permanent:
                await self._keep_ids(session, state, context_of(name))
                for start in range(0, len(values), TOMBSTONES_MAX):
                    part = values[start : start + TOMBSTONES_MAX]
                    await self._log.write([Entry(_key(value), None) for value in part])
            else:
                deleted = encode_deleted(DeletedSubject(name, values[-1].version))
                entries = [Entry(encode_key(Key(KeyType.DELETE_SUBJECT, name)), deleted)]
                entries += _settings_gone(state, name)
                await self._log.write(entries)
            versions = [value.version for value in values]
            details = {"versions": versions[:VERSIONS_NOTED_MAX], "permanent": permanent}
            self._gate.note("schema.delete", session, f"subject:{name}", details)
            return versions

    async def delete_context(self, session: Session, context: str) -> None:
        """Delete a context without subjects."""
        prefix = in_context(context, "")
        self._gate.admit(session, Operation.ALTER_CONFIGS, resource_of(prefix or None))
        async with self._alone() as state:
            if next(state.subjects(prefix=prefix, with_deleted=True), None) is not None:
                raise SchemaRefused(
                    SchemaErrorCode.CONTEXT_NOT_EMPTY, f"The context '{context}' is not empty"
                )
            if context == DEFAULT_CONTEXT or context not in state.contexts:
                return
            entries = [Entry(encode_key(Key(KeyType.CONTEXT, context=context)), None)]
            entries += _settings_gone(state, prefix)
            await self._keep_ids(session, state, context)
            await self._log.write(entries)

    # -- settings --------------------------------------------------------------------------------

    async def set_config(
        self, session: Session, subject: str | None, changes: Mapping[str, Json]
    ) -> None:
        """Change settings of a subject, a context or all; what is None goes, others stay."""
        self._gate.admit(session, Operation.ALTER_CONFIGS, resource_of(subject))
        _check_config(changes)
        async with self._alone() as state:
            key = scope_key(subject)
            members = {**state.configs.get(key, {}), **changes}
            members = {name: value for name, value in members.items() if value is not None}
            if key is not None:
                members = {"subject": key, **members}
            entry = Entry(encode_key(Key(KeyType.CONFIG, key)), encode_settings(members))
            await self._log.write([entry])

    async def delete_config(self, session: Session, subject: str | None) -> dict[str, Json]:
        """Return the settings that there were."""
        self._gate.admit(session, Operation.ALTER_CONFIGS, resource_of(subject))
        async with self._alone() as state:
            key = scope_key(subject)
            if key is not None and key not in state.configs:
                raise unknown_subject(subject or "")
            members = dict(state.configs.get(key, {}))
            if key in state.configs:
                await self._log.write([Entry(encode_key(Key(KeyType.CONFIG, key)), None)])
            members.pop("subject", None)
            level = level_of(state, key, self._config.compatibility)
            members.setdefault("compatibilityLevel", level.value)
            return members

    async def set_mode(
        self, session: Session, subject: str | None, mode: str, *, force: bool = False
    ) -> None:
        self._gate.admit(session, Operation.ALTER_CONFIGS, resource_of(subject))
        if mode not in MODES:
            raise SchemaRefused(
                SchemaErrorCode.INVALID_MODE,
                f"Invalid mode. Valid values are {', '.join(MODES)}.",
            )
        async with self._alone() as state:
            key = scope_key(subject)
            if mode == "IMPORT" and not force and mode_of(state, key) != "IMPORT":
                _check_empty(state, key)
            members = {"subject": key, "mode": mode} if key is not None else {"mode": mode}
            entry = Entry(encode_key(Key(KeyType.MODE, key)), encode_settings(members))
            await self._log.write([entry])

    async def delete_mode(
        self, session: Session, subject: str | None, *, recursive: bool = False
    ) -> str:
        """Return the mode that there was; with `recursive` those of subjects inside go too."""
        self._gate.admit(session, Operation.ALTER_CONFIGS, resource_of(subject))
        async with self._alone() as state:
            key = scope_key(subject)
            if key is not None and key not in state.modes:
                raise unknown_subject(subject or "")
            before = mode_of(state, key)
            keys = [key] if key in state.modes else []
            if recursive:
                keys += [
                    each
                    for each in state.modes
                    if each is not None and each != key and each.startswith(key or "")
                ]
            if keys:
                await self._log.write(
                    [Entry(encode_key(Key(KeyType.MODE, each)), None) for each in keys]
                )
            return before

    # -- parts -----------------------------------------------------------------------------------

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[RegistryState]:
        """No other change is made meanwhile."""
        if self._waiting >= self._config.changes_waiting_max:
            raise Overloaded(f"{self._waiting} changes of schemas wait already")
        self._waiting += 1
        try:
            async with self._changing:
                yield await self._log.settled()
        finally:
            self._waiting -= 1

    async def _admitted(
        self, state: RegistryState, name: str, draft: Draft, parsed: Parsed
    ) -> SchemaValue:
        """The version that a new schema becomes, if modes and compatibility allow it."""
        mode = mode_of(state, name)
        if mode in READ_ONLY:
            raise not_permitted(f"Subject {name} is in read-only mode")
        if mode != "READWRITE":
            raise not_permitted(f"Subject {name} is not in read-write mode")
        version = state.next_version(name)
        if draft.version not in {0, LATEST, version}:
            raise SchemaRefused(
                SchemaErrorCode.INVALID_VERSION,
                f"Version {draft.version} is not one more than the latest version {version - 1}",
            )
        level = level_of(state, name, self._config.compatibility)
        earlier = state.versions(name)
        broken = await self._comparison.compare(state, name, parsed, earlier, level)
        if broken:
            lines = messages(broken, level)
            raise SchemaRefused(
                SchemaErrorCode.INCOMPATIBLE,
                "Schema being registered is incompatible with an earlier schema for subject "
                f'"{name}", details: [{", ".join(lines)}]',
                lines,
            )
        context = context_of(name)
        number = state.id_of(context, parsed.text)
        if number is None:
            number = max(state.id_max(context), self._given_ids.get(context, 0)) + 1
        return SchemaValue(name, version, number, parsed.text)

    @property
    def _given_ids(self) -> Mapping[str, int]:
        return self._controller.state.schema_ids

    async def _keep_ids(self, session: Session, state: RegistryState, context: str) -> None:
        """Note the highest id before records go that may be the last to know of it."""
        highest = state.id_max(context)
        if self._given_ids.get(context, 0) < highest:
            await self._controller.raise_schema_ids(session, context, highest)


def _imported(state: RegistryState, name: str, draft: Draft, parsed: Parsed) -> SchemaValue:
    """The version of a schema that comes with its id: nothing is compared."""
    if mode_of(state, name) != "IMPORT":
        raise not_permitted(f"Subject {name} is not in import mode")
    if not 0 < draft.id <= ID_MAX:
        raise SchemaRefused(SchemaErrorCode.ID_MISMATCH, f"{draft.id} is no id of a schema")
    context = context_of(name)
    known = state.schema(context, draft.id)
    if known is not None and known != parsed.text:
        raise SchemaRefused(
            SchemaErrorCode.ID_MISMATCH,
            f"Overwrite new schema with id {draft.id} is not permitted.",
        )
    version = draft.version if draft.version > 0 else state.next_version(name)
    if state.version(name, version) is not None:
        raise not_permitted(f"Subject {name} has a version {version} already")
    return SchemaValue(name, version, draft.id, parsed.text)


def _entry(value: SchemaValue) -> Entry:
    return Entry(_key(value), encode_schema(value))


def _key(value: SchemaValue) -> bytes:
    return encode_key(Key(KeyType.SCHEMA, value.subject, value.version))


def _settings_gone(state: RegistryState, name: str) -> list[Entry]:
    kinds = ((KeyType.CONFIG, name in state.configs), (KeyType.MODE, name in state.modes))
    return [Entry(encode_key(Key(kind, name)), None) for kind, is_set in kinds if is_set]


def _check_subject(subject: str) -> None:
    if len(subject) > SUBJECT_LENGTH_MAX:
        raise SchemaRefused(
            SchemaErrorCode.INVALID_SUBJECT,
            f"The subject has {len(subject)} characters, at most {SUBJECT_LENGTH_MAX}",
        )
    is_text = all(ord(character) >= 0x20 for character in subject)
    if not is_text or qualified(subject) in RESERVED_SUBJECTS:
        raise SchemaRefused(
            SchemaErrorCode.INVALID_SUBJECT, f"The specified subject '{subject}' is not valid."
        )


def _deletable(state: RegistryState, name: str, number: int, *, permanent: bool) -> SchemaValue:
    if not state.exists(name, with_deleted=True):
        raise unknown_subject(name)
    if number == LATEST:
        return find_version(state, name, number, with_deleted=permanent)
    value = state.version(name, number)
    if value is None:
        raise unknown_version(number)
    if permanent and not value.is_deleted:
        raise SchemaRefused(
            SchemaErrorCode.VERSION_NOT_SOFT_DELETED,
            f"Subject '{name}' Version {number} was not deleted first before being permanently "
            "deleted",
        )
    if not permanent and value.is_deleted:
        raise SchemaRefused(
            SchemaErrorCode.VERSION_SOFT_DELETED,
            f"Subject '{name}' Version {number} was soft deleted. Set permanent=true to delete "
            "permanently",
        )
    return value


def _deletable_all(state: RegistryState, name: str, *, permanent: bool) -> Sequence[SchemaValue]:
    if not state.exists(name, with_deleted=True):
        raise unknown_subject(name)
    if permanent and state.exists(name):
        raise SchemaRefused(
            SchemaErrorCode.SUBJECT_NOT_SOFT_DELETED,
            f"Subject '{name}' was not deleted first before being permanently deleted",
        )
    if not permanent and not state.exists(name):
        raise SchemaRefused(
            SchemaErrorCode.SUBJECT_SOFT_DELETED,
            f"Subject '{name}' was soft deleted. Set permanent=true to delete permanently",
        )
    return state.versions(name, with_deleted=permanent)


def _check_unlocked(state: RegistryState, name: str) -> None:
    if mode_of(state, name) in READ_ONLY:
        raise not_permitted(f"Subject {name} is in read-only mode")


def _check_unused(state: RegistryState, value: SchemaValue) -> None:
    if state.users(value.subject, value.version):
        raise SchemaRefused(
            SchemaErrorCode.REFERENCED,
            "One or more references exist to the schema {magic=1,keytype=SCHEMA,subject="
            f"{value.subject},version={value.version}}}.",
        )


def _check_empty(state: RegistryState, key: str | None) -> None:
    """Schemas are imported into what is empty, so that no id is given twice."""
    is_context = key is None or not key or key.endswith(":")
    taken = (
        next(state.subjects(prefix=key or "", with_deleted=True), None) is not None
        if is_context
        else state.exists(key or "")
    )
    if taken:
        raise not_permitted("Cannot import since found existing subjects")


def _check_config(changes: Mapping[str, Json]) -> None:
    for name, value in changes.items():
        kind = CONFIG_TYPES.get(name)
        if kind is None:
            raise not_permitted(f"'{name}' is not supported by this registry")
        if value is not None and not isinstance(value, kind):
            raise not_permitted(f"'{name}' has the value {value!r}")
    level = changes.get("compatibilityLevel")
    if level is not None and level not in LEVELS:
        raise SchemaRefused(
            SchemaErrorCode.INVALID_COMPATIBILITY,
            "Invalid compatibility level. Valid values are none, backward, forward, full, "
            "backward_transitive, forward_transitive, and full_transitive",
        )
    policy = changes.get("compatibilityPolicy")
    if policy is not None and policy not in POLICIES:
        raise SchemaRefused(
            SchemaErrorCode.INVALID_COMPATIBILITY,
            f"Invalid compatibility policy. Valid values are {', '.join(POLICIES)}",
        )
