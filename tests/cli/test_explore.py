"""`millstream explore` as a command: what it needs, and once for real, in a terminal."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep

import pytest

from tests.cli.conftest import NOBODY, Cli
from tests.support.broker_process import BrokerProcess

MILLSTREAM = Path(sys.executable).parent / "millstream"
DEADLINE_S = 60.0
AGAIN_S = 5.0
LOOK_S = 0.1
HEAVY = ("textual", "millstream.cli.explorer")


def test_without_textual_the_fix_is_one_sentence() -> None:
    code = (
        "import sys\nsys.modules['textual'] = None\n"
        "from millstream.cli.main import commands\ncommands(['explore'])"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )

    assert shown.returncode == 1
    assert shown.stderr.startswith("millstream: explore needs textual")
    assert "pip install 'millstream[explore]'" in shown.stderr
    assert shown.stderr.count("\n") == 1


def test_without_a_terminal_other_commands_are_named(cli: Cli) -> None:
    assert "millstream consume" in cli.refusal("explore")


def test_no_other_command_loads_textual() -> None:
    code = (
        "import sys\nfrom millstream.cli.main import commands\n"
        "for words in (['--help'], ['explore', '--help'], ['topic', 'list', '--help']):\n"
        "    commands(words, standalone_mode=False)\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert shown.stderr.strip() == "[]"


class Terminal:
    """tmux, of which each has one for itself."""

    def __init__(self, directory: Path) -> None:
        self._socket = directory / "tmux"

    def run(self, *arguments: str) -> str:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("MILLSTREAM_")}
        result = subprocess.run(
            ["tmux", "-S", self._socket, *arguments],
            capture_output=True,
            text=True,
            env=environment | {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"},
            timeout=DEADLINE_S,
            check=True,
        )
        return result.stdout

    def start(self, command: str) -> None:
        self.run("-f", "/dev/null", "-u", "new-session", "-d", "-x", "110", "-y", "30", command)
        self.run("set-option", "-g", "remain-on-exit", "on")

    def type(self, *keys: str) -> None:
        self.run("send-keys", *keys)

    @property
    def sees(self) -> str:
        return self.run("capture-pane", "-p")

    def until_seen(self, text: str, *, typing: str | None = None) -> None:
        """Look until it is there. What is typed is typed again if it seems to have been lost."""
        deadline = monotonic() + DEADLINE_S
        type_at = monotonic()
        while text not in (seen := self.sees):
            assert monotonic() < deadline, f"{text!r} is not in\n{seen}"
            if typing is not None and monotonic() >= type_at:
                self.type(typing)
                type_at = monotonic() + AGAIN_S
            sleep(LOOK_S)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    if shutil.which("tmux") is None:
        pytest.skip("needs tmux")
    terminal = Terminal(tmp_path)
    yield terminal
    subprocess.run(["tmux", "-S", tmp_path / "tmux", "kill-server"], check=False)


@pytest.mark.timeout(300)
def test_in_a_terminal_records_are_seen_and_it_leaves_cleanly(
    cli: Cli, broker: BrokerProcess, terminal: Terminal, names: Callable[[], str]
) -> None:
    topic = names()
    cli.run("topic", "create", topic)
    cli.run("produce", topic, typed='{"item": "bread"}\n{"item": "flour"}\n')

    terminal.start(f"{MILLSTREAM} explore --bootstrap {broker.address}; echo code=$?; cat")
    terminal.until_seen(topic)
    terminal.type("/")
    terminal.until_seen("part of a name")
    terminal.type("-l", topic)
    terminal.type("Enter")
    terminal.until_seen(f"1 topic with '{topic}'")
    terminal.until_seen('"item": "flour"', typing="Enter")
    terminal.type("Up")
    terminal.until_seen(f"{topic}-0 @ 0")
    terminal.type("q")

    terminal.until_seen("code=0")
    assert "Traceback" not in terminal.sees


def test_in_a_terminal_an_unreachable_broker_is_one_line(terminal: Terminal) -> None:
    terminal.start(f"{MILLSTREAM} explore --bootstrap {NOBODY}; echo code=$?; cat")

    terminal.until_seen("code=1")
    assert terminal.sees.startswith("millstream: cannot connect")
