"""Encryption at rest for operators: its state, new keys, and old records sealed anew.

Owns the gate and the answers. Keys are the keyring's; the sealing anew is done by `upkeep`, beside
compaction, because both replace segments.
"""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple

from millstream.engine.gate import Gate, Operation
from millstream.errors import InvalidRequest, StorageError, StorageUnavailable
from millstream.model import LogId, Session
from millstream.ports import Threads
from millstream.replication.hub import Hub
from millstream.replication.replica import Replica
from millstream.storage.log.segment import FileRange

if TYPE_CHECKING:
    from millstream.storage.sealing.keyring import Keyring

RotatedKeys = Literal["data", "root", "master"]
KEYS_LISTED_MAX = 10_000


class KeyState(NamedTuple):
    id: int
    topic: str
    made_ms: int
    size_bytes: int  # Of the records that it has sealed.


class EncryptionState(NamedTuple):
    mode: str
    key_name: str
    check: str
    is_root_due: bool  # Whether `rotate --root` is yet to be done.
    clear_bytes: int
    rewriting_count: int  # Logs that are yet to be sealed anew.
    keys: list[KeyState]


class EncryptionKeys:
    def __init__(self, gate: Gate, hub: Hub, threads: Threads) -> None:
        self._gate = gate
        self._hub = hub
        self._threads = threads
        self._keyring = hub.keyring

    async def describe(self, session: Session) -> EncryptionState:
        """Keys with the bytes that they have sealed; walks over the headers of all batches."""
        self._gate.admit(session, Operation.DESCRIBE, "cluster")
        hub, keyring = self._hub, self._keyring
        await hub.awake(list(hub.resting))
        sizes: Counter[int | None] = Counter()
        for replica in list(hub.replicas.values()):
            try:
                sizes += await self._threads.run(partial(_sizes_of, _contents(replica)))
            except StorageError as problem:
                raise StorageUnavailable(f"{replica.name}: {problem}") from problem
        if keyring is None:
            return EncryptionState("off", "", "", False, sizes[None], 0, [])
        keys = [
            KeyState(
                entry.id,
                hub.topic_name(LogId(entry.topic_id, 0)),
                entry.made_ms,
                sizes[entry.id],
            )
            for entry in keyring.entries()
        ]
        return EncryptionState(
            "on" if keyring.seals else "read",
            keyring.root_name,
            keyring.check,
            keyring.awaits_root,
            sizes[None],
            hub.upkeep.rewriting_count,
            keys[-KEYS_LISTED_MAX:],
        )

    async def rotate(self, session: Session, keys: RotatedKeys) -> int:
        """Make new keys; returns how many data keys were made or wrapped again."""
        self._gate.admit(session, Operation.ALTER, "cluster")
        keyring = self._required()
        if keys == "root" and not keyring.awaits_root:
            raise InvalidRequest(
                "encryption.key protects the keyring already: set the new one as encryption.key "
                "and the one of today as encryption.old_key, and restart the node"
            )
        work = {
            "data": keyring.rotate,
            "root": keyring.rotate_root,
            "master": keyring.rotate_master,
        }[keys]
        try:
            count = await self._threads.run(work)
        except (OSError, StorageError) as problem:
            raise StorageUnavailable(f"the keyring could not be written: {problem}") from problem
        self._gate.note("encryption.change", session, "cluster", {"rotated": keys})
        return int(count)

    async def rewrite(self, session: Session) -> int:
        """Have old records sealed with the keys of today, in the background; how many logs."""
        self._gate.admit(session, Operation.ALTER, "cluster")
        self._required()
        await self._hub.awake(list(self._hub.resting))
        replicas = list(self._hub.replicas.values())
        self._hub.upkeep.rewrite_soon(replicas)
        self._gate.note("encryption.change", session, "cluster", {"rewriting": len(replicas)})
        return len(replicas)

    def _required(self) -> "Keyring":
        if self._keyring is None:
            raise InvalidRequest(
                'encryption is off: set encryption.mode = "on" and encryption.key, and restart'
            )
        return self._keyring


def _contents(replica: Replica) -> list[FileRange]:
    return [replica.log.contents(segment) for segment in replica.log.segments()]


def _sizes_of(contents: Sequence[FileRange]) -> "Counter[int | None]":
    from millstream.storage.sealing.rewriting import bytes_by_key

    return sum(map(bytes_by_key, contents), Counter())
