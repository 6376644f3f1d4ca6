"""Runs a broker in a process of its own: slower to start, and separate as in production.

Owns the process, which never outlives its parent. Its log goes to a file, because a pipe without a
reader would fill and stop it.
"""

import os
import select
import signal
import socket
import subprocess
import sys
import weakref
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path

from millstream.config import Config
from millstream.config_sources import ENVIRONMENT_PREFIX
from millstream.security.secrets import Secret
from millstream.testing.lives import (
    START_SECONDS_MAX,
    STOP_SECONDS_MAX,
    CannotDoThis,
    ports_of,
    with_ports,
)
from millstream.testing.lost_acks import LostAcks, What

# For a child whose standard input is a pipe: it ends when its parent ends, however that
# one ended. Read from the descriptor: a lock on `sys.stdin` would be in the way of its own end.
FOLLOW = """\
import os, signal, threading

def follow():
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)

threading.Thread(target=follow, daemon=True).start()
"""
# The same as `millstream serve`, whichever Python runs the test and wherever its scripts are.
_SERVE = """\
import sys
from millstream.cli.serving import run
sys.exit(run(path=None, flags={}, verbose=False))
"""
_SERVE_SECURE = _SERVE.replace("verbose=False", "verbose=False, is_secure=True")
_READY = "millstream ready "


class HeldPorts:
    """Ports that a broker opens again in its next life: meanwhile no other program gets them.

    A socket that is bound and does not listen is in the way of nothing but the system's choice of
    free ports. Each is closed with this object.
    """

    def __init__(self) -> None:
        self._held: set[tuple[str, int]] = set()

    def hold(self, host: str, port: int) -> None:
        """Hold a port that nothing listens on. Does nothing to one that is held, or in use."""
        if port and (host, port) not in self._held:
            with suppress(OSError):
                self._bind(host, port)

    def choose(self, host: str) -> int:
        """A free port, which is held from now on."""
        return self._bind(host, 0)

    def _bind(self, host: str, port: int) -> int:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as bound:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind((host, port))
            port = bound.getsockname()[1]
            weakref.finalize(self, os.close, bound.detach())
        self._held.add((host, port))
        return port


class Subprocess:
    """A broker with `config`, whose log is appended to the file `log`.

    With `is_spared_signals` it does not hear the Ctrl-C that its starter hears, which then ends it
    when the time has come. `is_secure` is `millstream serve --secure`.
    """

    def __init__(
        self, config: Config, log: Path, *, is_spared_signals: bool = False, is_secure: bool = False
    ) -> None:
        self.config = config
        self.program = _SERVE_SECURE if is_secure else _SERVE  # What the process runs.
        self._log = log
        self._process_group = 0 if is_spared_signals else None
        self._process: subprocess.Popen[str] | None = None
        self.ports = HeldPorts()
        self._has_free_ports = config.port == 0

    @property
    def host(self) -> str:
        return self.config.host

    @property
    def port(self) -> int:
        return self.config.port

    def start(self) -> None:
        assert self._process is None, "the broker is running"
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(ENVIRONMENT_PREFIX)}
        variables = environment(self.config)
        with self._log.open("a", encoding="utf-8") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", FOLLOW + self.program],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=inherited | variables,
                process_group=self._process_group,
            )
        try:
            self.config = with_ports(self.config, self._ready_ports())
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        process = self._running
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(STOP_SECONDS_MAX)
        finally:
            self.kill()
        if code != 0:
            raise RuntimeError(f"the broker stopped with {code}: {self._last_words()}")

    def kill(self) -> None:
        """End it without a goodbye. Does nothing to one that is not running."""
        if self._process is None:
            return
        self._process.kill()
        self._process.communicate()
        self._process = None
        if self._has_free_ports:
            for port in ports_of(self.config):
                self.ports.hold(self.host, port)

    def pause(self) -> None:
        self._running.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._running.send_signal(signal.SIGCONT)

    def drop_acks(self, of: What, count: int | None) -> LostAcks:
        raise CannotDoThis(
            "drop_acks() needs a broker in this process, mode='in-process': it stands between the "
            "broker and its answers"
        )

    def keep_acks(self) -> None:
        """None is lost here."""

    def advance_clock(self, ms: int) -> None:
        raise CannotDoThis(
            "advance_clock() needs a broker in this process, mode='in-process': another process "
            "has the clock of the machine"
        )

    def create_topic(self, name: str, partitions: int, settings: Mapping[str, object]) -> None:
        from millstream.client import connect

        with connect(f"{self.host}:{self.port}", wait_s=START_SECONDS_MAX) as client:
            client.admin.create_topic(name, partitions=partitions, settings=settings)

    @property
    def is_running(self) -> bool:
        """Whether it was started and neither stopped nor killed; it may have died by itself."""
        return self._process is not None

    @property
    def _running(self) -> "subprocess.Popen[str]":
        assert self._process is not None
        return self._process

    def _ready_ports(self) -> dict[str, int]:
        stdout = self._running.stdout
        assert stdout is not None
        readable, _, _ = select.select([stdout], [], [], START_SECONDS_MAX)
        # The line is printed in one write; an end of file means that the process gave up.
        line = stdout.readline() if readable else ""
        if not line.startswith(_READY):
            raise RuntimeError(f"the broker did not start: {self._last_words()}")
        words = dict(word.split("=", 1) for word in line.removeprefix(_READY).split(" "))
        del words["node"], words["data"]
        return {name: int(address.rpartition(":")[2]) for name, address in words.items()}

    def _last_words(self) -> str:
        return self._log.read_text(encoding="utf-8").strip().rpartition("\n")[2]


def environment(config: Config) -> dict[str, str]:
    """A configuration as variables that `millstream serve` reads."""
    return dict(_variables(config, ENVIRONMENT_PREFIX))


def _variables(values: object, prefix: str) -> Iterator[tuple[str, str]]:
    assert is_dataclass(values)
    for field in fields(values):
        name, value = f"{prefix}{field.name.upper()}", getattr(values, field.name)
        match value:
            case None:
                continue
            case Secret():
                yield name, value.reference
            case Mapping():
                for key, table in value.items():
                    yield from _variables(table, f"{name}__{key.upper()}__")
            case _ if is_dataclass(value):
                yield from _variables(value, f"{name}__")
            case Enum():
                yield name, str(value.value)
            case tuple():
                if value:  # An empty one cannot be spelled, and is the default.
                    yield name, ",".join(str(part) for part in value)
            case _:
                yield name, str(value).lower() if isinstance(value, bool) else str(value)
