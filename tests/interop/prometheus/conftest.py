"""Finds Prometheus, or installs it from the Debian packages."""

import os
import shutil
from pathlib import Path

import pytest

from tests.interop.programs.building import require, run

ADVICE = "Install the package `prometheus` (as root, apt-get does it for you)."


@pytest.fixture(scope="session")
def prometheus() -> str:
    if shutil.which("prometheus") is None and shutil.which("apt-get") and os.geteuid() == 0:
        command = ["apt-get", "install", "-y", "--no-install-recommends", "prometheus"]
        run(command, Path.cwd(), "Installing Prometheus by apt-get")
    return require("prometheus", ADVICE)


@pytest.fixture(scope="session")
def promtool(prometheus: str) -> str:
    return require("promtool", ADVICE)
