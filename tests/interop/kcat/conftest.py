"""Finds kcat, or installs it from the Debian packages."""

import os
import shutil
from pathlib import Path

import pytest

from tests.interop.kcat.clients import Kcat
from tests.interop.programs.building import require, run
from tests.support.broker_process import BrokerProcess

ADVICE = "Install the package `kcat` (as root, apt-get does it for you)."


@pytest.fixture(scope="session")
def program() -> str:
    if shutil.which("kcat") is None and shutil.which("apt-get") and os.geteuid() == 0:
        run(["apt-get", "install", "-y", "kcat"], Path.cwd(), "Installing kcat by apt-get")
    return require("kcat", ADVICE)


@pytest.fixture
def kcat(broker: BrokerProcess, program: str) -> Kcat:
    return Kcat(program, broker.address)
