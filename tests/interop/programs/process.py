"""A client program in another language, asked in JSON lines.

Owns the process. A question is `{"id", "op", ...}`, its answer `{"id", "result"}` or `{"id",
"error", "message"}` with the error's Kafka name; lines without an id are events that members of a
group tell on their own. Bytes travel as base64, what is absent as null.
"""

import base64
import json
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.interop.ownership import Ownership
from tests.interop.samples import Sample

SECONDS_MAX = 40
Json = dict[str, Any]


class Refused(Exception):
    """The client reports an error; `name` is Kafka's name for it."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.name = name


class Program:
    """A running client. What its members tell is kept: who owns what, and what each one read."""

    def __init__(self, command: Sequence[str | Path], address: str, log: Path) -> None:
        self._log = log
        with log.open("a", encoding="utf-8") as stderr:
            self._process = subprocess.Popen(
                [*command, address],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                bufsize=1,
            )
        self._lines: queue.SimpleQueue[Json | None] = queue.SimpleQueue()
        self._answers: dict[int, Json] = {}
        self._asked = 0
        self.ownership = Ownership()
        self.records: list[Json] = []
        self.errors: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def call(self, op: str, **arguments: object) -> Any:  # Any: what the operation answers with.
        self._asked += 1
        number = self._asked
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"id": number, "op": op, **arguments}) + "\n")
        self._process.stdin.flush()
        self.wait(lambda: number in self._answers, op)
        answer = self._answers.pop(number)
        if "error" in answer:
            raise Refused(answer["error"], answer.get("message", ""))
        return answer.get("result")

    def wait(self, claim: Callable[[], bool], description: str) -> None:
        """Take in what the program tells until the claim holds."""
        deadline = time.monotonic() + SECONDS_MAX
        while not claim():
            left = deadline - time.monotonic()
            line: Json | None = {}
            with suppress(queue.Empty):
                line = self._lines.get(timeout=max(left, 0.001))
            assert left > 0, f"in vain for {SECONDS_MAX} s: {description}\n{self.stderr_text()}"
            assert line is not None, f"the program ended: {description}\n{self.stderr_text()}"
            self._take(line)

    def stderr_text(self) -> str:
        """What a failed wait should show."""
        numbers = f"{len(self.records)} records, errors {self.errors}, {self.ownership.__dict__}"
        return f"{numbers}\n{self._log.read_text(encoding='utf-8')[-4_000:]}"

    def values_of(self, *members: str) -> list[str]:
        return [record["value"] for record in self.records if record["member"] in members]

    def kill(self) -> None:
        """kill -9: its members say no goodbye."""
        self._process.kill()
        self._process.wait()
        self._reader.join(timeout=5)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()

    def _take(self, line: Json) -> None:
        match line:
            case {"id": number}:
                self._answers[number] = line
            case {"event": "assigned"}:
                self.ownership.take(line["member"], line["partitions"])
            case {"event": "revoked"}:
                self.ownership.give_up(line["member"], line["partitions"])
            case {"event": "record"}:
                self.records.append(line)
            case {"event": "error"}:
                self.errors.append(line["error"])

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(json.loads(line))
        self._lines.put(None)


# -- records on their way -----------------------------------------------------------------------


def to_wire(samples: Iterable[Sample], partition: int = 0) -> list[Json]:
    return [
        {
            "partition": partition,
            "key": _encoded(item.key),
            "value": _encoded(item.value),
            "headers": [[name, _encoded(value)] for name, value in item.headers],
            "timestamp": item.timestamp_ms,
        }
        for item in samples
    ]


def from_wire(records: Iterable[Json]) -> list[Sample]:
    return [
        Sample(
            _decoded(record["key"]),
            _decoded(record["value"]),
            [(name, base64.b64decode(value)) for name, value in record["headers"] or []],
            record["timestamp"],
        )
        for record in records
    ]


def plain(values: Iterable[str], partition: int | None = 0) -> list[Json]:
    """Records that have a value only, as the program takes them."""
    return [{"partition": partition, "value": _encoded(value.encode())} for value in values]


def _encoded(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _decoded(value: str | None) -> bytes | None:
    return None if value is None else base64.b64decode(value)
