"""An HTTP server whose requests leave spans, for nodes with a `tracing.endpoint`.

A request with a sampled `traceparent` continues that trace. The span of a stream ends with its
head, as its time in the metrics does.
"""

from typing import Any

from millstream.metrics import Histogram
from millstream.protocols.http.serving import Exchange, Reply, Server
from millstream.tracing import conventions
from millstream.tracing.spans import TRACEPARENT, Span, Tracer, read_traceparent

_STATUS = slice(len("HTTP/1.1 "), len("HTTP/1.1 200"))
_FIRST_SERVER_ERROR = 500
# Clients choose methods: what no route has is one value, as the conventions ask for.
_OTHER_METHOD = "_OTHER"


class TracedServer(Server):
    def __init__(self, tracer: Tracer, *services: Any) -> None:
        super().__init__(*services)  # As `Server` has them.
        self._tracer = tracer

    def _observe(self, exchange: Exchange, reply: Reply) -> Histogram | None:
        seconds = super()._observe(exchange, reply)
        if seconds is None:
            return None
        context = read_traceparent(exchange.request.headers.get(TRACEPARENT, ""))
        is_sampled = self._tracer.begins_trace() if context is None else context.is_sampled
        if not is_sampled:
            return seconds
        route, method = "", _OTHER_METHOD
        if exchange.match is not None:
            route, method = exchange.match.route.path, exchange.match.route.method
        status = int(bytes(reply[0][_STATUS]))
        error = str(status) if status >= _FIRST_SERVER_ERROR else ""
        took_s = self.services.elapsed_s() - exchange.began_s
        ended_ns = self._tracer.now_ns()
        span = Span(
            name=f"{method} {route}" if route else "HTTP",
            began_ns=ended_ns - int(took_s * 1e9),
            ended_ns=ended_ns,
            attributes=conventions.http(method, route, status, error=error),
            contexts=() if context is None else (context,),
            error=error,
        )
        trace_id = self._tracer.end(span)
        if trace_id:
            seconds.exemplify(took_s, trace_id, ended_ns / 1e9)
        return seconds
