"""Messages about the nodes of a cluster and their features, most for clients that know Millstream.

UpdateFeatures is Kafka's (KIP-584).
"""

from typing import Annotated

from millstream.kafka_wire.apis.millstream import OwnResponse
from millstream.kafka_wire.schema import (
    Bool,
    Bytes,
    Int8,
    Int16,
    Int32,
    Message,
    Since,
    String,
    empty,
)

# What AlterNode makes of a node.
DRAINING, ACTIVE, REMOVED, LEAVING = 0, 1, 2, 3


# What UpdateFeatures may do to a level.
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


class UpdateFeaturesRequest(Message, kw_only=True):
    class Update(Message, kw_only=True):
        feature: String
        max_version_level: Int16
        allow_downgrade: Annotated[Bool, Since(0, until=0)] = False
        upgrade_type: Annotated[Int8, Since(1)] = UPGRADE

    timeout_ms: Int32 = 60_000
    feature_updates: list[Update]
    validate_only: Annotated[Bool, Since(1)] = False


class UpdateFeaturesResponse(Message, kw_only=True):
    class Result(Message, kw_only=True):
        feature: String
        error_code: Int16 = 0
        error_message: String | None = None

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    results: Annotated[list[Result], Since(0, until=1)] = empty()


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
        # Levels of `cluster.version` that it knows; 0: not said.
        level_lowest: Annotated[Int16, Since(1)] = 0
        level_highest: Annotated[Int16, Since(1)] = 0

    cluster_id: String = ""
    nodes: list[Node] = empty()
    level: Annotated[Int16, Since(1)] = 0  # Of `cluster.version`, in use.


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
