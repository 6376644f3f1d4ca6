"""Reports a pipeline's state while it runs, and obeys commands for it.

A thread of its own writes the report when it changed, at most once a second, and as a sign of life.
Invariant: a report that cannot be written never fails or delays the pipeline.
"""

import logging
import os
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Self

import msgspec

from millstream.errors import MillstreamError, ProtocolError
from millstream.kafka_client.errors import TransientError
from millstream.spark.pipelines.runner import Outline
from millstream.spark.pipelines.status.report import (
    Command,
    FlowReport,
    PipelineReport,
    State,
    added,
    command_for,
    now_ms,
)
from millstream.spark.pipelines.status.topic import StatusTopic
from millstream.spark.pipelines.summaries import Progress

log = logging.getLogger(__name__)

INTERVAL_SECONDS = 1.0
LIFE_SIGN_MS = 10_000

_FAILURES = (MillstreamError, ProtocolError, TransientError, OSError)


def first_report(
    name: str, outlines: Iterable[Outline], *, is_continuous: bool, trigger_seconds: float
) -> PipelineReport:
    """The report of a pipeline that starts here and now."""
    flows = [
        FlowReport(
            name=flow.flow, does=flow.does, reads=flow.reads, writes=flow.writes, table=flow.table
        )
        for flow in outlines
    ]
    return PipelineReport(
        name=name,
        state="running",
        flows=flows,
        is_continuous=is_continuous,
        trigger_ms=round(trigger_seconds * 1000) if is_continuous else 0,
        started_ms=now_ms(),
        updated_ms=now_ms(),
        host=socket.gethostname(),
        pid=os.getpid(),
    )


class Reporter:
    """A context manager. `stop` is called when a command asks the pipeline to end."""

    def __init__(
        self,
        report: PipelineReport,
        stop: Callable[[], None],
        bootstrap: str,
        client_options: Mapping[str, str],
    ) -> None:
        self.command: Command | None = None
        self._report = report
        self._stop = stop
        self._connection = (bootstrap, client_options)
        self._lock = threading.Lock()
        self._is_changed = True
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pipeline-reports", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, problem: object, _: object) -> None:
        if kind is not None:
            self.end("failed", str(problem) or kind.__name__)
        elif self._report.state == "running":
            self.end("done")
        self._ended.set()
        self._thread.join()

    def add(self, progress: Progress) -> None:
        with self._lock:
            self._report = added(self._report, progress)
            self._is_changed = True

    def end(self, state: State, error: str | None = None) -> None:
        with self._lock:
            self._report = msgspec.structs.replace(self._report, state=state, error=error)
            self._is_changed = True

    def _run(self) -> None:
        is_told, is_created = False, False
        with StatusTopic(*self._connection) as topic:
            is_over = False
            while not is_over:
                # One more turn after the end, for the last report.
                is_over = self._ended.wait(INTERVAL_SECONDS if is_created else 0)
                try:
                    if not is_created:
                        topic.create()
                        is_created = True
                    self._write(topic)
                    self._obey(topic)
                except _FAILURES as problem:
                    if not is_told:
                        log.warning("could not report name=%s: %s", self._report.name, problem)
                    is_told, is_created = True, True

    def _write(self, topic: StatusTopic) -> None:
        with self._lock:
            is_due = now_ms() - self._report.updated_ms >= LIFE_SIGN_MS
            if not (self._is_changed or is_due):
                return
            self._report = msgspec.structs.replace(self._report, updated_ms=now_ms())
            self._is_changed = False
            report = self._report
        topic.write(report.name, msgspec.json.encode(report))

    def _obey(self, topic: StatusTopic) -> None:
        if self.command is not None:
            return
        self.command = command_for(topic.read(), self._report.name, self._report.started_ms)
        if self.command is not None:
            self._stop()
