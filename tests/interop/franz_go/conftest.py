"""Builds the franz-go client once; Go fetches the modules that go.sum names."""

from pathlib import Path

import pytest

from tests.interop.programs.building import alone_in, require, run
from tests.interop.programs.fixtures import client, start

__all__ = ["client", "start"]
HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def command() -> list[str | Path]:
    go = require("go", "Install Go 1.26 or newer.")
    with alone_in(HERE / "build"):
        run([go, "build", "-o", "build/client", "."], HERE, "Building the franz-go client")
    return [HERE / "build" / "client"]
