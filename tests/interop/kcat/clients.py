"""kcat as a process: one that runs to its end, and one that is kept running beside the test."""

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SECONDS_MAX = 30
Json = dict[str, Any]  # Any: what kcat's JSON holds.
# "rebalanced (...): assigned: t [0]" or "rebalanced: incremental assignment of ...: t [0]".
CHANGED = re.compile(r"rebalanced.*?\b(assign|revo)\w+(.*)")
# kcat takes its input in blocks of this size, and passes over lines without a word.
EMPTY_LINES = "\n" * 1024
PARTITION = re.compile(r"\[(\d+)\]")


class Kcat:
    def __init__(self, program: str, address: str) -> None:
        self._command = [program, "-b", address, "-m", "20"]

    def run(self, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Run to the end, whatever it is."""
        return subprocess.run(
            [*self._command, *arguments],
            input=stdin,
            capture_output=True,
            timeout=SECONDS_MAX,
            check=False,
        )

    def ask(self, *arguments: str, stdin: bytes = b"") -> bytes:
        """Run to a good end and return what was printed."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    def refusal(self, *arguments: str, stdin: bytes = b"") -> str:
        """Run to a bad end and return what was said about it."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode != 0, done.stdout.decode()
        return done.stderr.decode()

    def write(self, topic: str, values: list[str], *arguments: str, partition: int = 0) -> None:
        payload = "".join(f"{value}\n" for value in values).encode()
        self.ask("-P", "-t", topic, "-p", f"{partition}", *arguments, stdin=payload)

    def read(self, topic: str, *arguments: str, partition: int = 0) -> list[Json]:
        """All of a partition as it is now, from the start unless `-o` says otherwise."""
        start = () if "-o" in arguments else ("-o", "beginning")
        printed = self.ask(
            "-C", "-t", topic, "-p", f"{partition}", *start, "-e", "-q", "-J", *arguments
        )
        return [json.loads(line) for line in printed.splitlines()]

    def values(self, topic: str, *arguments: str, partition: int = 0) -> list[str]:
        return [record["payload"] for record in self.read(topic, *arguments, partition=partition)]

    def start(self, directory: Path, name: str, *arguments: str) -> "Running":
        # -E: a broker that is stopped on purpose is not the end of it.
        return Running([*self._command, "-E", *arguments], directory / name)


class Running:
    """A kcat that runs beside the test; it prints to files, which a test may read at any time."""

    def __init__(self, command: list[str], prefix: Path) -> None:
        self._printed = prefix.with_suffix(".out")
        self._said = prefix.with_suffix(".err")
        with self._printed.open("wb") as out, self._said.open("wb") as err:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=err)

    def tell(self, *values: str) -> None:
        """Hand it lines; it has sent them when a reader sees them."""
        assert self._process.stdin is not None
        lines = "".join(f"{value}\n" for value in values)
        self._process.stdin.write(f"{lines}{EMPTY_LINES}".encode())
        self._process.stdin.flush()

    def finish(self) -> int:
        """Close its input and return its code."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._process.wait(SECONDS_MAX)

    def interrupt(self) -> int:
        """Ctrl-C: kcat goes in order, a transaction is aborted, a member leaves its group."""
        self._process.send_signal(signal.SIGINT)
        return self.finish()  # A producer sees the signal when it is done reading.

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()

    @property
    def values(self) -> list[str]:
        return self._printed.read_text(encoding="utf-8").split()

    @property
    def said(self) -> str:
        return self._said.read_text(encoding="utf-8")

    @property
    def partitions(self) -> set[int]:
        """What this member owns, as it tells on every rebalance."""
        owned: set[int] = set()
        for line in self.said.splitlines():
            match = CHANGED.search(line)
            if match is None:
                continue
            changed = {int(number) for number in PARTITION.findall(match[2])}
            owned = owned | changed if match[1] == "assign" else owned - changed
        return owned


def until(claim: Callable[[], bool], description: str, *running: Running) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not claim():
        assert time.monotonic() < deadline, f"in vain: {description}\n" + "\n".join(
            f"{process.values} {process.said}" for process in running
        )
        time.sleep(0.05)  # Between two looks at a file, as no one tells of its changes.
