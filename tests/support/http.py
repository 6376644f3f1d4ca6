"""A node with its HTTP listener in the test's process, and a client that speaks to it in JSON."""

import base64
import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from millstream.config import Config, Http
from millstream.embedding.blocking import BlockingBroker
from millstream.security.secrets import Secret
from millstream.security.settings import Security

ADMIN_PASSWORD = "of the mill"


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]  # Names in lower case.
    text: bytes

    # Any: whatever the broker says.
    @property
    def json(self) -> Any:
        return json.loads(self.text)


class HttpClient:
    """A connection for each request, or one for all inside a `with` block of its own."""

    def __init__(self, port: int, host: str = "127.0.0.1", *, login: str = "") -> None:
        self.port = port
        self.host = host
        self.headers: dict[str, str] = {}
        if login:
            word = base64.b64encode(login.encode()).decode()
            self.headers["Authorization"] = f"Basic {word}"

    def as_user(self, user: str, password: str) -> "HttpClient":
        return HttpClient(self.port, self.host, login=f"{user}:{password}")

    def __call__(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        headers: dict[str, str] | None = None,
        raw: bytes | None = None,
    ) -> Answer:
        sent = self.headers | (headers or {})
        data = raw
        if body is not None:
            data = json.dumps(body).encode()
            sent.setdefault("Content-Type", "application/json")
        connection = http.client.HTTPConnection(self.host, self.port, timeout=30)
        try:
            connection.request(method, path, data, sent)
            response = connection.getresponse()
            names = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, names, response.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self("GET", path, headers=headers)

    def post(self, path: str, body: object = None, **headers: str) -> Answer:
        return self("POST", path, body, headers=headers)


class HttpNode(NamedTuple):
    broker: BlockingBroker
    ask: HttpClient


@contextmanager
def http_node(settings: Http | None = None, **config: Any) -> Iterator[HttpNode]:
    """A broker in memory with Kafka and HTTP. `config` are fields of `Config`."""
    values = {"storage": "memory", "port": 0, "listeners": ("kafka", "http"), **config}
    with BlockingBroker(Config(http=settings or Http(), **values)) as broker:
        yield HttpNode(broker, HttpClient(broker.call(lambda b: b.addresses["http"].port)))


@contextmanager
def secured_http_node(directory: Path, **security: Any) -> Iterator[HttpNode]:
    """The same with logins; `ask` asks as the first user, who may do everything."""
    secret = directory / "admin"
    secret.write_text(ADMIN_PASSWORD)
    secret.chmod(0o600)
    settings = Security(
        protocol="sasl_plaintext",
        admin_password=Secret(f"file:{secret}"),
        scram_iterations=4096,
        **security,
    )
    with http_node(security=settings) as node:
        yield node._replace(ask=node.ask.as_user("admin", ADMIN_PASSWORD))
