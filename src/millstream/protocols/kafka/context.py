"""What a handler is given besides its request: who asks, in which version, and of which broker.

Owns the bundle, not its parts.
"""

from dataclasses import dataclass
from typing import NamedTuple

from millstream.config import Config
from millstream.engine.batch_groups import BatchGroups
from millstream.engine.consumer_groups import ConsumerGroups
from millstream.engine.dead_letters import DeadLetters
from millstream.engine.deferred import Deferred
from millstream.engine.groups import Groups
from millstream.engine.partitions import Partitions
from millstream.engine.producer_ids import ProducerIds
from millstream.engine.quotas import ClientQuotas
from millstream.engine.repairs import Repairs
from millstream.engine.resources import ResourceSettings
from millstream.engine.topics import Topics
from millstream.engine.transactions import Transactions
from millstream.engine.usage import Usage
from millstream.model import Session
from millstream.protocols.conversation import Pace
from millstream.protocols.kafka.config_table import Inherited
from millstream.protocols.kafka.fetch_sessions import Sessions
from millstream.protocols.kafka.headers import RequestHeader


class Endpoint(NamedTuple):
    """Where a client reaches a node."""

    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """The engine, as far as Kafka clients may ask of it."""

    config: Config
    cluster_id: str
    topics: Topics
    partitions: Partitions
    groups: Groups
    consumer_groups: ConsumerGroups
    producer_ids: ProducerIds
    fetch_sessions: Sessions
    transactions: Transactions
    batch_groups: BatchGroups
    client_quotas: ClientQuotas
    resources: ResourceSettings
    usage: Usage
    dead_letters: DeadLetters
    deferred: Deferred
    repairs: Repairs

    @property
    def node_id(self) -> int:
        return self.config.node_id


class Context(NamedTuple):
    broker: Broker
    session: Session
    header: RequestHeader
    dialled: Endpoint
    pace: Pace
    request_bytes: int

    @property
    def version(self) -> int:
        return self.header.api_version

    @property
    def inherited(self) -> Inherited:
        """What topics have where they say nothing."""
        defaults = self.broker.resources.defaults
        node, every_node = defaults.layers
        return Inherited(defaults.base, defaults.settings, node, every_node)
