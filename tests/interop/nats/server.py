"""nats-server as a process, and the few words of its protocol that wildcards need."""

import json
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.kafka.install import nats_environment

SECONDS_MAX = 30


class NatsServer:
    """Listens on a port of its own choice; it says which in a file."""

    def __init__(self, directory: Path) -> None:
        self._ports = directory / "ports"
        self._ports.mkdir()
        program = nats_environment() / "nats-server"
        self._process = subprocess.Popen(
            [str(program), "-a", "127.0.0.1", "-p", "-1", "--ports_file_dir", str(self._ports)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def connect(self) -> "NatsConnection":
        return NatsConnection(self._port())

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def _port(self) -> int:
        deadline = time.monotonic() + SECONDS_MAX
        while time.monotonic() < deadline:
            for path in self._ports.iterdir():
                try:
                    said = json.loads(path.read_text())
                except json.JSONDecodeError:
                    continue  # Half written.
                return int(said["nats"][0].rpartition(":")[2])
            assert self._process.poll() is None, "nats-server did not start"
            time.sleep(0.05)
        raise AssertionError("nats-server did not say where it listens")


class NatsConnection:
    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=SECONDS_MAX)
        self._lines = self._socket.makefile("rb")
        assert self._lines.readline().startswith(b"INFO")
        # Pedantic: subjects are checked as they should be, instead of as fast as possible.
        self._say('CONNECT {"verbose":false,"pedantic":true}')

    def refuses(self, pattern: str) -> bool:
        """Whether a subscription is answered by an error."""
        self._say(f"SUB {pattern} 1")
        self._say("PING")
        refused = False
        while (line := self._lines.readline().strip()) != b"PONG":
            assert line, "nats-server hung up"
            refused = refused or line.startswith(b"-ERR")
        self._say("UNSUB 1")
        return refused

    def matches(self, patterns: Sequence[str], subjects: Sequence[str]) -> dict[str, set[int]]:
        """Which patterns, by their number, get what is published under each subject."""
        for number, pattern in enumerate(patterns):
            self._say(f"SUB {pattern} {number}")
        for subject in subjects:
            self._say(f"PUB {subject} 0\r\n")
        self._say("PING")
        collected: dict[str, set[int]] = {subject: set() for subject in subjects}
        while (line := self._lines.readline().strip()) != b"PONG":
            words = line.decode().split()
            if not words:
                continue
            assert words[0] == "MSG", line
            collected[words[1]].add(int(words[2]))
        for number in range(len(patterns)):
            self._say(f"UNSUB {number}")
        return collected

    def close(self) -> None:
        self._lines.close()
        self._socket.close()

    def _say(self, line: str) -> None:
        self._socket.sendall(line.encode() + b"\r\n")
