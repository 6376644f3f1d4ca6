"""Makes a root key for encryption at rest: a file that only its owner can read."""

import os
import secrets
from pathlib import Path

from millstream.errors import StartupError
from millstream.storage.sealing.root import KEY_BYTES, check_value


def make_root_key(path: Path) -> str:
    """Write a new key, durably, and return its check value; never overwrites."""
    value = secrets.token_bytes(KEY_BYTES)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise StartupError(f"{path} is there already: a key is never overwritten") from None
    except OSError as problem:
        raise StartupError(f"cannot make {path}: {problem.strerror}") from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(value.hex().encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
    return check_value(value)
