"""Checkpoints of a node for operators: the gate, and one of them at a time."""

from millstream.config import Config
from millstream.engine.checkpoints.checkpoint import Checkpoint, make_checkpoint, remove_checkpoint
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

    async def make(self, session: Session) -> tuple[str, Checkpoint]:
        """Replace the checkpoint by one of now; returns the data directory, and the checkpoint."""
        self._admit(session)
        self._is_busy = True
        try:
            return self._config.data_dir, await make_checkpoint(self._hub, self._ports)
        finally:
            self._is_busy = False

    async def remove(self, session: Session) -> None:
        """Let go of the files; fine if there is no checkpoint."""
        self._admit(session)
        self._is_busy = True
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
