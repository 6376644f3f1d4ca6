"""A node as a service of systemd: the plan, the unit, and the messages to the manager."""

import asyncio
import shlex
import shutil
import signal
import socket
import subprocess
from configparser import ConfigParser
from pathlib import Path, PurePosixPath

import pytest

from millstream.cli.install.plan import Kind, Options, installation, removal, unit_text
from millstream.cli.service_manager import ServiceManager
from tests.cli.conftest import Cli, environment
from tests.cli.test_process import ENVIRONMENT, MILLSTREAM, PORTS
from tests.support.documents import blocks
from tests.support.source_tree import ROOT

WAIT_S_MAX = 60
OPTIONS = Options(program=("/opt/millstream/bin/millstream",))


def cli(tmp_path: Path) -> Cli:
    return Cli(environment(tmp_path))


def test_a_fresh_machine_gets_user_directories_settings_and_unit() -> None:
    steps = installation(OPTIONS, has_user=False, has_settings=False, is_started=True)

    assert [step.kind for step in steps] == [
        *(Kind.RUN, Kind.DIRECTORY, Kind.DIRECTORY, Kind.FILE, Kind.FILE, Kind.RUN, Kind.RUN)
    ]
    assert steps[0].command[0] == "useradd"
    assert steps[2].owner == "millstream"
    assert steps[-1].command == ("systemctl", "enable", "--now", "millstream")


def test_settings_and_user_that_are_there_are_kept() -> None:
    steps = installation(OPTIONS, has_user=True, has_settings=True, is_started=False)

    assert "useradd" not in " ".join(step.subject for step in steps)
    assert "keep /etc/millstream/millstream.toml" in [step.describe() for step in steps]
    assert steps[-1].command == ("systemctl", "daemon-reload")


def test_a_removal_keeps_data_and_settings() -> None:
    steps = removal(OPTIONS)

    removed = [step.subject for step in steps if step.kind is Kind.REMOVE]
    assert removed == ["/etc/systemd/system/millstream.service"]
    kept = {step.subject for step in steps if step.kind is Kind.KEPT}
    assert kept == {"/var/lib/millstream", "/etc/millstream/millstream.toml"}


def test_the_page_shows_the_unit_that_is_written() -> None:
    (shown,) = blocks((ROOT / "docs" / "deploy.md").read_text(encoding="utf-8"), "ini")

    assert shown.strip() == unit_text(OPTIONS).strip()


def test_an_image_gets_the_files_and_keeps_its_settings(tmp_path: Path) -> None:
    root = tmp_path / "image"
    flags = ("install", "--root", str(root), "--home", "/srv/mill stream", "--user", "broker")

    first = cli(tmp_path).json(*flags)
    settings = root / "etc/millstream/millstream.toml"
    settings.write_text("node_id = 7\n")
    again = cli(tmp_path).json(*flags)

    assert not any(step.startswith("run ") for step in first["steps"])
    assert "keep /etc/millstream/millstream.toml" in again["steps"]
    assert settings.read_text() == "node_id = 7\n"
    unit = ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]  # Keys keep their case.
    unit.read_string((root / "etc/systemd/system/millstream.service").read_text())
    assert unit["Service"]["Type"] == "notify"
    assert unit["Service"]["User"] == "broker"
    assert unit["Service"]["ReadWritePaths"] == '"/srv/mill stream"'
    cli(tmp_path).run("install", "--root", str(root), "--uninstall")
    assert not (root / "etc/systemd/system/millstream.service").exists()
    assert settings.exists()


def test_a_dry_run_shows_the_steps_and_does_none(tmp_path: Path) -> None:
    shown = cli(tmp_path).text("install", "--root", str(tmp_path / "image"), "--dry-run")

    assert "write /etc/systemd/system/millstream.service" in shown
    assert "Type=notify" in shown
    assert not (tmp_path / "image").exists()


@pytest.mark.parametrize(
    "flags",
    [("--user", "a b"), ("--name", "../x"), ("--config", "relative.toml"), ("--home", "here")],
)
def test_names_and_paths_that_a_unit_cannot_have_are_misuse(
    tmp_path: Path, flags: tuple[str, str]
) -> None:
    assert "Invalid value" in cli(tmp_path).misuse("install", "--dry-run", *flags)


def test_words_of_the_unit_are_quoted_as_systemd_reads_them() -> None:
    text = unit_text(
        Options(program=("/opt/100%/mill stream",), config=PurePosixPath("/etc/$x.toml"))
    )

    assert 'ExecStart="/opt/100%%/mill stream" serve --config /etc/$$x.toml\n' in text


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "millstream.service"
    unit.write_text(unit_text(Options(program=(shutil.which("true") or "/bin/true",), user="root")))

    checked = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False
    )

    assert [line for line in checked.stderr.splitlines() if "millstream.service" in line] == []


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_what_is_installed_is_taken_by_systemd_and_serves(tmp_path: Path) -> None:
    """The files as the command writes them; paths of the machine are led below the root."""
    root = tmp_path / "image"
    cli(tmp_path).run("install", "--root", str(root), "--user", "root")
    unit = root / "etc/systemd/system/millstream.service"

    checked = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False
    )

    assert [line for line in checked.stderr.splitlines() if "millstream.service" in line] == []
    parsed = ConfigParser(interpolation=None)
    parsed.read_string(unit.read_text())
    words = shlex.split(parsed["Service"]["ExecStart"])
    settings = root / words[words.index("--config") + 1].removeprefix("/")
    words[words.index("--config") + 1] = str(settings)
    home = root / "var/lib/millstream"
    assert home.stat().st_mode & 0o777 == 0o700
    process = subprocess.Popen(
        [*words, "--data-dir", str(home / "data"), "--host", "127.0.0.1", *PORTS],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=tmp_path,
    )
    try:
        assert process.stdout is not None
        assert "kafka=" in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S_MAX) == 0
    finally:
        process.kill()
        process.communicate()
    assert (home / "data/millstream.json").exists()


def test_a_process_tells_systemd_that_it_is_ready_alive_and_stopping(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(str(tmp_path / "notify"))
        channel.settimeout(WAIT_S_MAX)
        process = subprocess.Popen(
            [MILLSTREAM, "serve", "--storage", "memory", *PORTS],
            env=ENVIRONMENT
            | {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "300000"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=tmp_path,
        )
        try:
            said = [channel.recv(4096).decode()]
            assert "EXTEND_TIMEOUT_USEC=" in said[0]
            while said.count("WATCHDOG=1") < 2:
                said.append(channel.recv(4096).decode())
            process.send_signal(signal.SIGTERM)
            while not said[-1].startswith("STOPPING=1"):
                said.append(channel.recv(4096).decode())
            assert process.wait(WAIT_S_MAX) == 0
        finally:
            process.kill()
            process.wait()
    assert [line for line in said if line.startswith("READY=1")] == [
        "READY=1\nSTATUS=serving clients"
    ]


def test_a_manager_that_is_gone_or_watches_another_process_is_left_alone(tmp_path: Path) -> None:
    async def story() -> None:
        opened = asyncio.Event()
        opened.set()
        for values in (
            {},
            {"NOTIFY_SOCKET": "relative"},
            {"NOTIFY_SOCKET": str(tmp_path / "nobody")},
            {"NOTIFY_SOCKET": "@nobody", "WATCHDOG_USEC": "x", "WATCHDOG_PID": "1"},
        ):
            manager = ServiceManager(values)
            async with manager.following(opened):
                await asyncio.sleep(0)
            manager.stopping()

    asyncio.run(story())
    assert list(tmp_path.iterdir()) == []
