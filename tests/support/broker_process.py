"""A broker process for tests of our own: that of `millstream.testing`, told by variables.

Owns only the spelling: settings as an operator's environment has them, and where the data goes.
"""

from pathlib import Path

from millstream.config_sources import ENVIRONMENT_PREFIX, load
from millstream.testing.process import Subprocess

# Any free port for each listener.
PORTS = dict.fromkeys(("port", "flux_port", "classic_port", "http_port"), 0)


class BrokerProcess(Subprocess):
    """A broker in `directory`. `settings` are `MILLSTREAM_*` variables without the prefix."""

    def __init__(self, directory: Path, **settings: object) -> None:
        variables = {f"{ENVIRONMENT_PREFIX}{key}": str(value) for key, value in settings.items()}
        flags = {**PORTS, "data_dir": str(directory / "data")}
        self._log_path = directory / "broker.log"
        super().__init__(load(flags=flags, environment=variables), self._log_path)

    @property
    def address(self) -> str:
        assert self.port > 0, "the broker was never started"
        return f"{self.host}:{self.port}"

    @property
    def log(self) -> str:
        """What the broker said so far, over all its lives."""
        return self._log_path.read_text(encoding="utf-8")
