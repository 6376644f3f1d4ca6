"""Checkpoints of a node for operators: the gate, and one of them at a time."""

from millstream.config import Config
from millstream.engine.checkpoints.checkpoint import (
    Checkpoint,
    make_checkpoint,
    read_chunk,
    remove_checkpoint,
)
from millstream.engine.gate import Gate, Operation
from millstream.errors import InvalidRequest, StorageUnavailable
from millstream.model import Session
from millstream.ports import Ports
from millstream.replication.hub import Hub


class Checkpoints:
    def __init__(self, gate: Gate, hub: Hub, ports: Ports, config: Config) -> None:
        self._gate = gate
        self._hub = hub
        self._ports = ports
        self._config = config
        self._is_busy = False
        self._made: Checkpoint | None = None  # By this process, and not removed.

    async def make(self, session: Session) -> tuple[str, Checkpoint]:
        """Replace the checkpoint by one of now; returns the data directory, and the checkpoint."""
        self._admit(session)
        self._is_busy = True
        try:
            self._made = None
            self._made = await make_checkpoint(self._hub, self._ports)
            return self._config.data_dir, self._made
        finally:
            self._is_busy = False

    async def read(self, session: Session, identity: str, path: str, position: int) -> bytes:
        """The next bytes of a file of the checkpoint `identity`; none at its end."""
        self._admit(session)
        if self._made is None or identity != self._made.id:
            raise InvalidRequest(
                f"the checkpoint {identity!r} is gone, another backup or a restart has replaced "
                "it: begin again"
            )
        if path not in self._made.paths:
            raise InvalidRequest(f"the checkpoint has no file {path!r}")
        if position < 0:
            raise InvalidRequest(f"{position} is no position in a file")
        files = self._ports.files
        try:
            return await self._ports.threads.run(lambda: read_chunk(files, path, position))
        except OSError as problem:
            raise StorageUnavailable(f"{path} could not be read: {problem}") from problem

    async def remove(self, session: Session) -> None:
        """Let go of the files; fine if there is no checkpoint."""
        self._admit(session)
        self._is_busy = True
        self._made = None
        try:
            await self._ports.threads.run(lambda: remove_checkpoint(self._ports.files))
        except OSError as problem:
            raise StorageUnavailable(f"the checkpoint could not be removed: {problem}") from problem
        finally:
            self._is_busy = False

    def _admit(self, session: Session) -> None:
        self._gate.admit(session, Operation.ALTER, "cluster")
        if self._config.storage != "disk":
            raise InvalidRequest("this node keeps its records in memory: there is nothing to copy")
        if self._is_busy:
            raise InvalidRequest("a checkpoint is being made or removed: try again in a while")
