"""The releases of Kafka under test: fetched by Maven, compiled against, run.

Each folder with a `pom.xml` names one set of jars; they are copied to `build/`, which git does not
see, and fetched again only when their `pom.xml` changes.
"""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

HERE = Path(__file__).parent
BUILD = HERE / "build"
FETCH_SECONDS_MAX = 500
COMPILE_SECONDS_MAX = 120
# Small processes that live for seconds: what they start with matters, what they could reach not.
JAVA = ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xmx256m"]


@dataclass(frozen=True, slots=True)
class Release:
    """A line of releases: the folder its client comes from, and the one of its tools."""

    line: str
    client: str
    tools: str

    def install(self) -> None:
        """Fetch what is not there yet, and compile the driver against this client."""
        require()
        for folder in {self.client, self.tools}:
            fetch(folder)
        sources = sorted(str(path) for path in (HERE / "driver").glob("*.java"))
        classes = ["-d", str(BUILD / self.client / "classes")]
        jars = ["-cp", str(BUILD / self.client / "lib" / "*")]
        run(["javac", "-nowarn", *classes, *jars, *sources], COMPILE_SECONDS_MAX)

    @property
    def driver_command(self) -> list[str]:
        home = BUILD / self.client
        return [*JAVA, "-cp", f"{home / 'classes'}:{home / 'lib' / '*'}", "interop.Main"]

    def tool_command(self, main_class: str) -> list[str]:
        return [*JAVA, "-cp", str(BUILD / self.tools / "lib" / "*"), main_class]


RELEASES = [
    Release("3.x", client="kafka3", tools="kafka3"),
    Release("4.x", client="kafka4", tools="kafka4_tools"),
]


def require() -> None:
    """Fail the test unless there are a JDK and Maven."""
    for program in ("java", "javac", "mvn"):
        if shutil.which(program) is None:
            pytest.fail(
                f"the Java suite needs {program}: install a JDK (17 or newer) and Maven, "
                "and see that they are on the PATH",
                pytrace=False,
            )


def fetch(folder: str) -> None:
    project, fetched = HERE / folder / "pom.xml", BUILD / folder / "pom.xml"
    if fetched.exists() and fetched.read_bytes() == project.read_bytes():
        return
    shutil.rmtree(fetched.parent, ignore_errors=True)
    run(
        [
            *("mvn", "-q", "-B", "-f", str(project), "dependency:copy-dependencies"),
            *("-DincludeScope=runtime", f"-DoutputDirectory={fetched.parent / 'lib'}"),
        ],
        FETCH_SECONDS_MAX,
    )
    shutil.copy(project, fetched)  # Last: a fetch that was cut off is done again.


def run(command: list[str], seconds_max: int) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds_max, check=False)
    if done.returncode != 0:
        pytest.fail(f"{command[0]} failed:\n{done.stdout}{done.stderr}", pytrace=False)
