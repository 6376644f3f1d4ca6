"""`millstream` as a process: it starts fast, fails in one line, and logs for its reader."""

import json
import os
import pty
import re
import resource
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from millstream.client import connect
from millstream.testing import run_broker

MILLSTREAM = Path(sys.executable).parent / "millstream"
PORTS = [f"--{prefix}port=0" for prefix in ("", "flux-", "classic-", "http-")]
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("MILLSTREAM_")}

# The aim is 300 ms on an idle machine. Here processor time counts, of the best of a few tries, and
# the bound is generous: this machine may be busy.
STARTUP_SECONDS_MAX = 0.8
TRIES = 5
# What no command may load before it knows what it is asked for.
HEAVY = ("asyncio", "confluent_kafka", "rich", "msgspec", "pyspark", "numpy", "millstream.client")


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [MILLSTREAM, *arguments],
        capture_output=True,
        text=True,
        env=ENVIRONMENT | environment,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["topic", "--help"], ["context", "list"]], ids=" ".join
)
def test_simple_commands_answer_at_once(arguments: list[str], tmp_path: Path) -> None:
    seconds = []
    for _ in range(TRIES):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        result = run(*arguments, XDG_CONFIG_HOME=str(tmp_path))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
        assert result.returncode == 0, result.stderr

    assert min(seconds) < STARTUP_SECONDS_MAX


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\nfrom millstream.cli.main import commands\n"
        "commands(['--help'], standalone_mode=False)\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert shown.stderr.strip() == "[]"


def test_an_unreachable_broker_is_one_line_and_no_trace() -> None:
    result = run("topic", "list", "--bootstrap", "127.0.0.1:1")

    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("millstream: cannot connect")
    assert result.stderr.count("\n") == 1


def test_misuse_is_two_and_a_bad_configuration_one() -> None:
    assert run("topic", "list", "--colour").returncode == 2
    assert run("nothing").returncode == 2
    assert run("config", "show", MILLSTREAM_PORT="many").returncode == 1


def test_a_reader_that_leaves_is_no_error_worth_a_trace() -> None:
    command = f"set -o pipefail; {MILLSTREAM} config keys | head -1"
    result = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, env=ENVIRONMENT, check=False
    )

    assert result.stdout.startswith("KEY")
    assert (result.returncode, result.stderr) == (0, "")


def test_a_reader_that_has_seen_enough_records_is_no_error() -> None:
    with run_broker() as broker:
        with connect(broker.bootstrap) as client, client.producer() as producer:
            for number in range(20_000):
                producer.send("long", f"{number:0100d}")
        command = f"set -o pipefail; {MILLSTREAM} consume long -b {broker.bootstrap} | head -1"
        result = subprocess.run(
            ["bash", "-c", command], capture_output=True, text=True, env=ENVIRONMENT, check=False
        )

    assert result.stdout == f"{0:0100d}\n"
    assert (result.returncode, result.stderr) == (0, "")


def test_a_bar_is_shown_on_a_terminal_and_nowhere_else() -> None:
    code = (
        "from millstream.cli.render import progress\n"
        "with progress('sending', 10) as told: told(10)\n"
    )
    ours, theirs = pty.openpty()
    subprocess.run([sys.executable, "-c", code], stderr=theirs, check=True)
    os.close(theirs)
    shown = os.read(ours, 65536)
    os.close(ours)
    piped = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)

    assert b"sending" in shown
    assert piped.stderr == b""


def first_lines(*arguments: str, stderr: int) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [MILLSTREAM, "serve", *PORTS, "--storage", "memory", *arguments],
        stdout=subprocess.PIPE,
        stderr=stderr,
        env=ENVIRONMENT,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline().startswith(b"millstream ready node=1 kafka=127.0.0.1:")
    finally:
        process.terminate()
    return process


def test_logs_are_json_lines_without_a_terminal() -> None:
    process = first_lines(stderr=subprocess.PIPE)
    _, said = process.communicate(timeout=30)

    lines = [json.loads(line) for line in said.splitlines()]
    assert any(line["message"].startswith("ready node=1") for line in lines)
    assert {"time", "level", "logger", "message"} <= set(lines[0])


def test_logs_are_for_people_on_a_terminal() -> None:
    ours, theirs = pty.openpty()
    process = first_lines(stderr=theirs)
    os.close(theirs)
    process.communicate(timeout=30)
    said = os.read(ours, 4096)
    os.close(ours)

    assert b" INFO " in said
    assert b"{" not in said


def test_who_starts_a_node_on_a_terminal_is_told_what_to_do_with_it() -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [MILLSTREAM, "serve", *PORTS, "--storage", "memory"],
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        env=ENVIRONMENT,
    )
    os.close(theirs)
    said = b""
    while b"Ctrl-C stops it" not in said:
        said += os.read(ours, 4096)
    process.terminate()
    process.wait(30)
    os.close(ours)

    assert b"in another terminal: export MILLSTREAM_BOOTSTRAP=127.0.0.1:" in said
    assert re.search(rb"console: http://localhost:\d+/", said)


@pytest.mark.parametrize(("form", "first"), [("human", b"2"), ("json", b"{")])
def test_the_form_of_logs_can_be_chosen(form: str, first: bytes) -> None:
    process = first_lines("--log-format", form, stderr=subprocess.PIPE)
    _, said = process.communicate(timeout=30)

    assert said.startswith(first)
    assert run("serve", "--log-format", "xml").returncode == 2


def test_a_port_that_is_taken_leaves_nothing_behind_and_names_its_flag(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        arguments = ["--port", "0", "--flux-port", str(port), "--data-dir", str(data_dir)]
        # With `--port 0` every listener gets a free port, so the first one is given, too.
        with socket.create_server(("127.0.0.1", 0)) as free:
            arguments[1] = str(free.getsockname()[1])
        result = run("serve", *arguments, "--classic-port", "0")

    assert result.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port} for flux" in result.stderr
    assert "--flux-port" in result.stderr
    assert "ready" not in result.stderr + result.stdout
    assert not data_dir.exists()


def test_a_cluster_is_refused_in_one_sentence(tmp_path: Path) -> None:
    result = run("serve", *PORTS, "--data-dir", str(tmp_path / "data"), MILLSTREAM_NODES="1,2,3")

    assert result.returncode == 1
    assert "nodes = [1, 2, 3] asks for a cluster" in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "data").exists()


def test_limits_that_do_not_fit_the_machine_are_refused_in_one_sentence(tmp_path: Path) -> None:
    result = run(
        "serve",
        *PORTS,
        "--data-dir",
        str(tmp_path / "data"),
        MILLSTREAM_LIMITS__CONNECTIONS_MAX="100000000",
    )

    assert result.returncode == 1
    assert "limits.connections_max = 100000000 and limits.open_files_max" in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "data").exists()


def test_help_shows_whole_summaries() -> None:
    for group in ([], ["topic"], ["classic"], ["dlq"], ["pipeline"]):
        assert "..." not in run(*group, "--help").stdout.partition("Commands:")[2]
