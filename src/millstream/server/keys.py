"""Opens the keyring of a node at its start, before anything else is touched.

Owns the sentences that an operator reads when a key is missing or wrong.
"""

from typing import TYPE_CHECKING

from millstream.config import Config
from millstream.errors import StartupError
from millstream.ports import Ports
from millstream.server.system.real_ports import thread_lock
from millstream.storage.files.directory import ENCRYPTED, KEYRING, DataDirectory

if TYPE_CHECKING:
    from millstream.storage.sealing.keyring import Keyring
    from millstream.storage.sealing.root import Root


def check_keyring(config: Config, ports: Ports) -> None:
    """Raise `StartupError` if the records in the data directory could not be read."""
    if config.encryption.is_on:
        _open(config, ports)
    elif ports.files.exists(KEYRING) or ports.files.exists(ENCRYPTED):
        raise StartupError(
            f"data_dir {config.data_dir} is encrypted; set encryption.key, and encryption.mode to "
            '"on", or to "read" if new records shall be written in clear'
        )


def begin_keyring(config: Config, ports: Ports, directory: DataDirectory) -> "Keyring | None":
    """The keyring of a directory that is locked; made if encryption is on for the first time."""
    if not config.encryption.is_on:
        return None
    try:
        return _begin(config, ports, directory)
    except OSError as problem:
        raise StartupError(f"cannot write {config.data_dir}/{KEYRING}: {problem}") from None


def _begin(config: Config, ports: Ports, directory: DataDirectory) -> "Keyring | None":
    from millstream.storage.sealing.keyring import make_keyring

    keyring = _open(config, ports)
    if keyring is None:
        if config.encryption.mode == "read":
            return None
        keyring = make_keyring(
            ports.files,
            cluster_id=directory.cluster_id,
            root=current_root(config, ports),
            random_bytes=ports.entropy.randbytes,
            clock=ports.clock,
            lock=thread_lock(),
        )
    if keyring.cluster_id != directory.cluster_id:
        raise StartupError(
            f"{config.data_dir}/{KEYRING} belongs to another data directory: restore the one that "
            "was written here"
        )
    keyring.begin()
    return keyring


def current_root(config: Config, ports: Ports) -> "Root":
    """The root key of `encryption.key`."""
    from millstream.storage.sealing.root import read_root

    settings = config.encryption
    return read_root(settings.key_name, settings.key, ports.secrets)


def _open(config: Config, ports: Ports) -> "Keyring | None":
    from millstream.storage.sealing.keyring import open_keyring
    from millstream.storage.sealing.root import read_root

    settings = config.encryption
    old_root = None
    if settings.old_key:
        old_root = read_root(f"{settings.key_name} (old)", settings.old_key, ports.secrets)
    return open_keyring(
        ports.files,
        config.data_dir,
        root=current_root(config, ports),
        old_root=old_root,
        seals=settings.mode == "on",
        random_bytes=ports.entropy.randbytes,
        clock=ports.clock,
        lock=thread_lock(),
    )
