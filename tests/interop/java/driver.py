"""The Java program of this folder as a process: one request, one answer.

Owns the process, which starts with the first request and serves many tests, because a JVM takes
long to start. A process that does not answer in time is killed; the next request starts another.
"""

import json
import select
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

ANSWER_SECONDS_MAX = 90


class JavaError(Exception):
    """What Java threw: the class of the exception, then those of its causes."""

    def __init__(self, errors: list[str], message: str) -> None:
        super().__init__(f"{' < '.join(errors)}: {message}")
        self.errors = errors


class Driver:
    def __init__(self, command: list[str], log: Path) -> None:
        self._command, self._log = command, log
        self._process: subprocess.Popen[str] | None = None

    def ask(self, verb: str, parameters: Mapping[str, object]) -> Any:  # JSON, as it comes.
        self.tell(verb, parameters)
        return self.hear()

    def tell(self, verb: str, parameters: Mapping[str, object]) -> None:
        """Send a request and do not wait; nothing else may be asked before `hear`."""
        process = self._running()
        assert process.stdin is not None
        process.stdin.write(f"{verb}?{urlencode(parameters, doseq=True)}\n")
        process.stdin.flush()

    @property
    def has_answered(self) -> bool:
        return self._is_readable_in(0)

    def hear(self) -> Any:  # JSON, as it comes.
        process = self._running()
        assert process.stdout is not None
        line = process.stdout.readline() if self._is_readable_in(ANSWER_SECONDS_MAX) else ""
        if not line:
            self.stop()
            raise AssertionError(f"no answer in {ANSWER_SECONDS_MAX} s\n{self._tail()}")
        answer = json.loads(line)
        if "errors" in answer:
            raise JavaError(answer["errors"], answer["message"])
        return answer["answer"]

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            with self._log.open("a", encoding="utf-8") as log:
                self._process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    encoding="utf-8",
                )
        return self._process

    def _is_readable_in(self, seconds: float) -> bool:
        # One answer for one request: nothing can lie in the buffer that select does not see.
        return bool(select.select([self._running().stdout], [], [], seconds)[0])  # type: ignore[type-var]

    def _tail(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")[-4_000:]
