"""JetStream's own requests: a stream is made, proven and removed with them."""

import base64
import json
import socket
from collections.abc import Iterable
from typing import Any

from benchmarks.kafka.job import Broken
from benchmarks.protocols.wire import NATS_GREETING, value

SECONDS_MAX = 30


class Streams:
    """Makes, proves and removes streams. Use it as a context."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), timeout=SECONDS_MAX)
        self._lines = self._socket.makefile("rb")
        self._lines.readline()
        self._socket.sendall(NATS_GREETING + b"SUB _INBOX.admin 1\r\n")

    def __enter__(self) -> "Streams":
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()
        self._socket.close()

    def create(self, stream: str) -> None:
        """Kept in files, on one node; all else is the default."""
        settings: dict[str, object] = {
            "name": stream,
            "subjects": [f"{stream}.>"],
            "storage": "file",
        }
        self._ask(f"STREAM.CREATE.{stream}", settings)

    def delete(self, stream: str) -> None:
        self._ask(f"STREAM.DELETE.{stream}", {})

    def check(self, stream: str, *, size: int, count: int, samples: Iterable[int]) -> None:
        """Prove that a stream holds `count` records: by its state, and by the value of some."""
        state = self._ask(f"STREAM.INFO.{stream}", {})["state"]
        if state["messages"] != count or state["last_seq"] != count:
            raise Broken(f"{stream} holds {state['messages']}, {count} were acknowledged")
        for number in samples:
            answer = self._ask(f"STREAM.MSG.GET.{stream}", {"seq": number + 1})
            if base64.b64decode(answer["message"]["data"]) != value(number, size):
                raise Broken(f"record {number} of {stream} was not read back")

    # Any: JSON of many shapes, of which the callers know a few fields.
    def _ask(self, subject: str, content: dict[str, object]) -> dict[str, Any]:
        body = json.dumps(content).encode()
        head = f"PUB $JS.API.{subject} _INBOX.admin {len(body)}\r\n".encode()
        self._socket.sendall(head + body + b"\r\n")
        while not (line := self._lines.readline()).startswith(b"MSG "):
            if not line or line.startswith(b"-ERR"):
                raise Broken(f"JetStream said {line!r} to {subject}")
        answer: dict[str, Any] = json.loads(self._lines.read(int(line.split()[-1])))
        if "error" in answer:
            raise Broken(f"{subject}: {answer['error']}")
        return answer
