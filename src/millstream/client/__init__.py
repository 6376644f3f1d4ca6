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
from millstream.client.models import (
    BrokerNode,
    Cluster,
    Group,
    GroupDescription,
    Lag,
    Member,
    Message,
    Partition,
    RecordMetadata,
    Setting,
    StartPoint,
    Topic,
    TopicDescription,
    TopicPartition,
    Transaction,
)
from millstream.client.patterns import Pattern
from millstream.client.producer import Producer
from millstream.client.serde import Serde
from millstream.client.transactions import OpenTransaction

if TYPE_CHECKING:
    from millstream.client.aio import AsyncClient, AsyncConsumer, AsyncProducer, aconnect
    from millstream.client.reactive import observe

__all__ = [
    "connect",
    "aconnect",
    "observe",
    "Client",
    "Producer",
    "Consumer",
    "OpenTransaction",
    "Admin",
    "AsyncClient",
    "AsyncProducer",
    "AsyncConsumer",
    "Serde",
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
    "Group",
    "GroupDescription",
    "Member",
    "Lag",
    "Transaction",
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
    "aconnect": "aio",
    "AsyncClient": "aio",
    "AsyncConsumer": "aio",
    "AsyncProducer": "aio",
    "observe": "reactive",
}


def __getattr__(name: str) -> object:
    """Load asyncio for those who ask for it."""
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_LATE[name]}"), name)
