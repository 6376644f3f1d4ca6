"""The command line against a real broker: one process per module, commands in this process."""

import json
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from millstream.cli.main import commands
from tests.support.broker_process import BrokerProcess

NOBODY = "127.0.0.1:1"  # A port without a listener.


class Cli:
    """`millstream` as one user has it: with an environment and a home of their own."""

    def __init__(self, environment: dict[str, str | None]) -> None:
        self.environment = environment

    def run(self, *arguments: str, typed: str | bytes | None = None, code: int = 0) -> Result:
        """Run a command and insist on its exit code."""
        result = CliRunner().invoke(commands, arguments, input=typed, env=self.environment)
        trace = result.exception if not isinstance(result.exception, SystemExit) else None
        assert result.exit_code == code, (arguments, result.output, trace)
        return result

    def text(self, *arguments: str, typed: str | bytes | None = None) -> str:
        return self.run(*arguments, typed=typed).stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self.text(*arguments, "--output", "json"))

    def refusal(self, *arguments: str, typed: str | None = None) -> str:
        """The one sentence on standard error of a command that is refused."""
        said = self.run(*arguments, typed=typed, code=1).stderr
        assert said.startswith("millstream: "), said
        assert said.count("\n") == 1, said
        return said

    def misuse(self, *arguments: str) -> str:
        return self.run(*arguments, code=2).stderr


def environment(home: Path, **more: str) -> dict[str, str | None]:
    cleared = dict.fromkeys(("MILLSTREAM_BOOTSTRAP", "MILLSTREAM_CONTEXT", "MILLSTREAM_CONFIG"))
    return {**cleared, "XDG_CONFIG_HOME": str(home), **more}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Creates no topics by being asked for them, so that a wrong name is an error."""
    process = BrokerProcess(
        tmp_path_factory.mktemp("broker"),
        AUTO_CREATE_TOPICS="false",
        TIMING__GROUP_INITIAL_REBALANCE_DELAY_MS=0,
    )
    process.start()
    yield process
    process.kill()


@pytest.fixture
def cli(broker: BrokerProcess, tmp_path: Path) -> Cli:
    return Cli(environment(tmp_path, MILLSTREAM_BOOTSTRAP=broker.address))


@pytest.fixture
def offline(tmp_path: Path) -> Cli:
    """Without a broker."""
    return Cli(environment(tmp_path))


@pytest.fixture(scope="session")
def names() -> Callable[[], str]:
    """Names that no other test uses."""
    numbers = count(1)
    return lambda: f"name-{next(numbers)}"
