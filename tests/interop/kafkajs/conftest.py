"""Installs kafkajs once, at the versions that package.json names."""

import shutil
from pathlib import Path

import pytest

from tests.interop.programs.building import alone_in, require, run
from tests.interop.programs.fixtures import client, start

__all__ = ["client", "start"]
HERE = Path(__file__).parent
QUIETLY = ["--no-package-lock", "--no-audit", "--no-fund"]


@pytest.fixture(scope="session")
def command() -> list[str | Path]:
    node = require("node", "Install Node.js 18 or newer.")
    npm = require("npm", "It comes with Node.js.")
    build, package = HERE / "build", (HERE / "package.json").read_text(encoding="utf-8")
    with alone_in(build):
        stamp = build / ".installed"
        if not stamp.exists() or stamp.read_text(encoding="utf-8") != package:
            shutil.copy(HERE / "package.json", build)
            run([npm, "install", *QUIETLY], build, "Installing kafkajs")
            stamp.write_text(package, encoding="utf-8")
    return ["env", f"NODE_PATH={build / 'node_modules'}", node, HERE / "client.js"]
