"""Messages about the nodes of a cluster, for clients that know Millstream."""

from millstream.kafka_wire.apis.millstream import OwnResponse
from millstream.kafka_wire.schema import Bool, Bytes, Int8, Int32, Message, String, empty

# What AlterNode makes of a node.
DRAINING, ACTIVE, REMOVED, LEAVING = 0, 1, 2, 3


class DescribeNodesRequest(Message, kw_only=True):
    pass


class DescribeNodesResponse(OwnResponse, kw_only=True):
    class Node(Message, kw_only=True):
        node_id: Int32
        state: String
        is_up: Bool
        is_controller: Bool
        is_voter: Bool
        address: String  # Of Kafka clients, HOST:PORT.
        peer_address: String
        rack: String
        version: String
        leader_count: Int32 = -1  # -1: the node did not say.
        replica_count: Int32 = -1
        behind_count: Int32 = -1  # Partitions led there with a replica that is behind or silent.

    cluster_id: String = ""
    nodes: list[Node] = empty()


class InviteNodeRequest(Message, kw_only=True):
    pass


class InviteNodeResponse(OwnResponse, kw_only=True):
    token: String = ""

    def __repr__(self) -> str:
        return "InviteNodeResponse([hidden])"


class JoinClusterRequest(Message, kw_only=True):
    """The newcomer proves that it holds a token; it needs no other right."""

    invitation: Bytes
    request: Bytes  # JSON of `control.tokens.JoinRequest`.
    proof: Bytes


class JoinClusterResponse(OwnResponse, kw_only=True):
    admission: Bytes = b""  # JSON of `control.tokens.Admission`.


class AlterNodeRequest(Message, kw_only=True):
    node_id: Int32
    state: Int8
    successor: Int32 = 0  # Of a node that leaves: the node that takes its replicas. 0: any.
    is_dry: Bool = False  # Only say whether a node could leave.


class AlterNodeResponse(OwnResponse, kw_only=True):
    pass
