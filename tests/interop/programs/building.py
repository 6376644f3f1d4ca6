"""Tools that a client needs: looked for, installed once, and named clearly where they are missing.

A missing tool fails the tests that need it: `make interop` is asked for on purpose, and a suite
that skips itself would look like one that passed.
"""

import fcntl
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

INSTALL_SECONDS_MAX = 300


def require(tool: str, advice: str) -> str:
    path = shutil.which(tool)
    if path is None:
        pytest.fail(f"`{tool}` is not installed and these tests need it. {advice}", pytrace=False)
    return path


def run(
    command: Sequence[str | Path],
    folder: Path,
    purpose: str,
    *,
    seconds_max: float = INSTALL_SECONDS_MAX,
) -> None:
    """Run a build step; what it said is in the failure."""
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=seconds_max,
        check=False,
    )
    if done.returncode != 0:
        pytest.fail(f"{purpose} failed:\n{done.stdout}\n{done.stderr}", pytrace=False)


@contextmanager
def alone_in(build: Path) -> Iterator[None]:
    """Two test processes must not build in one directory at the same time."""
    build.mkdir(exist_ok=True)
    with (build / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
