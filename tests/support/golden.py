"""Golden files: scripts that must go as they are told, and bytes written out for people."""

from collections.abc import Callable
from pathlib import Path

_DIRECTORY = Path(__file__).parents[1] / "golden"


def scripts(directory: str) -> list[Path]:
    """Every golden file of a kind; the name of each is its claim."""
    return sorted((_DIRECTORY / directory).glob("*.txt"))


def check_script(script: Path, run: Callable[[str], str], *, is_update: bool) -> None:
    """Carry a script out: what comes of it is what it tells, or is told from now on."""
    recorded = script.read_text(encoding="utf-8")

    came_of_it = run(recorded)

    if is_update:
        script.write_text(came_of_it, encoding="utf-8")
    else:
        assert came_of_it == recorded


def text(directory: str, claim: str) -> str:
    return (_DIRECTORY / directory / f"{claim}.txt").read_text(encoding="utf-8")


def read_bytes(directory: str, claim: str) -> bytes:
    """The bytes of a file of hexadecimal digits, with a comment behind each `#`."""
    lines = text(directory, claim).splitlines()
    return bytes.fromhex("".join(line.partition("#")[0] for line in lines))
