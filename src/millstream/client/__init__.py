"""The Python client: `connect()` for blocking code, `aconnect()` for asyncio.

The public face of the package; what is not listed here is private. It knows the wire only, so it
works with Apache Kafka as well. Importing it imports neither librdkafka nor asyncio: the first
connection does. A name's module is imported when the name is first used.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.client.admin import Admin
    from millstream.client.aio.admin import AsyncAdmin, AsyncDeadLetters, AsyncDelayed, AsyncViews
    from millstream.client.aio.client import (
        AsyncClient,
        AsyncConsumer,
        AsyncProducer,
        AsyncTransaction,
        aconnect,
    )
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
        FilterFigures,
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
    from millstream.client.reactive import observe
    from millstream.client.registry import Registry
    from millstream.client.serde import Serde
    from millstream.client.transactions import OpenTransaction
    from millstream.client.views import Views

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
    "FilterFigures",
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

# All others are in `models`.
_MODULES = {
    "admin": "Admin",
    "connection": "Client connect",
    "consumer": "Consumer",
    "errors": "AlreadyExists BadData Busy ClientError Closed Denied Fenced NotFound NotSupported "
    "Refused TimedOut TransactionAborted Undelivered Unreachable",
    "extensions.dead_letters": "DeadLetters",
    "extensions.delayed": "DelayedRecords",
    "handling": "Handled Reject RetryPolicy",
    "patterns": "Pattern",
    "producer": "Producer",
    "serde": "Serde",
    "transactions": "OpenTransaction",
    "views": "Views",
    "aio.admin": "AsyncAdmin AsyncDeadLetters AsyncDelayed AsyncViews",
    "aio.client": "AsyncClient AsyncConsumer AsyncProducer AsyncTransaction aconnect",
    "reactive": "observe",
    "registry": "Registry",
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    """Import a name's module when the name is first used."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    attribute: object = getattr(import_module(f"{__name__}.{_MODULE_OF.get(name, 'models')}"), name)
    globals()[name] = attribute
    return attribute


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
