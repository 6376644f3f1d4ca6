"""`millstream serve` as a real process: stopped, killed and started again where it was.

Owns the process and the port it first got, so that clients find it at the same address after a
restart. The process writes its log to a file: a pipe that nobody reads would fill and stop it.
"""

import os
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

MILLSTREAM = Path(sys.executable).parent / "millstream"
READY = re.compile(r"^millstream ready node=1 kafka=(?P<host>[^:]+):(?P<port>\d+) ")
START_SECONDS_MAX = 30
STOP_SECONDS_MAX = 20


class BrokerProcess:
    """A broker in `directory`. `settings` are `MILLSTREAM_*` variables without the prefix."""

    def __init__(self, directory: Path, **settings: object) -> None:
        self._directory = directory
        self._settings = {f"MILLSTREAM_{key}": str(value) for key, value in settings.items()}
        self._process: subprocess.Popen[str] | None = None
        self.host = "127.0.0.1"
        self.port = 0

    @property
    def address(self) -> str:
        assert self.port > 0, "the broker was never started"
        return f"{self.host}:{self.port}"

    @property
    def log(self) -> str:
        """What the broker said so far, over all its lives."""
        return self._log_path.read_text(encoding="utf-8")

    def start(self) -> None:
        """Start, and return when clients are served."""
        assert self._process is None, "the broker is running"
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("MILLSTREAM_")}
        others = [f"--{door}-port=0" for door in ("flux", "classic", "http")]
        with self._log_path.open("a", encoding="utf-8") as log:
            self._process = subprocess.Popen(
                [MILLSTREAM, "serve", f"--port={self.port}", *others, "--data-dir", self._data],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=inherited | self._settings,
            )
        try:
            self.port = int(self._ready_line()["port"])
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Ask it to stop, as an operator does, and insist that it does so in order."""
        assert self._process is not None, "the broker is not running"
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(timeout=STOP_SECONDS_MAX)
        finally:
            self.kill()
        assert code == 0, f"the broker stopped with {code}\n{self.log}"

    def kill(self) -> None:
        """kill -9: no goodbye, no last sync. Does nothing to a broker that is not running."""
        if self._process is None:
            return
        self._process.kill()
        self._process.communicate()
        self._process = None

    def _ready_line(self) -> re.Match[str]:
        assert self._process is not None
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], START_SECONDS_MAX)
        # The line is printed in one write; an end of file means that the process gave up.
        line = self._process.stdout.readline() if readable else ""
        ready = READY.match(line)
        assert ready, f"not ready in {START_SECONDS_MAX} s: {line!r}\n{self.log}"
        return ready

    @property
    def _data(self) -> Path:
        return self._directory / "data"

    @property
    def _log_path(self) -> Path:
        return self._directory / "broker.log"
