"""A schema registry over real HTTP, as much of it as serdes ask for, in memory."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


class RegistryServer(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.schemas: list[dict[str, str]] = []  # Their numbers count from 1.
        self.asked: list[str] = []
        self.logins: set[str | None] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def running_registry() -> Iterator[RegistryServer]:
    with RegistryServer() as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: RegistryServer

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        schema = {"schema": asked["schema"], "schemaType": asked["schemaType"]}
        self._note()
        if "forbidden" in self.path:
            self._answer(409, {"error_code": 409, "message": "it breaks its readers"})
            return
        if schema not in self.server.schemas:
            self.server.schemas.append(schema)
        self._answer(200, {"id": self.server.schemas.index(schema) + 1})

    def do_GET(self) -> None:
        self._note()
        number = int(self.path.rpartition("/")[2])
        if not 0 < number <= len(self.server.schemas):
            self._answer(404, {"error_code": 40403, "message": "Schema not found"})
            return
        self._answer(200, self.server.schemas[number - 1])

    def log_message(self, *_: object) -> None:
        """Nothing on standard error."""

    def _note(self) -> None:
        self.server.asked.append(f"{self.command} {self.path}")
        self.server.logins.add(self.headers["Authorization"])

    def _answer(self, code: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
