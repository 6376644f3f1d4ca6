"""The services that handlers call: the engine's, each of whose methods asks the gate first."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from millstream.config import Config
from millstream.engine.access.acls import AccessRules
from millstream.engine.access.logins import Logins
from millstream.engine.access.users import Users
from millstream.engine.audit.trail import AuditTrail
from millstream.engine.cluster.admin import ClusterAdmin
from millstream.engine.dead_letters.service import DeadLetters
from millstream.engine.delayed.service import DelayedRecords
from millstream.engine.groups.consumer.service import ConsumerGroups
from millstream.engine.groups.service import Groups
from millstream.engine.partitions.service import Partitions
from millstream.engine.produce.unpacking import Unpacking
from millstream.engine.publish.publisher import Publisher
from millstream.engine.push.service import Deliveries
from millstream.engine.quotas.limits import ClientQuotas
from millstream.engine.repairs import Repairs
from millstream.engine.resources import ResourceSettings
from millstream.engine.schemas.changes import SchemaChanges
from millstream.engine.schemas.service import Schemas
from millstream.engine.topics import Topics
from millstream.engine.transactions.service import Transactions
from millstream.metrics import Metrics
from millstream.model import NodeId
from millstream.ports import Clock, Threads
from millstream.protocols.http.monitoring.checks import Verdict
from millstream.protocols.http.operate.history import History
from millstream.protocols.http.records.scans import Scans

if TYPE_CHECKING:
    from millstream.protocols.http.operate.jobs import Jobs


class NodeFigures(NamedTuple):
    partitions: int  # With a replica here.
    leaders: int
    listeners: Sequence[tuple[str, str, int]]  # Name, address, connections.


class OpenConnection(NamedTuple):
    number: int
    listener: str
    protocols: Sequence[str]
    principal: str
    client_id: str
    address: str
    age_ms: int
    received_bytes: int
    is_throttled: bool


class State(Enum):
    """Whether the node serves clients."""

    STARTING = "starting"
    READY = "ready"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    config: Config
    cluster_id: str
    clock: Clock
    entropy: Random
    elapsed_s: Callable[[], float]  # Seconds that pass evenly, for measuring.
    threads: Threads
    started_ms: int
    state: Callable[[], State]
    # Each check with since when it has its status, and the seconds that looking took.
    health: Callable[[], Sequence[tuple[Verdict, int, float]]]
    report: Callable[[Exception], None]  # Takes unexpected errors; a fatal one stops the node.
    node_figures: Callable[[], NodeFigures]
    log_lines: Callable[[], list[str]]  # The last of this process, oldest first.
    is_up: Callable[[NodeId], bool]  # Whether a node can be reached from here.
    cluster: ClusterAdmin
    connections: Callable[[], Sequence[OpenConnection]]
    cut_connection: Callable[[int], bool]  # False if there is no such connection.
    history: History
    metrics: Metrics
    topics: Topics
    partitions: Partitions
    publisher: Publisher
    groups: Groups
    consumer_groups: ConsumerGroups
    transactions: Transactions
    delayed: DelayedRecords
    deliveries: Deliveries
    dead_letters: DeadLetters
    client_quotas: ClientQuotas
    resources: ResourceSettings
    repairs: Repairs
    users: Users
    audit: AuditTrail
    access_rules: AccessRules
    logins: Logins
    scans: Scans
    jobs: "Jobs"
    unpacking: Unpacking
    schemas: Schemas | None  # None: the registry is off.
    schema_changes: SchemaChanges | None
