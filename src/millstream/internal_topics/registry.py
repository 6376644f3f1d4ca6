"""The state that `_schemas` folds into: subjects, versions, ids, settings and modes.

A subject of another context than the default one is written `:.context:subject`. Ids count in each
context. A schema that was deleted softly keeps its id, its version and its readers by id; one that
was deleted for good is gone. Its id is not given again: the control log has the highest one.
"""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

from millstream.internal_topics.schemas import (
    DeletedSubject,
    Key,
    KeyType,
    SchemaText,
    SchemaValue,
    Value,
    guid,
)

DEFAULT_CONTEXT = "."
GLOBAL_CONTEXT = ":.__GLOBAL:"

# JSON of any shape.
Json = Any


def context_of(subject: str) -> str:
    """`:.mill:orders` is in context `.mill`; a subject without a prefix in the default one."""
    if not subject.startswith(":."):
        return DEFAULT_CONTEXT
    context, separator, _ = subject[1:].partition(":")
    return context if separator else DEFAULT_CONTEXT


def bare_subject(subject: str) -> str:
    """A subject without its context."""
    if not subject.startswith(":."):
        return subject
    _, separator, name = subject[1:].partition(":")
    return name if separator else subject


def in_context(context: str, subject: str) -> str:
    """The whole name of a subject."""
    return subject if context == DEFAULT_CONTEXT else f":{context}:{subject}"


def qualified(subject: str) -> str:
    """The name that a subject is kept under: `:.:orders` is `orders`."""
    return in_context(context_of(subject), bare_subject(subject))


class RegistryState:
    """Apply records in order; reading changes nothing."""

    def __init__(self) -> None:
        self.configs: dict[str | None, Mapping[str, Json]] = {}
        self.modes: dict[str | None, str] = {}
        self.contexts: set[str] = {DEFAULT_CONTEXT}
        self.conflicts = 0  # Schemas under an id that another one had: passed over.
        self.version_count = 0
        self.revision = 0  # Another one after each record that changed anything.
        self._subjects: list[str] = []  # In order.
        self._versions: dict[str, dict[int, SchemaValue]] = {}  # Numbers in order.
        self._live: defaultdict[str, int] = defaultdict(int)  # Versions that are not deleted.
        self._by_id: defaultdict[str, dict[int, SchemaText]] = defaultdict(dict)
        self._guids: dict[tuple[str, int], UUID] = {}
        # A registry that schemas were imported from may have a schema under several ids.
        self._ids: defaultdict[str, dict[UUID, list[int]]] = defaultdict(dict)
        self._id_max: defaultdict[str, int] = defaultdict(int)
        self._places: defaultdict[tuple[str, int], set[tuple[str, int]]] = defaultdict(set)
        self._users: defaultdict[tuple[str, int], set[tuple[str, int]]] = defaultdict(set)

    @property
    def id_count(self) -> int:
        """Schemas with an id, of all contexts."""
        return sum(map(len, self._by_id.values()))

    def apply(self, key: Key, value: Value) -> None:
        self.revision += 1
        subject = key.subject
        match key.type, value:
            case KeyType.SCHEMA, SchemaValue():
                self._put(value)
            case KeyType.SCHEMA, None:
                assert subject is not None
                self._remove(subject, key.version)
            case KeyType.DELETE_SUBJECT, DeletedSubject():
                self._delete_softly(value)
            case KeyType.CLEAR_SUBJECT, _:
                for version in list(self._versions.get(subject or "", ())):
                    self._remove(subject or "", version)
            case KeyType.CONFIG, dict():
                self.configs[subject] = value
            case KeyType.CONFIG, None:
                self.configs.pop(subject, None)
            case KeyType.MODE, {"mode": str(mode)}:
                self.modes[subject] = mode
            case KeyType.MODE, None:
                self.modes.pop(subject, None)
            case KeyType.CONTEXT, None:
                self.contexts.discard(key.context)
            case KeyType.CONTEXT, _:
                self.contexts.add(key.context)

    def raise_id(self, context: str, highest: int) -> None:
        """Ids up to `highest` were given: to schemas that may be deleted for good by now."""
        self._id_max[context] = max(self._id_max[context], highest)

    # -- reading -----------------------------------------------------------------------------------

    def subjects(self, *, prefix: str = "", with_deleted: bool = False) -> Iterator[str]:
        """In order. Goes on at the right place if subjects come and go meanwhile."""
        at = bisect_left(self._subjects, prefix)
        while at < len(self._subjects):
            subject = self._subjects[at]
            if not subject.startswith(prefix):
                return
            if with_deleted or self._live[subject]:
                yield subject
            if at < len(self._subjects) and self._subjects[at] == subject:
                at += 1
            else:
                at = bisect_left(self._subjects, subject + "\0")

    def versions(self, subject: str, *, with_deleted: bool = False) -> list[SchemaValue]:
        """In the order of their numbers; empty for a subject that does not exist."""
        known = self._versions.get(subject, {})
        return [value for value in known.values() if with_deleted or not value.is_deleted]

    def version(self, subject: str, number: int) -> SchemaValue | None:
        """Soft-deleted ones too."""
        return self._versions.get(subject, {}).get(number)

    def latest(self, subject: str, *, with_deleted: bool = False) -> SchemaValue | None:
        for value in reversed(self._versions.get(subject, {}).values()):
            if with_deleted or not value.is_deleted:
                return value
        return None

    def exists(self, subject: str, *, with_deleted: bool = False) -> bool:
        return subject in self._versions and (with_deleted or self._live[subject] > 0)

    def next_version(self, subject: str) -> int:
        """Past those that exist, deleted softly or not; 1 after all were deleted for good."""
        return next(reversed(self._versions.get(subject, {})), 0) + 1

    def schema(self, context: str, number: int) -> SchemaText | None:
        return self._by_id[context].get(number) if context in self._by_id else None

    def guid_of(self, context: str, number: int) -> UUID:
        return self._guids[context, number]

    def id_of(self, context: str, schema: SchemaText) -> int | None:
        """The id under which this very schema is known in the context, under any subject."""
        ids = self._ids[context].get(guid(schema)) if context in self._ids else None
        return ids[0] if ids else None

    def with_guid(self, name: UUID) -> Iterator[tuple[str, int]]:
        """The contexts and ids that a schema is known under."""
        for context, ids in sorted(self._ids.items()):
            for number in ids.get(name, ()):
                yield context, number

    def next_id(self, context: str) -> int:
        return self.id_max(context) + 1

    def id_max(self, context: str) -> int:
        return self._id_max.get(context, 0)

    def places(self, context: str, number: int) -> Iterator[SchemaValue]:
        """The versions that have this id."""
        for subject, version in sorted(self._places.get((context, number), ())):
            yield self._versions[subject][version]

    def has_live(self, subject: str, number: int) -> bool:
        """Whether a live version of the subject has this id."""
        versions = self._versions.get(subject)
        return versions is not None and any(
            at == subject and not versions[version].is_deleted
            for at, version in self._places.get((context_of(subject), number), ())
        )

    def users(self, subject: str, version: int) -> list[SchemaValue]:
        """Versions that reference this one and are not deleted for good."""
        values = (self.version(*user) for user in sorted(self._users.get((subject, version), ())))
        return [value for value in values if value is not None]

    def lookup(
        self, subject: str, schema: SchemaText, *, with_deleted: bool = False
    ) -> SchemaValue | None:
        """The newest version of the subject that is this very schema."""
        context = context_of(subject)
        ids = self._ids[context].get(guid(schema), []) if context in self._ids else []
        versions = self._versions.get(subject, {})
        known = (
            versions[version]
            for number in ids
            for at, version in self._places.get((context, number), ())
            if at == subject
        )
        return max(
            (value for value in known if with_deleted or not value.is_deleted),
            key=lambda value: value.version,
            default=None,
        )

    # -- parts -------------------------------------------------------------------------------------

    def _put(self, value: SchemaValue) -> None:
        context, name = context_of(value.subject), guid(value.schema)
        place = (value.subject, value.version)
        previous = self._versions.get(value.subject, {}).get(value.version)
        known = self._guids.get((context, value.id))
        if known is not None and known != name and self._places[context, value.id] != {place}:
            self.conflicts += 1
            return
        if previous is not None:
            self._forget(previous)
        self.contexts.add(context)
        self._add(context, name, value)

    def _add(self, context: str, name: UUID, value: SchemaValue) -> None:
        self._by_id[context][value.id] = value.schema
        self._guids[context, value.id] = name
        ids = self._ids[context].setdefault(name, [])
        if value.id not in ids:
            insort(ids, value.id)
        self.raise_id(context, value.id)
        if value.subject not in self._versions:
            insort(self._subjects, value.subject)
        versions = self._versions.setdefault(value.subject, {})
        is_behind = bool(versions) and value.version < next(reversed(versions))
        versions[value.version] = value
        if is_behind:
            self._versions[value.subject] = dict(sorted(versions.items()))
        self.version_count += 1
        self._live[value.subject] += not value.is_deleted
        self._places[context, value.id].add((value.subject, value.version))
        for reference in value.schema.references:
            self._users[_used(value, reference.subject), reference.version].add(
                (value.subject, value.version)
            )

    def _delete_softly(self, deleted: DeletedSubject) -> None:
        known = self._versions.get(deleted.subject, {})
        for number, value in known.items():
            if number <= deleted.version and not value.is_deleted:
                known[number] = value._replace(is_deleted=True)
                self._live[deleted.subject] -= 1

    def _remove(self, subject: str, version: int) -> None:
        value = self._versions.get(subject, {}).get(version)
        if value is None:
            return
        self._forget(value)
        del self._versions[subject][version]
        if not self._versions[subject]:
            del self._versions[subject]
            del self._live[subject]
            del self._subjects[bisect_left(self._subjects, subject)]

    def _forget(self, value: SchemaValue) -> None:
        """Take a version out of every index; it stays in its subject."""
        context, place = context_of(value.subject), (value.subject, value.version)
        self.version_count -= 1
        self._live[value.subject] -= not value.is_deleted
        for reference in value.schema.references:
            used = (_used(value, reference.subject), reference.version)
            self._users[used].discard(place)
            if not self._users[used]:
                del self._users[used]
        places = self._places[context, value.id]
        places.discard(place)
        if not places:
            del self._places[context, value.id]
            del self._by_id[context][value.id]
            name = self._guids.pop((context, value.id))
            ids = self._ids[context][name]
            ids.remove(value.id)
            if not ids:
                del self._ids[context][name]


def _used(value: SchemaValue, subject: str) -> str:
    """A reference without a context is one of its user's context."""
    return (
        qualified(subject)
        if subject.startswith(":.")
        else in_context(context_of(value.subject), subject)
    )
