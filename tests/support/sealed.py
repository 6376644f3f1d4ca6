"""Encryption at rest for tests that know nothing of it: inside `sealing` all logs are sealed.

`tests/sealed` runs the tests of power cuts, rot and models a second time in there.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from uuid import NAMESPACE_OID, uuid5

from millstream.config import Config
from millstream.model import LogId
from millstream.security.secrets import KeySecret
from millstream.security.settings import Encryption
from millstream.storage.sealing.batches import DataKey, Sealer
from millstream.storage.sealing.ciphers import AesKey

KEY_VARIABLE = "TESTS_KEY"  # Not MILLSTREAM_…: a node refuses settings that it does not know.
KEY = b"7" * 64
ENCRYPTED = Encryption(mode="on", key=KeySecret(f"env:{KEY_VARIABLE}"))

# With this in the environment any test runs over sealed logs, to try it.
_state = {"is_on": "TESTS_SEALED" in os.environ}
if _state["is_on"]:
    os.environ[KEY_VARIABLE] = KEY.decode()


class FixedKeys:
    """Keys of a topic without a keyring; see `batches.TopicKeys`."""

    def __init__(self, *keys: DataKey) -> None:
        self.current: DataKey | None = keys[-1] if keys else None
        self.by_id: Mapping[int, DataKey] = {key.id: key for key in keys}

    def exhausted(self) -> DataKey:
        raise AssertionError("tests do not seal as many")


def sealer_of(directory: str) -> Sealer:
    """A sealer with the same key, whenever a log is opened there."""
    keys = FixedKeys(AesKey(1, b"k" * 32, 2**40))
    return Sealer(LogId(uuid5(NAMESPACE_OID, directory), 0), keys, os.urandom)


def is_sealing() -> bool:
    return _state["is_on"]


def sealer_if_sealing(directory: str) -> Sealer | None:
    return sealer_of(directory) if is_sealing() else None


def config_if_sealing(config: Config) -> Config:
    return replace(config, encryption=ENCRYPTED) if _state["is_on"] else config


@contextmanager
def sealing() -> Iterator[None]:
    os.environ[KEY_VARIABLE] = KEY.decode()
    _state["is_on"] = True
    try:
        yield
    finally:
        _state["is_on"] = False
