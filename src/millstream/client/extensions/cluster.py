"""`client.cluster`: the nodes of a cluster, invitations to it, and what becomes of a node."""

from dataclasses import dataclass

from millstream.client.extensions.requests import BrokerRequests

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


class ClusterAdmin:
    def __init__(self, requests: BrokerRequests) -> None:
        self._requests = requests

    def nodes(self) -> list[ClusterNode]:
        """All nodes, with what each says of itself."""
        from millstream.kafka_wire.apis import cluster

        answer = self._requests.call(
            cluster.DescribeNodesRequest(),
            cluster.DescribeNodesResponse,
            feature=_FEATURE,
            doing="describe the nodes",
        )
        return [
            ClusterNode(**{name: getattr(node, name) for name in ClusterNode.__dataclass_fields__})
            for node in answer.nodes
        ]

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
        from millstream.kafka_wire.apis.cluster import ACTIVE

        self._alter(node_id, ACTIVE, f"take node {node_id} back")

    def _alter(self, node_id: int, state: int, doing: str) -> None:
        from millstream.kafka_wire.apis import cluster

        self._requests.call(
            cluster.AlterNodeRequest(node_id=node_id, state=state),
            cluster.AlterNodeResponse,
            feature=_FEATURE,
            doing=doing,
        )
