"""Every API that Millstream can encode: its key, its messages and the versions it serves.

A message may be here before a handler answers it: which APIs the broker serves is said by the
router's table of handlers alone.
"""

from collections.abc import Collection
from dataclasses import dataclass

from millstream.kafka_wire.apis import (
    admin,
    cluster,
    configs,
    data,
    discovery,
    groups,
    millstream,
    offsets,
    rights,
    security,
    transactions,
    users,
)
from millstream.kafka_wire.apis.discovery import ApiVersionsResponse
from millstream.kafka_wire.error_codes import ErrorCode
from millstream.kafka_wire.schema import VERSION_MAX, Message

API_VERSIONS = 18
NEVER = VERSION_MAX + 1
# Keys from here on are not Kafka's: advertised only to clients that call themselves Millstream's.
OWN_KEYS_FIRST = 10_000
OWN_CLIENTS = "millstream"
# Lowest and highest level that is supported, and the level in use: 0 is not in use, not advertised.
# Kafka's other features are not served: share.version, streams.version, and
# eligible.leader.replicas.version.
LEVELS = {
    # Clients add partitions by producing to them, and each transaction has an epoch of its own
    # (KIP-890). Older clients do not know the feature, and go on as before.
    "transaction.version": (0, 2, 2),
    "group.version": (0, 1, 1),  # Groups of KIP-848.
    "kraft.version": (0, 0, 0),  # The voters are said when a node starts.
    "metadata.version": (7, 25, 25),  # 3.3-IV3 to 4.0-IV3.
}
FEATURES = tuple(
    ApiVersionsResponse.SupportedFeature(name=name, min_version=low, max_version=high)
    for name, (low, high, _) in LEVELS.items()
)
FINALIZED = tuple(
    ApiVersionsResponse.FinalizedFeature(
        name=name, max_version_level=level, min_version_level=level
    )
    for name, (_, _, level) in LEVELS.items()
    if level > 0
)


@dataclass(frozen=True, slots=True)
class Api:
    """One row. Versions `first` to `last` are served; from `flexible_since` they are flexible.

    `advertised_first` is lower than `first` where clients take the range as a sign of something
    else (librdkafka compresses only if Produce 0 is there, KAFKA-18659).
    """

    key: int
    request: type[Message]
    response: type[Message]
    first: int
    last: int
    flexible_since: int
    advertised_first: int

    @property
    def name(self) -> str:
        return self.request.__name__.removesuffix("Request")

    def is_flexible(self, version: int) -> bool:
        return version >= self.flexible_since

    def response_header_version(self, version: int) -> int:
        # A client reads the answer to ApiVersions before it knows our versions: always v0.
        return 1 if self.is_flexible(version) and self.key != API_VERSIONS else 0


def advertised(served: Collection[int]) -> list[ApiVersionsResponse.ApiRange]:
    """The version ranges that clients are shown, by key."""
    return [
        ApiVersionsResponse.ApiRange(
            api_key=api.key, min_version=api.advertised_first, max_version=api.last
        )
        for api in (APIS[key] for key in sorted(served))
    ]


def api_versions(
    version: int,
    served: Collection[int],
    features: Collection[ApiVersionsResponse.SupportedFeature] = (),
    finalized: Collection[ApiVersionsResponse.FinalizedFeature] = (),
    epoch: int = 0,
) -> ApiVersionsResponse:
    """Answer ApiVersions. Clients below v4 fail to parse a feature whose minimum is 0."""
    return ApiVersionsResponse(
        api_keys=advertised(served),
        supported_features=[
            feature for feature in features if version >= 4 or feature.min_version > 0
        ],
        finalized_features_epoch=epoch if finalized else -1,
        finalized_features=list(finalized),
    )


def unsupported_api_versions() -> ApiVersionsResponse:
    """Answer an ApiVersions of a version from the future; to be written as v0 (KIP-511)."""
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=advertised({API_VERSIONS})
    )


def _api(
    key: int,
    request: type[Message],
    response: type[Message],
    versions: tuple[int, int],
    flexible_since: int,
    advertised_first: int | None = None,
) -> Api:
    first, last = versions
    low = first if advertised_first is None else advertised_first
    return Api(key, request, response, first, last, flexible_since, low)


_ROWS = (
    _api(0, data.ProduceRequest, data.ProduceResponse, (3, 12), 9, advertised_first=0),
    _api(1, data.FetchRequest, data.FetchResponse, (4, 17), 12),
    _api(2, data.ListOffsetsRequest, data.ListOffsetsResponse, (1, 11), 6),
    _api(3, discovery.MetadataRequest, discovery.MetadataResponse, (0, 13), 9),
    _api(8, offsets.OffsetCommitRequest, offsets.OffsetCommitResponse, (2, 10), 8),
    _api(9, offsets.OffsetFetchRequest, offsets.OffsetFetchResponse, (1, 10), 6),
    _api(10, discovery.FindCoordinatorRequest, discovery.FindCoordinatorResponse, (0, 6), 3),
    _api(11, groups.JoinGroupRequest, groups.JoinGroupResponse, (0, 9), 6),
    _api(12, groups.HeartbeatRequest, groups.HeartbeatResponse, (0, 4), 4),
    _api(13, groups.LeaveGroupRequest, groups.LeaveGroupResponse, (0, 5), 4),
    _api(14, groups.SyncGroupRequest, groups.SyncGroupResponse, (0, 5), 4),
    _api(15, groups.DescribeGroupsRequest, groups.DescribeGroupsResponse, (0, 6), 5),
    _api(16, groups.ListGroupsRequest, groups.ListGroupsResponse, (0, 5), 3),
    _api(17, security.SaslHandshakeRequest, security.SaslHandshakeResponse, (0, 1), NEVER),
    _api(18, discovery.ApiVersionsRequest, discovery.ApiVersionsResponse, (0, 4), 3),
    _api(19, admin.CreateTopicsRequest, admin.CreateTopicsResponse, (2, 7), 5),
    _api(20, admin.DeleteTopicsRequest, admin.DeleteTopicsResponse, (1, 6), 4),
    _api(21, data.DeleteRecordsRequest, data.DeleteRecordsResponse, (0, 2), 2),
    # Never 6: it is unstable, and Java clients would use it.
    _api(22, transactions.InitProducerIdRequest, transactions.InitProducerIdResponse, (0, 5), 2),
    _api(23, data.OffsetForLeaderEpochRequest, data.OffsetForLeaderEpochResponse, (2, 4), 4),
    _api(
        24,
        transactions.AddPartitionsToTxnRequest,
        transactions.AddPartitionsToTxnResponse,
        (0, 5),
        3,
    ),
    _api(25, transactions.AddOffsetsToTxnRequest, transactions.AddOffsetsToTxnResponse, (0, 4), 3),
    _api(26, transactions.EndTxnRequest, transactions.EndTxnResponse, (0, 5), 3),
    _api(27, transactions.WriteTxnMarkersRequest, transactions.WriteTxnMarkersResponse, (1, 2), 1),
    _api(28, transactions.TxnOffsetCommitRequest, transactions.TxnOffsetCommitResponse, (0, 5), 3),
    _api(29, security.DescribeAclsRequest, security.DescribeAclsResponse, (1, 3), 2),
    _api(30, security.CreateAclsRequest, security.CreateAclsResponse, (1, 3), 2),
    _api(31, security.DeleteAclsRequest, security.DeleteAclsResponse, (1, 3), 2),
    _api(32, configs.DescribeConfigsRequest, configs.DescribeConfigsResponse, (1, 4), 4),
    _api(33, configs.AlterConfigsRequest, configs.AlterConfigsResponse, (0, 2), 2),
    _api(34, admin.AlterReplicaLogDirsRequest, admin.AlterReplicaLogDirsResponse, (1, 2), 2),
    _api(35, admin.DescribeLogDirsRequest, admin.DescribeLogDirsResponse, (1, 5), 2),
    _api(36, security.SaslAuthenticateRequest, security.SaslAuthenticateResponse, (0, 2), 2),
    _api(37, admin.CreatePartitionsRequest, admin.CreatePartitionsResponse, (0, 3), 2),
    _api(42, groups.DeleteGroupsRequest, groups.DeleteGroupsResponse, (0, 2), 2),
    _api(43, admin.ElectLeadersRequest, admin.ElectLeadersResponse, (0, 2), 2),
    _api(
        44,
        configs.IncrementalAlterConfigsRequest,
        configs.IncrementalAlterConfigsResponse,
        (0, 1),
        1,
    ),
    _api(
        45,
        admin.AlterPartitionReassignmentsRequest,
        admin.AlterPartitionReassignmentsResponse,
        (0, 1),
        0,
    ),
    _api(
        46,
        admin.ListPartitionReassignmentsRequest,
        admin.ListPartitionReassignmentsResponse,
        (0, 0),
        0,
    ),
    _api(47, offsets.OffsetDeleteRequest, offsets.OffsetDeleteResponse, (0, 0), NEVER),
    _api(48, configs.DescribeClientQuotasRequest, configs.DescribeClientQuotasResponse, (0, 1), 1),
    _api(49, configs.AlterClientQuotasRequest, configs.AlterClientQuotasResponse, (0, 1), 1),
    _api(
        50,
        security.DescribeUserScramCredentialsRequest,
        security.DescribeUserScramCredentialsResponse,
        (0, 0),
        0,
    ),
    _api(
        51,
        security.AlterUserScramCredentialsRequest,
        security.AlterUserScramCredentialsResponse,
        (0, 0),
        0,
    ),
    _api(55, discovery.DescribeQuorumRequest, discovery.DescribeQuorumResponse, (0, 2), 0),
    _api(57, cluster.UpdateFeaturesRequest, cluster.UpdateFeaturesResponse, (0, 2), 0),
    _api(60, discovery.DescribeClusterRequest, discovery.DescribeClusterResponse, (0, 2), 0),
    _api(
        61,
        transactions.DescribeProducersRequest,
        transactions.DescribeProducersResponse,
        (0, 0),
        0,
    ),
    _api(
        65,
        transactions.DescribeTransactionsRequest,
        transactions.DescribeTransactionsResponse,
        (0, 0),
        0,
    ),
    _api(
        66,
        transactions.ListTransactionsRequest,
        transactions.ListTransactionsResponse,
        (0, 2),
        0,
    ),
    _api(
        68,
        groups.ConsumerGroupHeartbeatRequest,
        groups.ConsumerGroupHeartbeatResponse,
        (0, 1),
        0,
    ),
    _api(
        69,
        groups.ConsumerGroupDescribeRequest,
        groups.ConsumerGroupDescribeResponse,
        (0, 1),
        0,
    ),
    _api(74, configs.ListConfigResourcesRequest, configs.ListConfigResourcesResponse, (0, 1), 0),
    _api(
        75,
        discovery.DescribeTopicPartitionsRequest,
        discovery.DescribeTopicPartitionsResponse,
        (0, 0),
        0,
    ),
    _api(10_000, millstream.BeginBatchRequest, millstream.BeginBatchResponse, (0, 0), 0),
    _api(10_001, millstream.EndBatchRequest, millstream.EndBatchResponse, (0, 0), 0),
    _api(10_002, millstream.ListDeadLettersRequest, millstream.ListDeadLettersResponse, (0, 0), 0),
    _api(
        10_003,
        millstream.DescribeDeadLettersRequest,
        millstream.DescribeDeadLettersResponse,
        (0, 0),
        0,
    ),
    _api(
        10_004, millstream.ReplayDeadLetterRequest, millstream.ReplayDeadLetterResponse, (0, 0), 0
    ),
    _api(
        10_005,
        millstream.RedriveDeadLettersRequest,
        millstream.RedriveDeadLettersResponse,
        (0, 0),
        0,
    ),
    _api(
        10_006, millstream.PurgeDeadLettersRequest, millstream.PurgeDeadLettersResponse, (0, 0), 0
    ),
    _api(10_007, millstream.DescribeLogsRequest, millstream.DescribeLogsResponse, (0, 0), 0),
    _api(10_008, millstream.ListDelayedRequest, millstream.ListDelayedResponse, (0, 0), 0),
    _api(10_009, millstream.DescribeDelayedRequest, millstream.DescribeDelayedResponse, (0, 0), 0),
    _api(10_010, millstream.CancelDelayedRequest, millstream.CancelDelayedResponse, (0, 0), 0),
    _api(10_011, users.DescribeUsersRequest, users.DescribeUsersResponse, (0, 0), 0),
    _api(10_012, users.AlterUsersRequest, users.AlterUsersResponse, (0, 0), 0),
    _api(10_013, rights.DescribeRolesRequest, rights.DescribeRolesResponse, (0, 0), 0),
    _api(10_014, rights.AlterRolesRequest, rights.AlterRolesResponse, (0, 0), 0),
    _api(10_015, rights.QueryAuditRequest, rights.QueryAuditResponse, (0, 0), 0),
    _api(10_016, rights.ExplainAccessRequest, rights.ExplainAccessResponse, (0, 0), 0),
    _api(10_017, users.WhoAmIRequest, users.WhoAmIResponse, (0, 0), 0),
    _api(10_018, millstream.ListDamageRequest, millstream.ListDamageResponse, (0, 0), 0),
    _api(10_019, millstream.SkipDamageRequest, millstream.SkipDamageResponse, (0, 0), 0),
    _api(10_020, millstream.DescribeStorageRequest, millstream.DescribeStorageResponse, (0, 0), 0),
    _api(
        10_021,
        millstream.DescribeFilteredReadsRequest,
        millstream.DescribeFilteredReadsResponse,
        (0, 0),
        0,
    ),
    _api(10_030, rights.DescribeEncryptionRequest, rights.DescribeEncryptionResponse, (0, 0), 0),
    _api(10_031, rights.AlterEncryptionRequest, rights.AlterEncryptionResponse, (0, 0), 0),
    _api(10_032, rights.AlterCheckpointRequest, rights.AlterCheckpointResponse, (0, 0), 0),
    _api(10_033, rights.ReadCheckpointRequest, rights.ReadCheckpointResponse, (0, 0), 0),
    _api(10_040, cluster.DescribeNodesRequest, cluster.DescribeNodesResponse, (0, 1), 0),
    _api(10_041, cluster.InviteNodeRequest, cluster.InviteNodeResponse, (0, 0), 0),
    _api(10_042, cluster.JoinClusterRequest, cluster.JoinClusterResponse, (0, 0), 0),
    _api(10_043, cluster.AlterNodeRequest, cluster.AlterNodeResponse, (0, 0), 0),
    _api(10_022, millstream.RenewBatchRequest, millstream.RenewBatchResponse, (0, 0), 0),
)

APIS: dict[int, Api] = {api.key: api for api in _ROWS}
