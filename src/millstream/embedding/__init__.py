"""A broker inside another program: `Broker`, its configuration and its values.

The public face of the package; `from millstream import Broker` finds it here. Invariant: every
object belongs to the event loop that entered the broker, and takes and returns values.
"""

from millstream.benchmark import BenchmarkConfig, BenchmarkResult
from millstream.config import Config as BrokerConfig
from millstream.config import Limits, Timing
from millstream.embedding.blocking import BlockingBroker
from millstream.embedding.broker import Broker
from millstream.embedding.figures import Snapshot
from millstream.embedding.values import (
    CommittedOffset,
    Fetched,
    GroupDetails,
    GroupListed,
    GroupMember,
    GroupStatistics,
    NewRecord,
    PartitionDetails,
    Record,
    TopicDetails,
)
from millstream.settings import TopicSettings

__all__ = [
    "Broker",
    "BlockingBroker",
    "BrokerConfig",
    "Limits",
    "Timing",
    "TopicSettings",
    "TopicDetails",
    "PartitionDetails",
    "NewRecord",
    "Record",
    "Fetched",
    "GroupListed",
    "GroupDetails",
    "GroupMember",
    "GroupStatistics",
    "CommittedOffset",
    "Snapshot",
    "BenchmarkConfig",
    "BenchmarkResult",
]
