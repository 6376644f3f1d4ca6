"""`client.checkpoints`: the files of a node at one moment, to be copied on its machine."""

from dataclasses import dataclass

from millstream.client.extensions.requests import BrokerRequests

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

    def remove(self) -> None:
        from millstream.kafka_wire.apis import rights

        self._requests.call(
            rights.AlterCheckpointRequest(action=_REMOVE),
            rights.AlterCheckpointResponse,
            feature="checkpoints",
            doing="remove a checkpoint",
        )
