"""Log lines: levels by module of a running broker, request ids, files that are replaced."""

import io
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from millstream.cli import serving
from millstream.cli.serving import JsonLines, set_up_logging
from millstream.errors import StartupError
from millstream.protocols.conversation import REQUEST_ID
from tests.cli.conftest import Cli
from tests.support.broker_process import BrokerProcess
from tests.support.http import HttpClient


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("broker"), LISTENERS="kafka,http")
    process.start()
    yield process
    process.stop()


@contextmanager
def bare_root() -> Iterator[logging.Logger]:
    """The root logger without handlers, as a process has it when it starts."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers.clear()
    try:
        yield root
    finally:
        for handler in root.handlers:
            handler.close()
        root.handlers[:] = handlers
        root.setLevel(level)


def test_levels_change_while_the_broker_runs_and_lines_name_the_request(
    cli: Cli, broker: BrokerProcess
) -> None:
    name = "millstream.protocols.http.serving"
    ask = HttpClient(broker.config.http_port)
    ask("GET", "/v1/topics", headers={"X-Request-Id": "before-1"})  # Loads the module.
    assert cli.json("log", "levels", name) == [{"logger": name, "level": "info"}]

    # A package stands for all its modules.
    said = cli.text("log", "set", "millstream.protocols.http", "debug")
    assert said == "millstream.protocols.http logs from debug on\n"
    assert cli.json("log", "levels", name) == [{"logger": name, "level": "debug"}]
    ask("GET", "/v1/topics?name=secret", headers={"X-Request-Id": "during-1"})
    cli.run("log", "set", "millstream.protocols.http", "inherit")
    ask("GET", "/v1/topics", headers={"X-Request-Id": "after-1"})

    lines = [json.loads(line) for line in broker.log.splitlines() if line.startswith("{")]
    ids = [line["request_id"] for line in lines if "request_id" in line]
    assert ids == ["during-1"]
    (line,) = [line for line in lines if line.get("request_id") == "during-1"]
    assert line["level"] == "debug"
    assert line["message"].startswith("request GET /v1/topics from 127.0.0.1")
    assert "secret" not in line["message"]


def test_a_logger_or_level_that_is_none_is_refused(cli: Cli) -> None:
    assert "there is no logger" in cli.refusal("log", "set", "millstream.nope", "debug")
    assert "loud" in cli.misuse("log", "set", "root", "loud")
    assert "no logger begins with nope" in cli.text("log", "levels", "nope")


def test_a_line_without_a_request_has_no_id() -> None:
    record = logging.LogRecord("a.b", logging.INFO, "", 0, "done", (), None)

    assert "request_id" not in json.loads(JsonLines().format(record))
    token = REQUEST_ID.set("7-1")
    try:
        assert json.loads(JsonLines().format(record))["request_id"] == "7-1"
    finally:
        REQUEST_ID.reset(token)


def test_a_full_log_file_is_replaced_and_the_last_few_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "LOG_FILE_BYTES_MAX", 1_000)
    monkeypatch.setattr(serving, "LOG_FILES_KEPT", 2)
    path = tmp_path / "node.log"

    with bare_root() as root:
        set_up_logging("auto", is_verbose=False, path=str(path))
        for number in range(100):
            root.info("line number=%d", number)

    files = sorted(file.name for file in tmp_path.iterdir())
    assert files == ["node.log", "node.log.1", "node.log.2"]
    assert all(file.stat().st_size <= 1_000 for file in tmp_path.iterdir())
    assert json.loads(path.read_text().splitlines()[-1])["message"] == "line number=99"


def test_a_log_file_that_cannot_be_written_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="cannot write the log file"):
        set_up_logging("auto", is_verbose=False, path=str(tmp_path / "none" / "node.log"))


def test_without_a_file_lines_go_to_the_stream() -> None:
    stream = io.StringIO()

    with bare_root() as root:
        set_up_logging("human", is_verbose=True, stream=stream)
        root.debug("seen")

    assert "DEBUG   root seen" in stream.getvalue()
