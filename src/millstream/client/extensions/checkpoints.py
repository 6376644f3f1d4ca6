"""`client.checkpoints`: the files of a node at one moment, to be copied on its machine."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.client.extensions.requests import BrokerRequests

if TYPE_CHECKING:
    from millstream.client.models import BrokerNode

_MAKE, _REMOVE = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Lies in the directory `checkpoint` below `data_dir`, a path on the node's machine."""

    id: str
    node_id: int
    cluster_id: str
    data_dir: str
    log_count: int
    size_bytes: int


class Checkpoints:
    def __init__(self, requests: BrokerRequests) -> None:
        self._requests = requests

    def of(self, node: "BrokerNode") -> "Checkpoints":
        """The checkpoints of one node of a cluster."""
        return Checkpoints(self._requests.to(node))

    def make(self) -> Checkpoint:
        """Replace the node's checkpoint by one of now. It takes no space until logs change."""
        from millstream.kafka_wire.apis import rights

        answer = self._requests.call(
            rights.AlterCheckpointRequest(action=_MAKE),
            rights.AlterCheckpointResponse,
            feature="checkpoints",
            doing="make a checkpoint",
        )
        return Checkpoint(
            id=answer.id,
            node_id=answer.node_id,
            cluster_id=answer.cluster_id,
            data_dir=answer.data_dir,
            log_count=answer.log_count,
            size_bytes=answer.size_bytes,
        )

    def read(self, identity: str, path: str, position: int) -> bytes:
        """The next bytes of a file of the node's checkpoint; none at its end."""
        from millstream.kafka_wire.apis import rights

        return self._requests.call(
            rights.ReadCheckpointRequest(id=identity, path=path, position=position),
            rights.ReadCheckpointResponse,
            feature="checkpoints",
            doing=f"read {path} of a checkpoint",
        ).data

    def remove(self) -> None:
        from millstream.kafka_wire.apis import rights

        self._requests.call(
            rights.AlterCheckpointRequest(action=_REMOVE),
            rights.AlterCheckpointResponse,
            feature="checkpoints",
            doing="remove a checkpoint",
        )
