"""`client.cluster`: the nodes of a cluster, invitations to it, and what becomes of a node."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from millstream.client.extensions.requests import BrokerRequests, refusal

_FEATURE = "clusters of several nodes"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNode:
    """A node as the one that was asked sees it; counts are -1 where it did not say."""

    node_id: int
    state: str
    is_up: bool
    is_controller: bool
    is_voter: bool
    address: str
    peer_address: str
    rack: str
    version: str
    leader_count: int
    replica_count: int
    behind_count: int
    # Levels of `cluster.version` that its version knows; 0 of a broker that does not say.
    level_lowest: int = 0
    level_highest: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDescription:
    level: int  # Of the feature `cluster.version`, in use; 0 of a broker that does not say.
    nodes: tuple[ClusterNode, ...]

    @property
    def level_next(self) -> int:
        """The highest level that some node knows."""
        return max((node.level_highest for node in self.nodes), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A partition whose replicas move."""

    topic: str
    partition: int
    replicas: tuple[int, ...]  # The nodes that hold it, those that come and go included.
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class ClusterAdmin:
    def __init__(self, requests: BrokerRequests) -> None:
        self._requests = requests

    def nodes(self) -> list[ClusterNode]:
        """All nodes, with what each says of itself."""
        return list(self.describe().nodes)

    def describe(self) -> ClusterDescription:
        """All nodes, and the level of `cluster.version` that they use."""
        from millstream.kafka_wire.apis import cluster

        answer = self._requests.call(
            cluster.DescribeNodesRequest(),
            cluster.DescribeNodesResponse,
            feature=_FEATURE,
            doing="describe the nodes",
        )
        names = ClusterNode.__dataclass_fields__
        return ClusterDescription(
            level=answer.level,
            nodes=tuple(
                ClusterNode(**{name: getattr(node, name) for name in names})
                for node in answer.nodes
            ),
        )

    def upgrade(self, level: int, *, dry_run: bool = False) -> None:
        """Finalize a level of `cluster.version` that every node knows. There is no way back.

        With `dry_run` it is only checked. Raises `Refused` with the node that is too old.
        """
        from millstream.kafka_wire.apis.cluster import (
            UpdateFeaturesRequest,
            UpdateFeaturesResponse,
        )

        doing = f"raise cluster.version to {level}"
        update = UpdateFeaturesRequest.Update(feature="cluster.version", max_version_level=level)
        answer = self._requests.ask(
            UpdateFeaturesRequest(feature_updates=[update], validate_only=dry_run),
            UpdateFeaturesResponse,
            feature="levels of features",
            doing=doing,
        )
        if answer.error_code:
            raise refusal(answer.error_code, answer.error_message or "", doing)

    def invite(self) -> str:
        """Make a token, with which one node joins within an hour."""
        from millstream.kafka_wire.apis import cluster

        answer = self._requests.call(
            cluster.InviteNodeRequest(),
            cluster.InviteNodeResponse,
            feature=_FEATURE,
            doing="invite a node",
        )
        return answer.token

    def join(self, invitation: bytes, request: bytes, proof: bytes) -> bytes:
        """Ask for admission, in the bytes of `millstream cluster join`; return the answer's."""
        from millstream.kafka_wire.apis import cluster

        answer = self._requests.call(
            cluster.JoinClusterRequest(invitation=invitation, request=request, proof=proof),
            cluster.JoinClusterResponse,
            feature=_FEATURE,
            doing="join the cluster",
        )
        return bytes(answer.admission)

    def drain(self, node_id: int) -> None:
        """Let other nodes lead, and give a node no new replicas, until `undrain`."""
        from millstream.kafka_wire.apis.cluster import DRAINING

        self._alter(node_id, DRAINING, f"drain node {node_id}")

    def undrain(self, node_id: int) -> None:
        """Take back a node that is drained or decommissioned."""
        from millstream.kafka_wire.apis.cluster import ACTIVE

        self._alter(node_id, ACTIVE, f"take node {node_id} back")

    def decommission(
        self, node_id: int, *, successor: int | None = None, dry_run: bool = False
    ) -> None:
        """Move all replicas away from a node, to `successor` if one is named, then remove it.

        Returns when that has begun; with `dry_run` nothing begins. `undrain` takes the node back.
        """
        from millstream.kafka_wire.apis.cluster import LEAVING

        doing = f"decommission node {node_id}"
        self._alter(node_id, LEAVING, doing, successor=successor or 0, is_dry=dry_run)

    def move(self, topic: str, targets: Mapping[int, Sequence[int] | None]) -> None:
        """Move partitions to other nodes, the first of each preferred as leader; None cancels.

        Returns when the moves have begun: `moves` lists them until they are done.
        """
        from millstream.kafka_wire.apis.admin import (
            AlterPartitionReassignmentsRequest,
            AlterPartitionReassignmentsResponse,
        )

        shape = AlterPartitionReassignmentsRequest.Topic
        parts = [
            shape.Partition(partition_index=at, replicas=None if nodes is None else list(nodes))
            for at, nodes in targets.items()
        ]
        doing = f"move partitions of {topic}"
        answer = self._requests.ask(
            AlterPartitionReassignmentsRequest(topics=[shape(name=topic, partitions=parts)]),
            AlterPartitionReassignmentsResponse,
            feature="moves of partitions",
            doing=doing,
        )
        codes = [(answer.error_code, answer.error_message)]
        codes += [
            (part.error_code, part.error_message)
            for each in answer.responses
            for part in each.partitions
        ]
        for code, message in codes:
            if code:
                raise refusal(code, message or "", doing)

    def moves(self) -> list[Move]:
        """The partitions that move now."""
        from millstream.kafka_wire.apis.admin import (
            ListPartitionReassignmentsRequest,
            ListPartitionReassignmentsResponse,
        )

        doing = "list the partitions that move"
        answer = self._requests.ask(
            ListPartitionReassignmentsRequest(topics=None),
            ListPartitionReassignmentsResponse,
            feature="moves of partitions",
            doing=doing,
        )
        if answer.error_code:
            raise refusal(answer.error_code, answer.error_message or "", doing)
        return [
            Move(
                topic=topic.name,
                partition=part.partition_index,
                replicas=tuple(part.replicas),
                adding=tuple(part.adding_replicas),
                removing=tuple(part.removing_replicas),
            )
            for topic in answer.topics
            for part in topic.partitions
        ]

    def _alter(
        self, node_id: int, state: int, doing: str, *, successor: int = 0, is_dry: bool = False
    ) -> None:
        from millstream.kafka_wire.apis import cluster

        self._requests.call(
            cluster.AlterNodeRequest(
                node_id=node_id, state=state, successor=successor, is_dry=is_dry
            ),
            cluster.AlterNodeResponse,
            feature=_FEATURE,
            doing=doing,
        )
