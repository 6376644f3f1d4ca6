"""`health`, `doctor` and `bench`: what they find, and the exit code they find it with."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import NOBODY, Cli
from tests.support.broker_process import BrokerProcess


@contextlib.contextmanager
def deaf_listener() -> Iterator[str]:
    """Something that is no broker: it accepts connections and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        stopped = threading.Event()

        def accept() -> None:
            while not stopped.is_set():
                with contextlib.suppress(OSError):
                    server.accept()[0].close()

        thread = threading.Thread(target=accept)
        thread.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        try:
            yield address
        finally:
            stopped.set()
            socket.create_connection(server.getsockname()).close()
            thread.join()


def verdicts(cli: Cli, *arguments: str, code: int = 0) -> dict[str, str]:
    import json

    parsed = json.loads(cli.run("doctor", *arguments, "--output", "json", code=code).stdout)
    return {check["check"]: check["verdict"] for check in parsed}


def test_a_broker_that_serves_everything_is_healthy(cli: Cli) -> None:
    cli.run("topic", "create", "health")

    shown = cli.json("health")

    assert shown["status"] == "healthy"
    assert shown["partitions"] >= 1
    assert "healthy" in cli.text("health")
    assert "No such option" in cli.misuse("health", "--colour")


def test_a_doctor_finds_nothing_wrong_with_a_broker_that_runs(cli: Cli, tmp_path: Path) -> None:
    checks = verdicts(cli, "--data-dir", str(tmp_path))

    assert "problem" not in checks.values()
    assert {"versions", "configuration", "disk", "connection", "TLS", "protocol"} <= set(checks)
    assert "ok    protocol: a broker answers" in cli.text("doctor")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--bootstrap", NOBODY], "nothing listens at 127.0.0.1:1"),
        (["--bootstrap", "localhost"], "'localhost' is not HOST:PORT (--bootstrap)"),
        (["--bootstrap", "no-such-host.invalid:9092"], "no-such-host.invalid has no address"),
        (["--config", "gone.toml"], "cannot read the configuration file"),
        (["--data-dir", __file__], "is a file"),
    ],
)
def test_a_doctor_says_what_is_wrong_in_plain_words(
    cli: Cli, arguments: list[str], expected: str
) -> None:
    shown = cli.run("doctor", *arguments, code=1).stdout

    assert expected in shown
    assert "FAIL" in shown


def test_a_doctor_knows_what_is_no_broker(cli: Cli) -> None:
    with deaf_listener() as address:
        checks = verdicts(cli, "--bootstrap", address, code=1)

    assert checks["connection"] == "ok"
    assert checks["protocol"] == "problem"


def test_a_doctor_knows_that_only_one_side_speaks_tls(cli: Cli) -> None:
    address = str(cli.environment.pop("MILLSTREAM_BOOTSTRAP"))
    cli.run("context", "add", "safe", address, "--set", "security.protocol=SSL")

    assert verdicts(cli, code=1)["TLS"] == "problem"


def test_a_doctor_warns_of_memory(offline: Cli) -> None:
    offline.environment["MILLSTREAM_STORAGE"] = "memory"

    assert verdicts(offline, "--bootstrap", NOBODY, code=1)["disk"] == "warning"
    assert "No such option" in offline.misuse("doctor", "--cure")


def test_a_benchmark_verifies_every_record(cli: Cli) -> None:
    shown = cli.json("bench", "--count", "500", "--size", "100", "--threads", "2")

    assert shown["is_verified"] is True
    assert shown["produced"]["records_per_s"] > 0
    assert shown["latency"]["p99_ms"] > 0
    assert "millstream-benchmark" not in cli.text("topic", "list")
    assert "all 10 records came back" in cli.text("bench", "--count", "10", "--topic", "health")


def test_a_benchmark_of_nothing_is_misuse(cli: Cli) -> None:
    assert "message_count = 0" in cli.misuse("bench", "--count", "0")
    assert "not a valid integer" in cli.misuse("bench", "--count", "many")


def test_a_benchmark_of_a_bad_topic_is_refused(cli: Cli) -> None:
    assert "a/b" in cli.refusal("bench", "--topic", "a/b", "--count", "1")


def test_a_doctor_leaves_no_trace_in_the_log_of_a_broker_that_is_fine(
    cli: Cli, broker: BrokerProcess
) -> None:
    before = broker.log

    cli.run("doctor")

    assert broker.log == before


def test_a_client_that_speaks_tls_to_a_plain_listener_is_told_so(
    cli: Cli, broker: BrokerProcess
) -> None:
    before = len(broker.log)
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE

    with (
        socket.create_connection((broker.host, broker.port), timeout=5) as plain,
        pytest.raises(ssl.SSLError, match=r"(?i)protocol.version"),
    ):
        context.wrap_socket(plain)

    # Once a minute for each address: an earlier test of this broker may have been the reason.
    assert "listener kafka expects plain text; 127.0.0.1 spoke TLS" in broker.log
    assert "broke the protocol" not in broker.log[before:]
    cli.run("health")
