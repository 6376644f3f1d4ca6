"""Terms: what a secondary index is asked for, and the 32 bits that stand for each.

A term is a field (the key, or a header by name) and a content. Contents that a filter takes as the
same number have one hash, so `header.n == 7` and `header.n == '7'` use the same index.

Invariant: equal contents of one field have equal hashes, and so have contents that are equal as
numbers. Different ones may share a hash: then a batch is read in vain.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple, TypeAlias
from zlib import crc32

from millstream.codec.records import Record
from millstream.settings import TopicSettings

ANY_HASH = 0  # Of batches that cannot be decoded: they may hold anything.
NUMBER_LENGTH_MAX = 400  # As long as the longest float; no header makes us read a million digits.

# All that Python's `int` and `float` take of bytes; underscores are no part of a filter's numbers.
_NUMBER_BYTES = b"0123456789+-.eE \t\n\r\x0b\x0cinfatyINFATY"
_KEY_SEED = crc32(b"key")
_HEADER_PREFIX = b"header."


class IndexedFields(NamedTuple):
    """The fields that an index has."""

    key: bool = False
    headers: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.key or bool(self.headers)

    def has(self, field: str | None) -> bool:
        return self.key if field is None else field in self.headers


def fields_of(settings: TopicSettings) -> IndexedFields:
    """The fields that a topic with these settings has indexed."""
    names = [name.strip() for name in settings.index_headers.split(",")]
    return IndexedFields(settings.index_key, tuple(sorted({name for name in names if name})))


class Term(NamedTuple):
    """A record has this content in this field; None: the key."""

    field: str | None
    content: bytes

    @property
    def hash(self) -> int:
        return hash_content(seed_of(self.field), self.content)


class EveryTerm(NamedTuple):
    """A record has all of these."""

    parts: "tuple[Terms, ...]"


class AnyTerm(NamedTuple):
    """A record has at least one of these."""

    parts: "tuple[Terms, ...]"


Terms: TypeAlias = Term | EveryTerm | AnyTerm


def answerable(terms: Terms, fields: IndexedFields) -> Terms | None:
    """The part of `terms` that an index of these fields answers; None if every batch may match."""
    match terms:
        case Term(field):
            return terms if fields.has(field) else None
        case EveryTerm(parts):
            known = [part for part in (answerable(each, fields) for each in parts) if part]
            return EveryTerm(tuple(known)) if known else None
        case AnyTerm(parts):
            each_known = [answerable(part, fields) for part in parts]
            known = [part for part in each_known if part is not None]
            return AnyTerm(tuple(known)) if len(known) == len(parts) else None


def number_content(number: float) -> bytes:
    """A content that has the hash of all contents that equal `number`."""
    return repr(number).encode()


def seed_of(field: str | None) -> int:
    if field is None:
        return _KEY_SEED
    return crc32(_HEADER_PREFIX + field.encode("utf-8", "surrogatepass"))


def hash_content(seed: int, content: bytes) -> int:
    if content.isdigit():
        content = content.lstrip(b"0") or b"0"
    elif len(content) <= NUMBER_LENGTH_MAX and not content.translate(None, _NUMBER_BYTES):
        content = _canonical(content)
    return crc32(content, seed) or 1  # 0 is `ANY_HASH`.


def _canonical(content: bytes) -> bytes:
    """The shortest spelling of a number; anything else as it is."""
    with suppress(ValueError):
        return b"%d" % int(content)
    with suppress(ValueError):
        number = float(content)
        return b"%d" % int(number) if number.is_integer() else repr(number).encode()
    return content


def hash_records(records: Sequence[Record], fields: IndexedFields) -> set[int]:
    """The hashes of all terms of these records."""
    # Every header of a name counts, though a filter looks at the last one only.
    hashes: set[int] = set()
    if fields.key:
        keys = {record.key for record in records}
        keys.discard(None)
        hashes.update([hash_content(_KEY_SEED, key) for key in keys if key is not None])
    if fields.headers:
        seeds = {name: seed_of(name) for name in fields.headers}
        values = {header for record in records for header in record.headers if header[0] in seeds}
        hashes.update(
            [hash_content(seeds[name], value) for name, value in values if value is not None]
        )
    return hashes
