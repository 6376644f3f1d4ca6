"""The Python client: `connect()` for blocking code, `aconnect()` for asyncio.

The public face of the package; what is not listed here is private. It knows the wire only, so it
works with Apache Kafka as well. Importing it imports neither librdkafka nor asyncio: the first
connection does.
"""

from typing import TYPE_CHECKING

from millstream.client.admin import Admin
from millstream.client.connection import Client, connect
from millstream.client.consumer import Consumer
from millstream.client.errors import (
    AlreadyExists,
    BadData,
    Busy,
    ClientError,
    Closed,
    Denied,
    Fenced,
    NotFound,
    NotSupported,
    Refused,
    TimedOut,
    TransactionAborted,
    Undelivered,
    Unreachable,
)
from millstream.client.extensions.dead_letters import DeadLetters
from millstream.client.extensions.delayed import DelayedRecords
from millstream.client.handling import Handled, Reject, RetryPolicy
from millstream.client.models import (
    BrokerNode,
    Cluster,
    DeadLetter,
    DeadLetterStatistics,
    Delayed,
    DelayedPage,
    DelayedRecord,
    Group,
    GroupDescription,
    GroupLag,
    Lag,
    Member,
    Message,
    Partition,
    PartitionHealth,
    RecordMetadata,
    Redriven,
    Setting,
    StartPoint,
    StorageProblem,
    Topic,
    TopicDescription,
    TopicHealth,
    TopicPartition,
    Transaction,
    View,
)
from millstream.client.patterns import Pattern
from millstream.client.producer import Producer
from millstream.client.serde import Serde
from millstream.client.transactions import OpenTransaction
from millstream.client.views import Views

if TYPE_CHECKING:
    from millstream.client.aio.admin import AsyncAdmin, AsyncDeadLetters, AsyncDelayed, AsyncViews
    from millstream.client.aio.client import (
        AsyncClient,
        AsyncConsumer,
        AsyncProducer,
        AsyncTransaction,
        aconnect,
    )
    from millstream.client.reactive import observe
    from millstream.client.registry import Registry

__all__ = [
    "connect",
    "aconnect",
    "observe",
    "Client",
    "Producer",
    "Consumer",
    "OpenTransaction",
    "Admin",
    "Views",
    "DeadLetters",
    "DelayedRecords",
    "RetryPolicy",
    "Reject",
    "Handled",
    "AsyncClient",
    "AsyncProducer",
    "AsyncConsumer",
    "AsyncTransaction",
    "AsyncAdmin",
    "AsyncViews",
    "AsyncDeadLetters",
    "AsyncDelayed",
    "Serde",
    "Registry",
    "Pattern",
    "Message",
    "RecordMetadata",
    "StartPoint",
    "TopicPartition",
    "Cluster",
    "BrokerNode",
    "Topic",
    "TopicDescription",
    "Partition",
    "Setting",
    "View",
    "Group",
    "GroupDescription",
    "Member",
    "Lag",
    "StorageProblem",
    "TopicHealth",
    "PartitionHealth",
    "GroupLag",
    "Transaction",
    "DeadLetter",
    "DeadLetterStatistics",
    "Redriven",
    "Delayed",
    "DelayedRecord",
    "DelayedPage",
    "ClientError",
    "NotFound",
    "AlreadyExists",
    "Unreachable",
    "TimedOut",
    "Fenced",
    "Denied",
    "Refused",
    "Busy",
    "NotSupported",
    "BadData",
    "TransactionAborted",
    "Undelivered",
    "Closed",
]

_LATE = {
    "aconnect": "aio.client",
    "AsyncClient": "aio.client",
    "AsyncConsumer": "aio.client",
    "AsyncProducer": "aio.client",
    "AsyncTransaction": "aio.client",
    "AsyncAdmin": "aio.admin",
    "AsyncViews": "aio.admin",
    "AsyncDeadLetters": "aio.admin",
    "AsyncDelayed": "aio.admin",
    "observe": "reactive",
    "Registry": "registry",
}


def __getattr__(name: str) -> object:
    """Import a late name's module when the name is first used."""
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_LATE[name]}"), name)
