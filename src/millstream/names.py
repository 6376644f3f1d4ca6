"""Names that Millstream reserves: record headers, internal topics, suffixes, marks in ids.

Pure, below every layer: broker, client, Spark source and command line share them, and
none of them spells one again (tests/architecture/test_reserved_names.py). docs/queues.md has the
meanings of the headers.
"""

from typing import Final

# -- record headers --------------------------------------------------------------------------------

HEADER_PREFIX: Final = "ms-"  # Of every header here.

# Options of a record: the broker acts on them.
DELAY_HEADER: Final = "ms-delay-ms"  # Deliver the record so long after it came in.
DELIVER_AT_HEADER: Final = "ms-deliver-at"  # Deliver at this time, in milliseconds since 1970.
TTL_HEADER: Final = "ms-ttl-ms"  # Readers do not get the record once it is that old.
MESSAGE_ID_HEADER: Final = "ms-message-id"  # A second record with the same id is dropped.
OPTION_HEADERS: Final = (DELAY_HEADER, DELIVER_AT_HEADER, TTL_HEADER, MESSAGE_ID_HEADER)

SUBJECT_HEADER: Final = "ms-subject"  # Published under; subscriptions and filters match it.
KEY_HEADER: Final = "ms-key"  # In protocols without keys: the record's key.
UNREADABLE_HEADER: Final = "ms-unreadable"  # Why a stored delayed record could not be decoded.

# Headers of a dead letter: the record that it was, and why it failed.
DLQ_HEADER_PREFIX: Final = "ms-dlq-"
DLQ_TOPIC_HEADER: Final = "ms-dlq-topic"
DLQ_PARTITION_HEADER: Final = "ms-dlq-partition"
DLQ_OFFSET_HEADER: Final = "ms-dlq-offset"
DLQ_GROUP_HEADER: Final = "ms-dlq-group"
DLQ_ATTEMPTS_HEADER: Final = "ms-dlq-attempts"
DLQ_REASON_HEADER: Final = "ms-dlq-reason"
DLQ_ERROR_HEADER: Final = "ms-dlq-error"
DLQ_SUBJECT_HEADER: Final = "ms-dlq-subject"  # The record's own subject header, if it had one.
# Set when the value is a whole unreadable batch, as stored in the log: its last offset.
DLQ_BATCH_HEADER: Final = "ms-dlq-batch"

# Of the last event in a batch of `__audit`: up to where the control log is in the trail.
AUDIT_CONTROL_HEADER: Final = "ms-audit-control"

# Headers that pipelines write.
REPLAY_HEADER_PREFIX: Final = "ms-replay-"  # Where a replayed record comes from.
REDRIVE_COUNT_HEADER: Final = "ms-redrive-count"  # How often a dead letter was sent back.

# -- topics ----------------------------------------------------------------------------------------

# The topics that hold the broker's own state. Clients may read them, not write.
INTERNAL_PREFIX: Final = "__"  # Of the topics and subscriptions that are the broker's own.
OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
DELAYED_TOPIC: Final = "__deferred"
DELIVERIES_TOPIC: Final = "__deliveries"
AUDIT_TOPIC: Final = "__audit"
INTERNAL_TOPICS: Final = frozenset(
    {OFFSETS_TOPIC, TRANSACTIONS_TOPIC, DELAYED_TOPIC, DELIVERIES_TOPIC, AUDIT_TOPIC}
)
CONTROL_LOG_NAME: Final = "(control log)"  # It is no topic: no topic may be called so.
# The schemas of the registry, under the name that other registries have. While the registry is on,
# clients may read it, not write; else it is a topic like others, for an outside registry.
SCHEMAS_TOPIC: Final = "_schemas"
# Kafka's name for the log of the cluster's metadata; tools ask for its quorum by this name.
METADATA_TOPIC: Final = "__cluster_metadata"

DLQ_TOPIC_SUFFIX: Final = ".dlq"  # Of the topic to which the dead letters of a topic go.
# Before the subject of a dead letter: subscriptions to the record's own subject do not get it.
DLQ_SUBJECT_PREFIX: Final = "DLQ."

# -- subscriptions ---------------------------------------------------------------------------------

# Before the subject and the word of a Flux client, in the names of its groups and durable names.
FLUX_GROUP_PREFIX: Final = "flux:group:"
FLUX_DURABLE_PREFIX: Final = "flux:durable:"

# -- ids -------------------------------------------------------------------------------------------

# Of the transactional ids that the broker lends to transactions of FlyMQ clients.
LENT_ID_PREFIX: Final = "flymq-"
# Separates a batch group's name from `term~batch.partition.attempt` in the transactional ids of its
# members. All ids with the same beginning have one coordinator, so one write can end all of them.
# Every tool can show it, and no client puts it in an id by chance.
BATCH_MEMBER_MARK: Final = "~batch~"


# -- nodes ---------------------------------------------------------------------------------------


def node_name(node: int) -> str:
    """The name of a node in its certificate."""
    return f"node-{node}"
