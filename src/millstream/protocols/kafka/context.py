"""The context of a handler: the session, the version of the request, and the broker's services."""

from dataclasses import dataclass
from typing import NamedTuple

from millstream.config import Config
from millstream.engine.access.acls import AccessRules
from millstream.engine.access.users import Users
from millstream.engine.audit.trail import AuditTrail
from millstream.engine.checkpoints.service import Checkpoints
from millstream.engine.cluster.admin import ClusterAdmin
from millstream.engine.cluster.members import Endpoint as NodeEndpoint
from millstream.engine.cluster.members import Members
from millstream.engine.dead_letters.service import DeadLetters
from millstream.engine.delayed.service import DelayedRecords
from millstream.engine.encryption import EncryptionKeys
from millstream.engine.groups.consumer.service import ConsumerGroups
from millstream.engine.groups.service import Groups
from millstream.engine.partitions.service import Partitions
from millstream.engine.producer_ids import ProducerIds
from millstream.engine.quotas.accounts import Usage
from millstream.engine.quotas.limits import ClientQuotas
from millstream.engine.repairs import Repairs
from millstream.engine.resources import ResourceSettings
from millstream.engine.topics import Topics
from millstream.engine.transactions.batch_groups import BatchGroups
from millstream.engine.transactions.service import Transactions
from millstream.kafka_wire.headers import RequestHeader
from millstream.model import Session
from millstream.protocols.conversation import Pace
from millstream.protocols.kafka.fetch_sessions import Sessions
from millstream.protocols.kafka.handlers.config_table import Inherited


class Endpoint(NamedTuple):
    """The address of a node for clients."""

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
    delayed: DelayedRecords
    repairs: Repairs
    users: Users
    access_rules: AccessRules
    audit: AuditTrail
    encryption: EncryptionKeys
    checkpoints: Checkpoints
    members: Members
    cluster: ClusterAdmin

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

    def nodes(self) -> list[NodeEndpoint]:
        """The nodes of the cluster, with the addresses for clients of this listener."""
        return self.broker.members.endpoints(self.session.listener, self.dialled)

    def node(self, node_id: int) -> NodeEndpoint | None:
        return self.broker.members.endpoint(node_id, self.session.listener, self.dialled)

    def end_if_cut_off(self) -> None:
        """Close the connection behind this reply if this node is cut off from the cluster.

        librdkafka asks the broker that it is connected to for as long as that one answers, and
        would never hear of the leaders that the others elect.
        """
        if self.broker.members.is_cut_off:
            self.pace.end()

    @property
    def inherited(self) -> Inherited:
        """The defaults of topics."""
        defaults = self.broker.resources.defaults
        node, every_node = defaults.layers
        return Inherited(defaults.base, defaults.settings, node, every_node)
