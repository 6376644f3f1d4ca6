"""Names a streaming query to the broker by its own id, which Spark keeps in the checkpoint.

A checkpoint location has many spellings (`/a/ck`, `/a//ck`, `file:/a/ck`, a relative path), a query
has one id. The id lies in `<checkpoint>/metadata`, which Spark writes before a query's first batch.
Writers are made in Python processes without a JVM, so a checkpoint on a remote file system can't be
read: there, the location in one spelling stands for the query.

Invariant: the same checkpoint gets the same name in every run, however its location is written,
where its metadata can be read.
"""

import hashlib
import json
import posixpath
import re
from dataclasses import dataclass
from pathlib import Path

from millstream.spark.errors import InvalidOption

_METADATA = "metadata"
_URI = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?://(?P<authority>[^/]*))?(?P<path>.*)")
_ANOTHER_NAME = "set transactionalIdPrefix to a name of your own for this query"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryIdentity:
    """The name of a query in the broker. `former_names` are those that earlier versions gave it."""

    name: str
    query_id: str | None = None  # None: the name is not made of it, or no query has one yet.
    former_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Location:
    """A checkpoint location, split and with its path in one spelling."""

    scheme: str  # In lower case; empty: that of Spark's default file system.
    authority: str
    path: str

    @property
    def may_be_local(self) -> bool:
        return self.scheme in ("", "file") and not self.authority

    @property
    def normal(self) -> str:
        if not self.scheme:
            return self.path
        return f"{self.scheme}://{self.authority}{self.path}"


def checkpoint_identity(location: str) -> QueryIdentity:
    """Name the query of a checkpoint; raises `InvalidOption` if its metadata can't be understood.

    A path without a scheme is on Spark's default file system, which may be a remote one: it is
    looked for on the local one, and counts as remote if it is not there.
    """
    parsed = _parse(location)
    query_id = _local_query_id(parsed) if parsed.may_be_local else None
    name = query_id or _digest(parsed.normal)
    former = (_digest(text) for text in _former_spellings(location, parsed))
    return QueryIdentity(
        name=name,
        query_id=query_id,
        former_names=tuple(old for old in dict.fromkeys(former) if old != name),
    )


def _parse(location: str) -> _Location:
    match = _URI.fullmatch(location)
    if match is None:
        return _Location("", "", _normal(location))
    path = _normal(match["path"]) if match["path"] else ""
    return _Location(match["scheme"].lower(), (match["authority"] or "").lower(), path)


def _normal(path: str) -> str:
    """As Hadoop does: without empty parts, dots and a slash at the end; %20 is no blank there."""
    normal = posixpath.normpath(path)
    return normal.replace("//", "/", 1) if normal.startswith("//") else normal


def _local_query_id(location: _Location) -> str | None:
    # A relative path begins at the working directory of the driver's JVM, which is this one's too.
    path = Path(location.path) / _METADATA
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        if not location.scheme:
            return None
        raise InvalidOption(
            f"checkpointLocation {location.normal} has no file {_METADATA}, which says the id of "
            f"the query; {_ANOTHER_NAME}"
        ) from None
    except (OSError, ValueError) as problem:
        raise InvalidOption(f"{path} can't be read: {problem}; {_ANOTHER_NAME}") from None
    try:
        return str(json.loads(text)["id"])
    except (KeyError, TypeError, ValueError):
        raise InvalidOption(
            f'{path} is {text[:80]!r}, expected {{"id": "..."}} as Spark writes it; {_ANOTHER_NAME}'
        ) from None


def _former_spellings(location: str, parsed: _Location) -> list[str]:
    """The texts that earlier versions made the name of: the option as it was written."""
    spellings = [location.rstrip("/"), parsed.normal]
    if parsed.may_be_local:
        path = str(Path(parsed.path).absolute())
        spellings += [path, f"file:{path}", f"file://{path}"]
    return spellings


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:24]
