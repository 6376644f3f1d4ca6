"""`millstream serve` as a process: it starts, says so, stops in order, and refuses in one line."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

MILLSTREAM = Path(sys.executable).parent / "millstream"
PORTS = ["--port", "0", "--flux-port", "0", "--classic-port", "0", "--http-port", "0"]
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("MILLSTREAM_")}


@contextmanager
def serving(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [MILLSTREAM, "serve", *PORTS, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("millstream ready"), (line, process.stderr)
        yield process
    finally:
        process.kill()
        process.communicate()


def refused(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [MILLSTREAM, "serve", *PORTS, *arguments],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        timeout=30,
        check=False,
    )


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_a_node_stops_in_order_when_it_is_told_to(tmp_path: Path, stop: signal.Signals) -> None:
    with serving("--data-dir", str(tmp_path / "data")) as process:
        process.send_signal(stop)
        process.communicate(timeout=20)

    assert process.returncode == 0
    assert (tmp_path / "data" / "clean").exists()


def test_two_nodes_on_one_directory_are_one_too_many(tmp_path: Path) -> None:
    with serving("--data-dir", str(tmp_path / "data")):
        second = refused("--data-dir", str(tmp_path / "data"))

    assert second.returncode == 1
    assert "another Millstream is running" in second.stderr
    assert second.stderr.count("\n") == 1


def test_another_nodes_directory_is_refused_and_not_touched(tmp_path: Path) -> None:
    with serving("--data-dir", str(tmp_path / "data"), "--node-id", "7") as process:
        process.terminate()
        process.communicate(timeout=20)
    before = sorted((tmp_path / "data").iterdir())

    second = refused("--data-dir", str(tmp_path / "data"), "--node-id", "8")

    assert second.returncode == 1
    assert "belongs to node 7 and this is node 8" in second.stderr
    assert sorted((tmp_path / "data").iterdir()) == before


def test_a_directory_full_of_other_things_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("chapter 1")

    second = refused("--data-dir", str(tmp_path))

    assert second.returncode == 1
    assert "thesis.txt" in second.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_memory_storage_leaves_no_files(tmp_path: Path) -> None:
    with serving("--storage", "memory", "--data-dir", str(tmp_path / "data")) as process:
        process.terminate()
        process.communicate(timeout=20)

    assert process.returncode == 0
    assert not (tmp_path / "data").exists()


def test_bad_flags_are_misuse_and_bad_values_are_named() -> None:
    assert refused("--colour", "red").returncode == 2
    assert "not in 0 to 65535" in refused("--port", "70000").stderr
    assert refused("--storage", "tape").returncode == 1
    assert "cannot read the configuration file" in refused("--config", "gone.toml").stderr


def test_help_answers_at_once() -> None:
    started = time.perf_counter()
    shown = subprocess.run([MILLSTREAM, "--help"], capture_output=True, text=True, check=True)
    seconds = time.perf_counter() - started

    assert "serve" in shown.stdout
    assert seconds < 3  # Measured in docs/performance.md; here only that nothing heavy is loaded.


def test_help_imports_nothing_heavy() -> None:
    code = "import sys, millstream.cli.main; print('asyncio' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert shown.stdout.strip() == "False"
