"""Takes the progress of a streaming query as it comes, each batch once.

Spark keeps the progress of the last hundred batches, and `recentProgress` turns each into Python.
So this module reads `lastProgress`, and `recentProgress` only if batches came in between.
"""

import json
from collections.abc import Sequence
from typing import Any, Protocol

# Any: JSON whose shape Spark decides.
Json = dict[str, Any]


class Progress(Protocol):
    """The part of `StreamingQueryProgress` that this module needs."""

    @property
    def json(self) -> str: ...


class WatchedQuery(Protocol):
    """The part of `StreamingQuery` that this module needs. The names are Spark's."""

    @property
    def lastProgress(self) -> Progress | None: ...  # noqa: N802

    @property
    def recentProgress(self) -> Sequence[Progress]: ...  # noqa: N802


class NewProgress:
    """Returns the progress of one query that is new since the last call. Keeps one progress."""

    def __init__(self, query: WatchedQuery) -> None:
        self._query = query
        self._last: Json | None = None

    def take(self) -> list[Json]:
        progress = self._query.lastProgress
        if progress is None:
            return []
        last: Json = json.loads(progress.json)
        if self._last is not None and _moment(last) == _moment(self._last):
            return []
        if self._last is not None and _follows(self._last, last):
            new = [last]
        else:
            recent = [json.loads(entry.json) for entry in self._query.recentProgress]
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
    """The batch and the time of its trigger, whose text sorts by time."""
    return progress["batchId"], progress["timestamp"]
