"""Kafka's error codes, and which of them our errors become.

Owns the numbers. `RETRIABLE` is Kafka's own opinion: Java clients ask again after these codes and
give up after the others. So an error of ours that is retriable needs a code of
theirs that is, or clients would drop what they could have sent again.
"""

from enum import IntEnum

from millstream import errors
from millstream.errors import RequestError
from millstream.errors import access as access_errors
from millstream.errors import cluster as cluster_errors
from millstream.errors import delayed as delayed_errors
from millstream.errors import deliveries as delivery_errors
from millstream.errors import groups as group_errors
from millstream.errors import schemas as schema_errors
from millstream.errors import views as view_errors


class ErrorCode(IntEnum):
    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133


def name_of(code: int) -> str:
    """The name of a code that a broker sent; it may be younger than this table."""
    return ErrorCode(code).name if code in _KNOWN_CODES else f"error {code}"


_KNOWN_CODES = frozenset(ErrorCode)

RETRIABLE = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)

CODES: dict[type[RequestError], ErrorCode] = {
    errors.InvalidRequest: ErrorCode.INVALID_REQUEST,
    errors.InvalidTopicName: ErrorCode.INVALID_TOPIC_EXCEPTION,
    errors.UnknownTopic: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    errors.TopicExists: ErrorCode.TOPIC_ALREADY_EXISTS,
    errors.TopicNameCollides: ErrorCode.INVALID_TOPIC_EXCEPTION,
    errors.PolicyViolation: ErrorCode.POLICY_VIOLATION,
    errors.QuotaExceeded: ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    errors.InvalidPartitions: ErrorCode.INVALID_PARTITIONS,
    errors.InvalidReplication: ErrorCode.INVALID_REPLICATION_FACTOR,
    errors.InvalidPlacement: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    errors.InvalidSetting: ErrorCode.INVALID_CONFIG,
    view_errors.InvalidFilter: ErrorCode.INVALID_CONFIG,
    view_errors.ReadOnlyView: ErrorCode.INVALID_TOPIC_EXCEPTION,
    view_errors.HasViews: ErrorCode.POLICY_VIOLATION,
    delivery_errors.InvalidSubject: ErrorCode.INVALID_TOPIC_EXCEPTION,
    delivery_errors.InvalidSubscription: ErrorCode.INVALID_REQUEST,
    delivery_errors.SubscriptionExists: ErrorCode.DUPLICATE_RESOURCE,
    delivery_errors.UnknownSubscription: ErrorCode.RESOURCE_NOT_FOUND,
    delivery_errors.UnknownDeadLetter: ErrorCode.RESOURCE_NOT_FOUND,
    errors.InvalidBatch: ErrorCode.INVALID_RECORD,
    errors.InvalidRecords: ErrorCode.INVALID_RECORD,
    errors.DelayTooLong: ErrorCode.INVALID_RECORD,
    errors.CorruptBatch: ErrorCode.CORRUPT_MESSAGE,
    errors.BatchTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    # Java's producer splits such a batch and sends its halves.
    errors.UnpackedTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    delayed_errors.UnknownDelayedRecord: ErrorCode.RESOURCE_NOT_FOUND,
    errors.InternalTopic: ErrorCode.INVALID_TOPIC_EXCEPTION,
    errors.UnsupportedCompression: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    errors.InvalidTimestamp: ErrorCode.INVALID_TIMESTAMP,
    errors.OutOfOrderSequence: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    errors.StaleProducerEpoch: ErrorCode.INVALID_PRODUCER_EPOCH,
    errors.StaleCoordinatorEpoch: ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    errors.InvalidTransactionState: ErrorCode.INVALID_TXN_STATE,
    errors.ProducerFenced: ErrorCode.PRODUCER_FENCED,
    errors.UnknownProducer: ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    errors.TransactionInProgress: ErrorCode.CONCURRENT_TRANSACTIONS,
    errors.InvalidTransactionTimeout: ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    errors.TransactionNotFound: ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    errors.NotAttempted: ErrorCode.OPERATION_NOT_ATTEMPTED,
    errors.OffsetOutOfRange: ErrorCode.OFFSET_OUT_OF_RANGE,
    errors.NotLeader: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    errors.StaleLeaderEpoch: ErrorCode.FENCED_LEADER_EPOCH,
    errors.UnknownLeaderEpoch: ErrorCode.UNKNOWN_LEADER_EPOCH,
    errors.ChangeRefused: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    errors.NotEnoughReplicas: ErrorCode.NOT_ENOUGH_REPLICAS,
    errors.NotEnoughReplicasAfterAppend: ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    errors.TimedOut: ErrorCode.REQUEST_TIMED_OUT,
    errors.PeerUnreachable: ErrorCode.REQUEST_TIMED_OUT,
    errors.CallRefused: ErrorCode.UNKNOWN_SERVER_ERROR,
    # Not LEADER_NOT_AVAILABLE: Java's consumer takes it for a bug when it comes with a fetch.
    errors.LeaderNotReady: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    errors.Overloaded: ErrorCode.REQUEST_TIMED_OUT,
    errors.StorageUnavailable: ErrorCode.KAFKA_STORAGE_ERROR,
    # Not KAFKA_STORAGE_ERROR, which clients retry. librdkafka and kafka-python report this one.
    errors.DamagedRecords: ErrorCode.CORRUPT_MESSAGE,
    access_errors.UnknownUser: ErrorCode.RESOURCE_NOT_FOUND,
    access_errors.UserExists: ErrorCode.DUPLICATE_RESOURCE,
    access_errors.DuplicateUser: ErrorCode.DUPLICATE_RESOURCE,
    access_errors.UnknownRole: ErrorCode.RESOURCE_NOT_FOUND,
    access_errors.LoginFailed: ErrorCode.SASL_AUTHENTICATION_FAILED,
    access_errors.LoginRequired: ErrorCode.SASL_AUTHENTICATION_FAILED,
    access_errors.UnacceptableCredential: ErrorCode.UNACCEPTABLE_CREDENTIAL,
    access_errors.UnsupportedPrincipal: ErrorCode.INVALID_PRINCIPAL_TYPE,
    access_errors.TooManyAcls: ErrorCode.POLICY_VIOLATION,
    access_errors.AuthorizationOff: ErrorCode.SECURITY_DISABLED,
    errors.Denied: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    group_errors.InvalidGroupId: ErrorCode.INVALID_GROUP_ID,
    group_errors.GroupNotFound: ErrorCode.GROUP_ID_NOT_FOUND,
    group_errors.GroupNotEmpty: ErrorCode.NON_EMPTY_GROUP,
    group_errors.GroupSubscribed: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
    group_errors.GroupFull: ErrorCode.GROUP_MAX_SIZE_REACHED,
    errors.NotCoordinator: ErrorCode.NOT_COORDINATOR,
    errors.CoordinatorLoading: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    errors.CoordinatorUnavailable: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    group_errors.UnknownMember: ErrorCode.UNKNOWN_MEMBER_ID,
    group_errors.MemberIdRequired: ErrorCode.MEMBER_ID_REQUIRED,
    group_errors.FencedInstance: ErrorCode.FENCED_INSTANCE_ID,
    group_errors.StaleGeneration: ErrorCode.ILLEGAL_GENERATION,
    group_errors.StaleMemberEpoch: ErrorCode.STALE_MEMBER_EPOCH,
    group_errors.FencedMember: ErrorCode.FENCED_MEMBER_EPOCH,
    group_errors.UnreleasedInstance: ErrorCode.UNRELEASED_INSTANCE_ID,
    group_errors.UnsupportedAssignor: ErrorCode.UNSUPPORTED_ASSIGNOR,
    group_errors.InvalidPattern: ErrorCode.INVALID_REGULAR_EXPRESSION,
    group_errors.RebalanceInProgress: ErrorCode.REBALANCE_IN_PROGRESS,
    group_errors.InconsistentProtocol: ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    group_errors.UnstableOffset: ErrorCode.UNSTABLE_OFFSET_COMMIT,
    group_errors.InvalidSessionTimeout: ErrorCode.INVALID_SESSION_TIMEOUT,
    schema_errors.SchemaRefused: ErrorCode.INVALID_REQUEST,
    cluster_errors.UnknownNode: ErrorCode.BROKER_ID_NOT_REGISTERED,
    cluster_errors.UnknownInvitation: ErrorCode.RESOURCE_NOT_FOUND,
    cluster_errors.NodeRefused: ErrorCode.INVALID_REQUEST,
    cluster_errors.LevelRefused: ErrorCode.FEATURE_UPDATE_FAILED,
    cluster_errors.NoMove: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    cluster_errors.InvalidInvitation: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    cluster_errors.UnknownOutcome: ErrorCode.REQUEST_TIMED_OUT,
    group_errors.OffsetMetadataTooLarge: ErrorCode.OFFSET_METADATA_TOO_LARGE,
}

# By the kind in front of a resource's name; what is not here belongs to the cluster.
_DENIED_CODES = {
    "topic": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    "group": ErrorCode.GROUP_AUTHORIZATION_FAILED,
    "transactional_id": ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


def code_for(problem: RequestError) -> ErrorCode:
    """The code of `problem` for a Kafka client."""
    if isinstance(problem, errors.Denied):
        kind, _, _ = problem.resource.partition(":")
        return _DENIED_CODES.get(kind, CODES[errors.Denied])
    # An error without a code of its own is a bug that a test finds; the client still gets a reply.
    return CODES.get(type(problem), ErrorCode.UNKNOWN_SERVER_ERROR)


def control_code_for(problem: RequestError) -> ErrorCode:
    """The same for requests through the control log, whose leader Kafka calls the controller."""
    return ErrorCode.NOT_CONTROLLER if isinstance(problem, errors.NotLeader) else code_for(problem)
