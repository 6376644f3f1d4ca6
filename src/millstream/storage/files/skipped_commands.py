"""Keeps which commands of the control log an operator has decided to leave out, and why.

Owns the file `skipped-commands.json` in the data directory. It exists only after
`millstream repair --skip-command`. Each entry names the offset, the reason and the time, so that
the decision stays visible for as long as the directory lives.

Invariant: entries are never removed. A later version that could apply the command leaves it out as
well, because everything behind it was built without it.
"""

import json
from typing import NamedTuple

from fastcrc import crc32

from millstream.errors import StartupError
from millstream.model import Offset
from millstream.ports import Files
from millstream.storage.files.replacing import replace_file

SKIPPED = "skipped-commands.json"
SKIPPED_MAX = 1_000

_BYTES_MAX = 2**20
_PROBLEM_LENGTH_MAX = 500


class SkippedCommand(NamedTuple):
    offset: Offset
    problem: str
    skipped_ms: int


def read_skipped(files: Files, path: str) -> list[SkippedCommand]:
    """The entries, oldest first. `path` is how the message calls the root of `files`."""
    if not files.exists(SKIPPED):
        return []
    return decode_skipped(files.open(SKIPPED).read(0, _BYTES_MAX), path)


def decode_skipped(text: bytes, path: str) -> list[SkippedCommand]:
    try:
        entries = json.loads(text)["commands"]
        skipped = [SkippedCommand(e["offset"], e["problem"], e["skipped_ms"]) for e in entries]
        # Encoding again checks everything at once: types, checksum, nothing missing or added.
        is_whole = _encode(skipped) == text
    except (ValueError, KeyError, TypeError, RecursionError):
        is_whole = False
    if not is_whole:
        raise StartupError(
            f"{path}/{SKIPPED} is damaged: restore it from a backup, or remove it and skip the "
            "commands again that `millstream inspect` names"
        )
    return skipped


def add_skipped(files: Files, path: str, command: SkippedCommand) -> None:
    """Write one more entry; it survives a power cut when this returns."""
    skipped = read_skipped(files, path)
    if len(skipped) >= SKIPPED_MAX:
        raise StartupError(f"{path}/{SKIPPED} names {SKIPPED_MAX} commands, which is all there is")
    command = command._replace(problem=command.problem[:_PROBLEM_LENGTH_MAX])
    replace_file(files, SKIPPED, [_encode([*skipped, command])])


def _encode(skipped: list[SkippedCommand]) -> bytes:
    commands = [command._asdict() for command in skipped]
    checksum = crc32.iscsi(json.dumps(commands).encode())
    return json.dumps({"commands": commands, "checksum": f"{checksum:08x}"}, indent=2).encode()
