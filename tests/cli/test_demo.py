"""`millstream demo` as a process: it shows what it says, ends when told, leaves nothing behind."""

import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

MILLSTREAM = Path(sys.executable).parent / "millstream"
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("MILLSTREAM_")}
SECONDS_MAX = 100
SPARK_SECONDS_MAX = 400  # Where the machine has other things to do.
UP = re.compile(r"broker up on (?P<host>[\d.]+):(?P<port>\d+)")
CTRL_C = b"\x03"


def demo(tmp_path: Path, *flags: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [MILLSTREAM, "demo", *flags],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=ENVIRONMENT | {"TMPDIR": str(tmp_path)} | more,
        timeout=SECONDS_MAX,
        check=False,
    )


def assert_nothing_is_left(tmp_path: Path, said: str) -> None:
    assert list(tmp_path.iterdir()) == []
    up = UP.search(said)
    assert up, said
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((up["host"], int(up["port"])), timeout=5)


def test_without_a_terminal_it_ends_by_itself(tmp_path: Path) -> None:
    result = demo(tmp_path, "--no-spark", "--orders", "300")

    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[1].startswith("wrote 300 orders with acks=all, synced before each ack: ")
    assert lines[1].endswith(" per second (one Python client making JSON)")
    assert lines[2].startswith("group billing read 300 orders: ")
    assert "killing the broker with -9 ..." in lines
    assert "found orders 300; group billing has lag 0" in lines
    assert any(line.startswith("and refused a wrong password: ") for line in lines)
    assert lines[-2].startswith("every order is there, each exactly once; ")
    assert_nothing_is_left(tmp_path, result.stdout)


def test_programs_read_a_line_of_json_for_each_step(tmp_path: Path) -> None:
    result = demo(tmp_path, "--no-spark", "--orders", "300", "--output", "json")

    assert result.returncode == 0, result.stderr
    events = [json.loads(line) for line in result.stdout.splitlines()]
    assert [event["event"] for event in events] == [
        "broker_up",
        "wrote",
        "group_read",
        "no_spark",
        "killed",
        "broker_up",
        "found_again",
        "secured",
        "tour_done",
        "ended",
    ]
    assert events[6]["records"] == {"orders": 300}


def test_without_java_it_does_the_rest_and_says_what_would_help(tmp_path: Path) -> None:
    result = demo(tmp_path, "--orders", "300", JAVA_HOME=str(tmp_path / "nowhere"))

    assert result.returncode == 0, result.stderr
    assert "Spark needs Java 17 or newer: install one or set JAVA_HOME" in result.stdout
    assert "found orders 300; group billing has lag 0" in result.stdout


def test_a_directory_is_kept_and_never_overwritten(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    first = demo(tmp_path, "--no-spark", "--orders", "300", "--data-dir", str(kept))
    second = demo(tmp_path, "--no-spark", "--orders", "300", "--data-dir", str(kept))

    assert first.returncode == 0, first.stderr
    assert (kept / "broker").is_dir()
    assert f"serve --data-dir {kept}/broker`, then http://localhost:9094/" in first.stdout
    assert second.returncode == 1
    assert second.stderr == (
        f"millstream: {kept} is not empty: name another directory, or remove it\n"
    )


def test_a_port_that_is_taken_is_one_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = demo(tmp_path, "--no-spark", "--port", str(port))

    assert result.returncode == 1
    assert result.stderr.startswith("millstream: the broker did not start: ")
    assert result.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_it_can_be_stopped_in_the_middle(number: signal.Signals, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [MILLSTREAM, "demo", "--no-spark", "--orders", "10000000"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT | {"TMPDIR": str(tmp_path)},
    )
    assert process.stdout is not None
    first = process.stdout.readline()
    process.send_signal(number)
    _, problem = process.communicate(timeout=SECONDS_MAX)

    assert (process.returncode, problem) == (1, "millstream: stopped before the end\n")
    assert_nothing_is_left(tmp_path, first)


class Terminal:
    """A demonstration with somebody in front of it."""

    def __init__(self, master: int, process: "subprocess.Popen[bytes]") -> None:
        self._master = master
        self._process = process
        self.shown = ""

    def wait_for(self, pattern: str, seconds: float = SECONDS_MAX) -> None:
        deadline = time.monotonic() + seconds
        while not re.search(pattern, self.shown):
            assert time.monotonic() < deadline, self.shown
            assert self._look(), self.shown

    def press(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def end(self) -> int:
        while self._look():
            pass
        return self._process.wait(SECONDS_MAX)

    def _look(self) -> bool:
        """Take in what is there; False when the writer is gone."""
        readable, _, _ = select.select([self._master], [], [], 1)
        if not readable:
            return self._process.poll() is None
        try:
            self.shown += os.read(self._master, 65536).decode(errors="replace")
        except OSError:  # How Linux says that the other end is closed.
            return False
        return True


@contextmanager
def terminal(tmp_path: Path, *flags: str) -> Iterator[Terminal]:
    master, slave = pty.openpty()
    # A session of its own whose terminal this is, so that Ctrl-C reaches all that hear it.
    attach = (
        "import fcntl, os, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", attach, MILLSTREAM, "demo", *flags],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=ENVIRONMENT | {"TMPDIR": str(tmp_path), "COLUMNS": "120", "TERM": "xterm"},
    )
    os.close(slave)
    try:
        yield Terminal(master, process)
    finally:
        process.kill()
        process.wait()
        os.close(master)


def test_on_a_terminal_it_shows_live_figures_until_ctrl_c(tmp_path: Path) -> None:
    with terminal(tmp_path, "--no-spark", "--orders", "300") as demonstration:
        demonstration.wait_for(r"orders a second come from here on, until Ctrl-C")
        demonstration.wait_for(r"orders +(?:[4-9]\d\d|\d,\d{3}) +\d+ +billing +orders +\d+")
        demonstration.press(CTRL_C)
        code = demonstration.end()

    assert code == 0, demonstration.shown
    assert "export MILLSTREAM_BOOTSTRAP=127.0.0.1:" in demonstration.shown
    assert re.search(r"http://127\.0\.0\.1:\d+/ shows it all in a browser", demonstration.shown)
    assert "stopping ..." in demonstration.shown
    assert "nothing is left behind" in demonstration.shown
    assert_nothing_is_left(tmp_path, demonstration.shown)


@pytest.mark.timeout(900)
def test_with_spark_orders_are_checked_added_up_and_found_again(tmp_path: Path) -> None:
    with terminal(tmp_path, "--orders", "5000") as demonstration:
        demonstration.wait_for(r"every order is there, each exactly once", SPARK_SECONDS_MAX)
        demonstration.wait_for(r"orders a second come from here on, until Ctrl-C")
        grows = r"orders\.valid +[\d,]+ +[1-9]\d* +orders\.check +orders +[\d,]+"
        demonstration.wait_for(grows, SPARK_SECONDS_MAX)
        demonstration.press(CTRL_C)
        code = demonstration.end()

    assert code == 0, demonstration.shown
    assert "orders.dlq has those that were put aside: 50 for 'weighs something'" in (
        demonstration.shown
    )
    assert "found orders 5,000, orders.valid 4,950, orders.dlq 50;" in demonstration.shown
    assert_nothing_is_left(tmp_path, demonstration.shown)
