"""Encryption at rest for operators: its state, new keys, and old records sealed anew.

Owns the gate and the answers. Keys are the keyring's; the sealing anew is done by `upkeep`, beside
compaction, because both replace segments.
"""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple

from millstream.control.commands import NodeEncryption
from millstream.control.nodes import Nodes, clear_text
from millstream.engine.controller import Controller
from millstream.engine.gate import Gate, Operation
from millstream.errors import InvalidRequest, StartupError, StorageError, StorageUnavailable
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
    is_required: bool  # Of every node of the cluster.


class EncryptionKeys:
    def __init__(
        self, gate: Gate, controller: Controller, hub: Hub, threads: Threads, node_id: int
    ) -> None:
        self._gate = gate
        self._controller = controller
        self._hub = hub
        self._threads = threads
        self._node_id = node_id
        self._keyring = hub.keyring

    async def require(self, session: Session, *, is_required: bool) -> None:
        """Have only nodes that encrypt what they write in the cluster, or lift that."""
        self._gate.admit(session, Operation.ALTER, "cluster")
        if is_required and (self._keyring is None or not self._keyring.seals):
            raise InvalidRequest(clear_text(self._node_id))
        await self._controller.require_encryption(session, is_required=is_required)

    async def describe(self, session: Session) -> EncryptionState:
        """Keys with the bytes that they have sealed; walks over the headers of all batches."""
        self._gate.admit(session, Operation.DESCRIBE, "cluster")
        hub, keyring = self._hub, self._keyring
        is_required = self._controller.state.nodes.is_encryption_required
        await hub.awake(list(hub.resting))
        sizes: Counter[int | None] = Counter()
        for replica in list(hub.replicas.values()):
            try:
                sizes += await self._threads.run(partial(_sizes_of, _contents(replica)))
            except StorageError as problem:
                raise StorageUnavailable(f"{replica.name}: {problem}") from problem
        if keyring is None:
            return EncryptionState("off", "", "", False, sizes[None], 0, [], is_required)
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
            is_required,
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
        clash = self._clash_of_next_root() if keys == "root" else ""
        if clash:
            raise InvalidRequest(clash)
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

    def _clash_of_next_root(self) -> str:
        root = None if self._keyring is None else self._keyring.next_root
        if root is None:
            return ""
        return self._controller.state.nodes.key_clash(self._node_id, root.name, root.check)

    def _required(self) -> "Keyring":
        if self._keyring is None:
            raise InvalidRequest(
                'encryption is off: set encryption.mode = "on" and encryption.key, and restart'
            )
        return self._keyring


def check_encryption(nodes: Nodes, node_id: int, keyring: "Keyring | None") -> None:
    """Raise `StartupError` if the cluster does not take a node that stores records so."""
    refusal = nodes.encryption_refusal(node_id, encryption_of(keyring))
    if refusal:
        raise StartupError(refusal)


def encryption_of(keyring: "Keyring | None") -> NodeEncryption:
    """How a node with this keyring stores records."""
    if keyring is None:
        return NodeEncryption(mode="off")
    mode: Literal["on", "read"] = "on" if keyring.seals else "read"
    return NodeEncryption(mode=mode, key_name=keyring.root_name, check=keyring.check)


def _contents(replica: Replica) -> list[FileRange]:
    return [replica.log.contents(segment) for segment in replica.log.segments()]


def _sizes_of(contents: Sequence[FileRange]) -> "Counter[int | None]":
    from millstream.storage.sealing.rewriting import bytes_by_key

    return sum(map(bytes_by_key, contents), Counter())
