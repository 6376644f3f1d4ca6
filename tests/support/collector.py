"""A collector of OpenTelemetry: an HTTP server that keeps the spans it receives by OTLP."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.kafka_clients import until


class Collector:
    # Any: messages of Protobuf, whose classes are made at run time.
    def __init__(self) -> None:
        self.status = 200
        self.request_count = 0
        self.paths: set[str] = set()
        self._received: list[tuple[dict[str, Any], Any]] = []
        self.endpoint = ""

    def receive(self, path: str, body: bytes) -> None:
        self.request_count += 1
        self.paths.add(path)
        if self.status != 200:
            return
        request = ExportTraceServiceRequest.FromString(body)
        for resource in request.resource_spans:
            attributes = attributes_of(resource.resource)
            for scope in resource.scope_spans:
                self._received += [(attributes, span) for span in scope.spans]

    @property
    def spans(self) -> list[Any]:
        return [span for _, span in list(self._received)]

    @property
    def resources(self) -> list[dict[str, Any]]:
        return [resource for resource, _ in list(self._received)]

    def named(self, name: str, count: int = 1) -> list[Any]:
        """The spans of this name, once there are so many."""

        def matching() -> list[Any]:
            return [span for span in self.spans if span.name == name]

        until(lambda: len(matching()) >= count, f"{count} spans {name!r}")
        return matching()


def attributes_of(described: Any) -> dict[str, Any]:
    return {
        pair.key: getattr(pair.value, pair.value.WhichOneof("value"))
        for pair in described.attributes
    }


@contextmanager
def collector() -> Iterator[Collector]:
    kept = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            kept.receive(self.path, body)
            self.send_response(kept.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            """Nothing: pytest shows the output of a failing test."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        serving.start()
        kept.endpoint = f"http://127.0.0.1:{server.server_port}"
        try:
            yield kept
        finally:
            server.shutdown()
            serving.join()
