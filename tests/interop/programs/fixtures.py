"""The fixture of a running client; a folder's conftest imports it and tells the `command`."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop.programs.process import Program
from tests.support.broker_process import BrokerProcess

Start = Callable[[], Program]


@pytest.fixture
def start(broker: BrokerProcess, command: list[str | Path], tmp_path: Path) -> Iterator[Start]:
    """Start one more client process; all of them end with the test."""
    programs: list[Program] = []

    def one_more() -> Program:
        programs.append(Program(command, broker.address, tmp_path / "client.log"))
        return programs[-1]

    yield one_more
    for program in programs:
        program.kill()


@pytest.fixture
def client(start: Start) -> Program:
    return start()
