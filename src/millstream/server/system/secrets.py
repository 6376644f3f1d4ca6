"""Reads the values of secrets: from a file, a variable of the environment, or a program.

A file that others may read is refused: its secret is none. Values are never logged.
"""

import os
import shlex
import stat
import subprocess
from pathlib import Path

from millstream.errors import StartupError
from millstream.security.secrets import SECRET_BYTES_MAX, KeySecret, Secret

COMMAND_S_MAX = 10.0
KEY_SET_S_MAX = 5.0
KEY_SET_BYTES_MAX = 2**20
RAW_KEY_BYTES = 32  # A key as it is may end with a byte that is a newline.


class SystemSecrets:
    def read(self, secret: Secret) -> bytes:
        assert secret, "there is no reference to read"
        match secret.scheme:
            case "file":
                value = _read_file(secret)
            case "env":
                value = _read_variable(secret)
            case _:
                value = _run(secret)
        if len(value) > SECRET_BYTES_MAX:
            raise StartupError(f"{secret.reference} has more than {SECRET_BYTES_MAX} bytes")
        if not (isinstance(secret, KeySecret) and len(value) == RAW_KEY_BYTES):
            value = value.removesuffix(b"\n").removesuffix(b"\r")
        if not value:
            raise StartupError(f"{secret.reference} is empty")
        return value

    def call(self, secret: Secret, verb: str, data: bytes) -> bytes:
        assert secret.scheme == "kms"
        answer = _run(secret, verb, data=data)
        if len(answer) > SECRET_BYTES_MAX:
            raise StartupError(f"{secret.reference} printed more than {SECRET_BYTES_MAX} bytes")
        return answer.strip()

    def read_key_set(self, address: str) -> bytes:
        if address.startswith("file:"):
            try:
                with Path(address.removeprefix("file:")).open("rb") as file:
                    return file.read(KEY_SET_BYTES_MAX)
            except OSError as problem:
                raise StartupError(f"cannot read it: {problem.strerror}") from None
        return _fetch(address)


def _fetch(address: str) -> bytes:
    """Read a key set over HTTPS, plain HTTP from this machine only, from no other host."""
    import http.client
    from urllib.parse import urlsplit

    parts = urlsplit(address)
    host = parts.hostname or ""
    if parts.scheme != "https" and host not in {"localhost", "127.0.0.1", "::1"}:
        raise StartupError("keys are read over https only")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(host, parts.port, timeout=KEY_SET_S_MAX)
    try:
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("GET", path, headers={"Accept": "application/json"})
        response = connection.getresponse()
        body = response.read(KEY_SET_BYTES_MAX + 1)
    except (OSError, http.client.HTTPException) as problem:
        raise StartupError(f"cannot fetch it: {problem}") from None
    finally:
        connection.close()
    if response.status != http.client.OK:
        raise StartupError(f"it answers with status {response.status}")
    if len(body) > KEY_SET_BYTES_MAX:
        raise StartupError(f"it has more than {KEY_SET_BYTES_MAX} bytes")
    return body


def check_private(path: str) -> None:
    """Raise `StartupError` for a file that others than its owner and group may read."""
    mode = Path(path).stat().st_mode
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        raise StartupError(f"{path} can be read by everyone: run chmod 600 {path}")


def _read_file(secret: Secret) -> bytes:
    try:
        check_private(secret.place)
        with Path(secret.place).open("rb") as file:
            return file.read(SECRET_BYTES_MAX + 1)
    except OSError as problem:
        raise StartupError(f"cannot read {secret.reference}: {problem.strerror}") from None


def _read_variable(secret: Secret) -> bytes:
    value = os.environ.get(secret.place)
    if value is None:
        raise StartupError(f"{secret.reference}: there is no such variable in the environment")
    return os.fsencode(value)


def _run(secret: Secret, *arguments: str, data: bytes = b"") -> bytes:
    """Run a program without a shell; what it prints is the secret."""
    try:
        done = subprocess.run(
            [*shlex.split(secret.place), *arguments],
            input=data,
            capture_output=True,
            timeout=COMMAND_S_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise StartupError(f"{secret.reference} took more than {COMMAND_S_MAX:.0f} s") from None
    except (OSError, ValueError) as problem:
        raise StartupError(f"cannot run {secret.reference}: {problem}") from None
    if done.returncode:
        raise StartupError(f"{secret.reference} ended with status {done.returncode}")
    return done.stdout
