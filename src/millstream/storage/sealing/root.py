"""The operator's root key, which protects the master key of a keyring.

It is 32 bytes from a file, a variable or a program, or it never leaves a key management service: a
program then wraps and unwraps the master key. Its check value tells one key from another, and
nothing about the key.
"""

import binascii
import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from typing import Protocol

from millstream.errors import StartupError
from millstream.ports import Secrets
from millstream.security.secrets import KeySecret

KEY_BYTES = 32
MASTER_BYTES_MAX = 4_096  # Of a master key as a service wraps it.
_CHECK_BYTES = 4
_PURPOSE = b"millstream key check"
_HEX = re.compile(rb"[0-9a-fA-F]{64}")


class Root(Protocol):
    """Wraps and unwraps master keys."""

    name: str

    @property
    def check(self) -> str:
        """Eight digits that tell this key from others; empty where the key is not known here."""

    def wrap(self, master: bytes, associated: bytes, nonce: bytes) -> bytes: ...

    def unwrap(self, wrapped: bytes, associated: bytes) -> bytes | None:
        """None if this is not the key that it was wrapped with."""


class LocalRoot:
    """A root key that this process has read."""

    def __init__(self, name: str, key: bytes) -> None:
        assert len(key) == KEY_BYTES
        self.name = name
        self.check = check_value(key)
        self._key = key

    def wrap(self, master: bytes, associated: bytes, nonce: bytes) -> bytes:
        from millstream.storage.sealing import ciphers

        return ciphers.wrap(self._key, master, associated, nonce)

    def unwrap(self, wrapped: bytes, associated: bytes) -> bytes | None:
        from millstream.storage.sealing import ciphers

        return ciphers.unwrap(self._key, wrapped, associated)


class ServiceRoot:
    """A root key in a key management service, asked by a program."""

    check = ""

    def __init__(self, name: str, secret: KeySecret, secrets: Secrets) -> None:
        self.name = name
        self._secret = secret
        self._secrets = secrets

    def wrap(self, master: bytes, associated: bytes, nonce: bytes) -> bytes:
        return self._call("wrap", master)

    def unwrap(self, wrapped: bytes, associated: bytes) -> bytes | None:
        master = self._call("unwrap", wrapped)
        return master if len(master) == KEY_BYTES else None

    def _call(self, verb: str, data: bytes) -> bytes:
        answer = self._secrets.call(self._secret, verb, b64encode(data) + b"\n")
        try:
            result = b64decode(answer, validate=True)
        except binascii.Error:
            raise StartupError(f"{self._secret.reference} {verb} printed no base64") from None
        if not 0 < len(result) <= MASTER_BYTES_MAX:
            raise StartupError(
                f"{self._secret.reference} {verb} printed {len(result)} bytes, 1 to "
                f"{MASTER_BYTES_MAX} were expected"
            )
        return result


def read_root(name: str, secret: KeySecret, secrets: Secrets) -> Root:
    """The root key that `secret` refers to; `StartupError` if there is none."""
    if secret.scheme == "kms":
        return ServiceRoot(name, secret, secrets)
    return LocalRoot(name, parse_key(secrets.read(secret), secret.reference))


def parse_key(value: bytes, reference: str) -> bytes:
    """32 bytes, as they are, in hexadecimal or in base64."""
    if len(value) == KEY_BYTES:
        return value
    text = value.strip()
    if _HEX.fullmatch(text):
        return bytes.fromhex(text.decode())
    try:
        decoded = b64decode(text, validate=True)
    except binascii.Error:
        decoded = b""
    if len(decoded) != KEY_BYTES:
        raise StartupError(
            f"{reference} is no key: {KEY_BYTES} bytes are expected, as they are, in hexadecimal "
            "or in base64; make one with: millstream encryption key FILE"
        )
    return decoded


def check_value(key: bytes) -> str:
    return hmac.digest(key, _PURPOSE, hashlib.sha256)[:_CHECK_BYTES].hex()
