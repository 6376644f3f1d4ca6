"""Takes the progress of a streaming query as it comes, each batch once.

Spark keeps the progress of the last hundred batches, and `recentProgress` turns each into Python.
So this module reads `lastProgress`, and `recentProgress` only if batches came in between.
"""

import json
from collections.abc import Sequence
from typing import Any, Protocol

# JSON of Spark's, whose shape is Spark's business: hence Any.
Json = dict[str, Any]


class Progress(Protocol):
    """Of `StreamingQueryProgress`, all that is needed here."""

    @property
    def json(self) -> str: ...


class WatchedQuery(Protocol):
    """Of `StreamingQuery`, all that is needed here. The names are Spark's."""

    @property
    def lastProgress(self) -> Progress | None: ...  # noqa: N802

    @property
    def recentProgress(self) -> Sequence[Progress]: ...  # noqa: N802


class NewProgress:
    """What is new of one query since it was last asked. Remembers one progress."""

    def __init__(self, query: WatchedQuery) -> None:
        self._query = query
        self._last: Json | None = None

    def take(self) -> list[Json]:
        found = self._query.lastProgress
        if found is None:
            return []
        last: Json = json.loads(found.json)
        if self._last is not None and _moment(last) == _moment(self._last):
            return []
        if self._last is not None and _follows(self._last, last):
            new = [last]
        else:
            recent = [json.loads(one.json) for one in self._query.recentProgress]
            new = [p for p in recent if self._last is None or _moment(p) > _moment(self._last)]
        self._last = new[-1] if new else last
        return new


def _follows(earlier: Json, later: Json) -> bool:
    """Whether no batch was run between the two.

    A query that waits reports progress of the batch that it is about to run, with no rows.
    """
    was_run = "addBatch" in earlier["durationMs"]
    return bool(later["batchId"] == earlier["batchId"] + (1 if was_run else 0))


def _moment(progress: Json) -> tuple[int, str]:
    """Batches are numbered, and the times of their triggers are spelt so that text is in order."""
    return progress["batchId"], progress["timestamp"]
