"""Sends spans by OTLP over HTTP, with OpenTelemetry's SDK (the extra `tracing`).

Loaded only by a node with a `tracing.endpoint`. The event loop puts spans into a bounded queue;
a thread takes them out, builds the SDK's objects and sends them. The SDK reads `OTEL_*` variables:
headers, certificates, timeout, compression, attributes of the resource.
"""

import asyncio
import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from millstream import __version__
from millstream.metrics import SPANS_DROPPED, Metrics
from millstream.tracing.settings import Tracing
from millstream.tracing.spans import Span, TraceContext

QUEUE_SPANS_MAX = 8_192
EXPORT_SPANS_MAX = 512
EXPORT_DELAY_S = 1.0  # From the first span in the queue until all of them are sent.
STOP_S_MAX = 2.0
TRACES_PATH = "/v1/traces"
DEFAULT_SERVICE_NAME = "millstream"

_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_log = logging.getLogger(__name__)


class _Queued(NamedTuple):
    span: Span
    trace_id: int
    span_id: int


class OtlpTracer:
    """Implements `Tracer`. The thread begins with the first span."""

    def __init__(self, settings: Tracing, metrics: Metrics, *, instance_id: str) -> None:
        self._settings = settings
        self._dropped = metrics.counter(SPANS_DROPPED)
        self._resource = _resource(settings, instance_id)
        self._scope = InstrumentationScope("millstream", __version__)
        self._exporter = OTLPSpanExporter(endpoint=traces_address(settings.endpoint))
        self._shut_down: Callable[[], None] = self._exporter.shutdown
        self._random = random.Random()
        self._second, self._in_second = 0, 0
        self._queue: deque[_Queued] = deque()
        self._filled = threading.Event()
        self._stopping = threading.Event()
        self._ended = threading.Event()  # Of the exporter.
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def now_ns(self) -> int:
        return time.time_ns()

    def begins_trace(self) -> bool:
        rate = self._settings.sample_rate
        return rate > 0 and self._random.random() < rate

    def end(self, span: Span) -> str:
        if not self._has_room(span.ended_ns // 10**9):
            self._drop(1)
            return ""
        parent = _parent(span)
        trace_id = self._id(128) if parent is None else parent.trace_id
        self._queue.append(_Queued(span, trace_id, self._id(64)))
        if self._thread is None:
            self._loop = asyncio.get_running_loop()
            self._thread = threading.Thread(target=self._run, name="otlp", daemon=True)
            self._thread.start()
        if not self._filled.is_set():
            self._filled.set()
        return f"{trace_id:032x}"

    def stop(self) -> None:
        self._stopping.set()
        self._filled.set()
        if self._thread is None:
            self._end_exporter()

    def close(self) -> None:
        self.stop()
        if self._thread is not None:
            self._thread.join(STOP_S_MAX)
            self._end_exporter()  # It interrupts an export that tries again.
            self._thread.join(STOP_S_MAX)

    # -- of the event loop -----------------------------------------------------------------------

    def _has_room(self, second: int) -> bool:
        if second != self._second:
            self._second, self._in_second = second, 0
        self._in_second += 1
        is_stopping = self._stopping.is_set()
        return (
            not is_stopping
            and self._in_second <= self._settings.spans_per_s_max
            and len(self._queue) < QUEUE_SPANS_MAX
        )

    def _id(self, bits: int) -> int:
        return self._random.getrandbits(bits) or 1  # 0 is no id.

    def _drop(self, count: int) -> None:
        self._dropped.value += count

    # -- of the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._filled.wait()
            self._stopping.wait(EXPORT_DELAY_S)
            self._filled.clear()  # Before the queue is emptied: a later span sets it again.
            self._send_all()
        self._send_all()
        self._end_exporter()

    def _send_all(self) -> None:
        while self._queue:
            count = min(len(self._queue), EXPORT_SPANS_MAX)
            spans = [self._built(self._queue.popleft()) for _ in range(count)]
            try:
                outcome = self._exporter.export(spans)
            except Exception:  # Of the exporter: a broker without traces is still a broker.
                _log.exception("spans could not be sent endpoint=%s", self._settings.endpoint)
                outcome = SpanExportResult.FAILURE
            if outcome is not SpanExportResult.SUCCESS:
                assert self._loop is not None
                with suppress(RuntimeError):  # The loop has ended.
                    self._loop.call_soon_threadsafe(self._drop, count)

    def _built(self, queued: _Queued) -> ReadableSpan:
        span, parent = queued.span, _parent(queued.span)
        links = () if parent is not None else [Link(_remote(each)) for each in span.contexts]
        return ReadableSpan(
            name=span.name,
            context=SpanContext(queued.trace_id, queued.span_id, False, _SAMPLED),
            parent=None if parent is None else _remote(parent),
            resource=self._resource,
            attributes=dict(span.attributes),
            events=[Event(name, timestamp=at_ns) for name, at_ns in span.events],
            links=links,
            kind=SpanKind.SERVER,
            status=Status(StatusCode.ERROR if span.error else StatusCode.UNSET),
            start_time=span.began_ns,
            end_time=span.ended_ns,
            instrumentation_scope=self._scope,
        )

    def _end_exporter(self) -> None:
        if not self._ended.is_set():
            self._ended.set()
            self._shut_down()


def traces_address(endpoint: str) -> str:
    """The address of traces at a collector that is named with or without the path."""
    _, _, behind = endpoint.partition("://")
    _, _, path = behind.partition("/")
    return endpoint if path else endpoint.rstrip("/") + TRACES_PATH


def _resource(settings: Tracing, instance_id: str) -> Resource:
    attributes = {"service.version": __version__, "service.instance.id": instance_id}
    if settings.service_name:
        attributes[SERVICE_NAME] = settings.service_name
    resource = Resource.create(attributes)
    if str(resource.attributes[SERVICE_NAME]).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: DEFAULT_SERVICE_NAME}))
    return resource


def _parent(span: Span) -> TraceContext | None:
    contexts: Sequence[TraceContext] = span.contexts
    return contexts[0] if len(contexts) == 1 and not span.is_linked else None


def _remote(context: TraceContext) -> SpanContext:
    return SpanContext(context.trace_id, context.span_id, True, _SAMPLED)
