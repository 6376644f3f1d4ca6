"""The context of a handler: the services, the session, and the state of the connection.

Also owns the little state that all connections share: the members of each group; and how far a
connection's filtered reads have come.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from millstream.config import Config
from millstream.engine.access.acls import AccessRules
from millstream.engine.access.login import Login
from millstream.engine.access.users import Users
from millstream.engine.audit.trail import AuditTrail
from millstream.engine.dead_letters.service import DeadLetters
from millstream.engine.delayed.service import DelayedRecords
from millstream.engine.groups.consumer.service import ConsumerGroups
from millstream.engine.groups.service import Groups
from millstream.engine.partitions.service import Partitions
from millstream.engine.produce.unpacking import Unpacking
from millstream.engine.publish.publisher import Publisher
from millstream.engine.quotas.accounts import Usage
from millstream.engine.schemas.changes import SchemaChanges
from millstream.engine.schemas.service import Schemas
from millstream.engine.topics import Topics
from millstream.model import Acks, Offset, Session
from millstream.protocols.flymq.open_transactions import OpenTransactions

SCANS_KEPT_MAX = 32  # Of one connection: partitions that it reads with filters at the same time.
SCAN_FILTER_LENGTH_MAX = 1_024  # A search for more is not remembered.
GROUPS_ATTENDED_MAX = 1_000  # Of one connection; beyond that it is served, and not counted.


class Endpoint(NamedTuple):
    """Where the client reached this node."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class TopicGroup(NamedTuple):
    """A consumer group as FlyMQ sees it: one per topic."""

    topic: str
    group: str


class Attendance:
    """Which connections have subscribed in each group, and are still there."""

    def __init__(self) -> None:
        self._present: dict[str, dict[str, set[object]]] = {}  # By group and topic.

    def count(self, group: TopicGroup) -> int:
        return len(self._present.get(group.group, {}).get(group.topic, ()))

    def groups(self) -> set[str]:
        return set(self._present)

    def topics_of(self, group: str) -> set[str]:
        return set(self._present.get(group, ()))

    def enter(self, group: TopicGroup, member: object) -> None:
        self._present.setdefault(group.group, {}).setdefault(group.topic, set()).add(member)

    def leave(self, group: TopicGroup, member: object) -> None:
        others = self._present.get(group.group, {}).get(group.topic, set())
        others.discard(member)
        if not others:
            self.forget(group)

    def forget(self, group: TopicGroup) -> None:
        """The group is deleted. A member that subscribes again joins a new one."""
        topics = self._present.get(group.group, {})
        topics.pop(group.topic, None)
        if not topics:
            self._present.pop(group.group, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The services that FlyMQ handlers call, and the state that all connections share."""

    config: Config
    cluster_id: str
    topics: Topics
    partitions: Partitions
    publisher: Publisher
    delayed: DelayedRecords
    dead_letters: DeadLetters
    groups: Groups
    consumer_groups: ConsumerGroups
    transactions: OpenTransactions
    users: Users
    access_rules: AccessRules
    lets_anonymous_in: Callable[[], bool]  # Whether any listener serves without a login.
    audit: AuditTrail
    usage: Usage
    unpacking: Unpacking
    schemas: Schemas | None  # None: the registry is off.
    schema_changes: SchemaChanges | None
    attendance: Attendance = field(default_factory=Attendance)


class Scan(NamedTuple):
    """A read with a filter: of which log, with which filter, and from where it was asked for."""

    topic_id: UUID
    partition: int
    filter: str
    offset: Offset


class Conversation:
    """The state of one connection."""

    def __init__(self, attendance: Attendance) -> None:
        self._attendance = attendance
        self._attended: set[TopicGroup] = set()
        self._reached: OrderedDict[Scan, Offset] = OrderedDict()

    def attend(self, group: TopicGroup) -> None:
        if group in self._attended or len(self._attended) < GROUPS_ATTENDED_MAX:
            self._attended.add(group)
            self._attendance.enter(group, self)

    def reached(self, scan: Scan) -> Offset:
        """Where to go on: a client that found nothing asks again from where it asked before."""
        return self._reached.get(scan, scan.offset)

    def note(self, scan: Scan, offset: Offset) -> None:
        """Nothing was found before `offset`."""
        if len(scan.filter) > SCAN_FILTER_LENGTH_MAX:
            return
        self._reached[scan] = offset
        self._reached.move_to_end(scan)
        if len(self._reached) > SCANS_KEPT_MAX:
            self._reached.popitem(last=False)

    def close(self) -> None:
        for group in self._attended:
            self._attendance.leave(group, self)
        self._attended.clear()


def acks_for(config: Config) -> Acks:
    """When a produce is answered: when it is as safe as the node is configured to make it.

    A single node with durability `write` has nothing else to wait for.
    """
    is_alone = len(config.voters) == 1
    return Acks.LEADER if is_alone and config.durability == "write" else Acks.ALL


class Context(NamedTuple):
    services: Services
    session: Session
    dialled: Endpoint
    conversation: Conversation
    acks: Acks  # Of a produce.
    login: Login | None = None  # None on listeners without a login.
