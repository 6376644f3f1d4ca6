"""The quick start of the README, line by line, with the package installed as a newcomer has it."""

import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.documents import blocks, carried_out, steps
from tests.support.source_tree import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
INSTALL, DEMO, *QUICK_START = steps(README)
PORTS = ("PORT", "FLUX_PORT", "CLASSIC_PORT", "HTTP_PORT")
FREE_PORTS = {f"MILLSTREAM_{name}": "0" for name in PORTS}

# What a newcomer's pip fetches is here already; it builds and installs the package as theirs does.
PIP = """\
#!/bin/sh
exec {python} -m pip --python {bin}/python "$@" --no-deps --no-index --no-build-isolation
"""

pytestmark = pytest.mark.timeout(300)


class Newcomer:
    """An environment of its own, with nothing of this checkout on its path."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.bin = home / ".venv" / "bin"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", self.bin.parent], check=True)
        # Only the dependencies: a path that is found this way runs no `.pth` of its own.
        packages = sysconfig.get_path("purelib", vars={"base": str(self.bin.parent)})
        (Path(packages) / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
        pip = self.bin / "pip"
        pip.write_text(PIP.format(python=sys.executable, bin=self.bin))
        pip.chmod(0o755)
        ours = ("MILLSTREAM_", "PYTHON")
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(ours)} | {
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "XDG_CONFIG_HOME": str(home),
        }

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            cwd=self.home,
            env=self.environment,
            timeout=120,
            check=False,
        )


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Newcomer:
    newcomer = Newcomer(tmp_path_factory.mktemp("newcomer"))
    done = carried_out(INSTALL, directory=ROOT, environment=newcomer.environment)
    assert "Successfully installed millstream" in done.output
    return newcomer


@pytest.fixture(scope="module")
def served(newcomer: Newcomer) -> Iterator[Newcomer]:
    """With the README's broker in another terminal."""
    (command,) = [block for block in blocks(README, "text") if "millstream serve" in block]
    broker = subprocess.Popen(
        ["/bin/sh", "-c", f"exec {command.strip()}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=newcomer.home,
        env=newcomer.environment | FREE_PORTS,
    )
    assert broker.stdout is not None
    ready = broker.stdout.readline()
    assert ready.startswith("millstream ready "), ready
    newcomer.environment["MILLSTREAM_BOOTSTRAP"] = ready.split("kafka=")[1].split()[0]
    yield newcomer
    broker.terminate()
    broker.communicate(timeout=60)
    assert broker.returncode == 0


def test_what_is_installed_is_all_of_it_and_not_this_checkout(newcomer: Newcomer) -> None:
    code = "import millstream, millstream.demo as d; print(millstream.__file__); print(d.__path__)"
    shown = newcomer.run(str(newcomer.bin / "python"), "-c", code).stdout

    assert str(ROOT / "src") not in shown
    assert shown.count(str(newcomer.home)) == 2
    (package,) = (newcomer.home / ".venv").glob("lib/*/site-packages/millstream")
    missing = [
        path.relative_to(ROOT / "src" / "millstream")
        for path in (ROOT / "src" / "millstream").rglob("*")
        if path.is_file()
        and "__pycache__" not in path.parts
        and not (package / path.relative_to(ROOT / "src" / "millstream")).is_file()
    ]
    assert missing == []


def test_the_demonstration_runs(newcomer: Newcomer) -> None:
    # Spark has a test of its own; here it counts that a newcomer without Java sees the rest.
    environment = newcomer.environment | {"JAVA_HOME": str(newcomer.home / "nowhere")}
    shown = carried_out(DEMO, directory=newcomer.home, environment=environment)

    assert "every order is there, each exactly once" in shown.output


def test_the_commands_print_what_the_readme_says(served: Newcomer) -> None:
    answers = [
        carried_out(step, directory=served.home, environment=served.environment)
        for step in QUICK_START
    ]

    assert answers == QUICK_START


def test_the_lines_of_python_read_what_they_wrote(served: Newcomer) -> None:
    (code,) = blocks(README, "python")
    result = served.run(str(served.bin / "python"), "-c", code)

    assert result.returncode == 0, result.stderr
    assert result.stdout == 'b\'{"item": "flour", "kg": 25}\'\n'
