"""Takes the progress of streaming queries as Spark's listener tells it, each batch once.

Spark calls a listener once per trigger, in a thread of its own and in order, and at last with the
end of the query. So nothing asks Spark in a loop what is new.
"""

import json
import threading
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

# Any: JSON whose shape Spark decides.
Json = dict[str, Any]


class ProgressListener(StreamingQueryListener):
    """Keeps the progress of each run until it is taken. Method names are Spark's."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._progress: dict[str, list[Json]] = {}
        self._ended: dict[str, threading.Event] = {}

    def take(self, run_id: str) -> list[Json]:
        """The progress of one run that is new since the last call."""
        with self._lock:
            return self._progress.pop(run_id, [])

    def wait_ended(self, run_id: str, seconds: float) -> bool:
        """Wait until Spark has told all of a run, its end included."""
        return self._end_of(run_id).wait(seconds)

    def has_ended(self, run_id: str) -> bool:
        return self._end_of(run_id).is_set()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        return

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        progress = event.progress
        with self._lock:
            self._progress.setdefault(str(progress.runId), []).append(json.loads(progress.json))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        return

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        self._end_of(str(event.runId)).set()

    def _end_of(self, run_id: str) -> threading.Event:
        with self._lock:
            return self._ended.setdefault(run_id, threading.Event())
