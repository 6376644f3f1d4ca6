"""Opens the keyring of a data directory offline, for commands that look into it or repair it.

Changes nothing: a keyring that is opened to read makes no keys. Without a key headers, sizes and
checksums of encrypted batches can still be shown.
"""

import os
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from millstream.cli.render import Refused
from millstream.codec.batch import SEALED, Header
from millstream.config_sources import load
from millstream.errors import InvalidBatch, StartupError
from millstream.model import LogId
from millstream.ports import Files
from millstream.security.secrets import NO_KEY, KeySecret
from millstream.server.system.real_ports import SystemClock
from millstream.server.system.secrets import SystemSecrets
from millstream.storage.files.directory import ENCRYPTED, KEYRING, ROOT_KEY
from millstream.storage.files.disk import DiskFiles
from millstream.storage.sealing.batches import BadSeal, Sealer
from millstream.storage.sealing.root import read_root

if TYPE_CHECKING:
    from millstream.storage.sealing.keyring import Keyring


class KeyRequired(StartupError):
    """Encrypted records are asked for, and there is no key."""


class DataKeys:
    """The keys of a data directory. `reason` says why there are none, of one that is encrypted."""

    def __init__(self, keyring: "Keyring | None" = None, reason: str = "") -> None:
        self.keyring = keyring
        self.reason = reason

    def require(self) -> None:
        """Raise `KeyRequired` if there are encrypted records, and no key for them."""
        if self.reason:
            raise KeyRequired(self.reason)

    def sealer(self, log_id: LogId | None) -> Sealer | None:
        """What opens the batches of a log; None without a key, or where nothing is encrypted."""
        if self.keyring is None or log_id is None:
            return None
        return self.keyring.sealer(log_id)

    def opened(self, sealer: Sealer | None, header: Header, data: bytes) -> bytes:
        """The batch as its producer made it.

        Raises `KeyRequired` without a key, and `InvalidBatch` if it does not open.
        """
        if not header.attributes & SEALED:
            return data
        if sealer is None:
            raise KeyRequired(self.reason or "the records are encrypted, and there is no keyring")
        try:
            return b"".join(sealer.open(header, data))
        except BadSeal as problem:
            raise InvalidBatch(str(problem)) from None


NO_KEYS = DataKeys()


def open_data_keys(path: Path, reference: str = "") -> DataKeys:
    """The keys of the data directory at `path`; `Refused` for a key that does not fit.

    The root key is the one at `reference`, else the one that the configuration names, else the one
    that `serve --secure` has made.
    """
    if not (path / KEYRING).exists() and not (path / ENCRYPTED).exists():
        return NO_KEYS
    try:
        secret, old_secret = _root_keys(path, reference)
        if not secret:
            return DataKeys(
                reason=f"{path} is encrypted: pass its root key with --key file:PATH, or set "
                "encryption.key"
            )
        return DataKeys(read_keyring(DiskFiles(path), str(path), secret, old_secret))
    except StartupError as problem:
        raise Refused(str(problem)) from None


def read_keyring(
    files: Files, path: str, secret: KeySecret, old_secret: KeySecret = NO_KEY
) -> "Keyring | None":
    """The keyring in the directory that is the root of `files`, to read; messages call it `path`.

    Raises `StartupError`.
    """
    from millstream.storage.sealing.keyring import open_keyring

    secrets = SystemSecrets()
    return open_keyring(
        files,
        path,
        root=read_root("main", secret, secrets),
        old_root=read_root("main (old)", old_secret, secrets) if old_secret else None,
        seals=False,
        random_bytes=os.urandom,
        clock=SystemClock(),
        lock=nullcontext(),
    )


def _root_keys(path: Path, reference: str) -> tuple[KeySecret, KeySecret]:
    """The reference of the root key, and of the one before it."""
    if reference:
        try:
            return KeySecret.parse(reference), NO_KEY
        except ValueError as problem:
            raise click.UsageError(f"--key {problem}") from None
    settings = load().encryption
    if settings.key:
        return settings.key, settings.old_key
    own = path / ROOT_KEY
    return KeySecret(f"file:{own}") if own.exists() else NO_KEY, NO_KEY
