"""Consumer groups (KIP-848) as protocols ask for them: heartbeats and descriptions.

Owns the access checks and what a member may know of topics; `group` owns the members, and
`coordinators` finds the node of a group.

Invariant: an answer waits until all earlier writes about the group are committed, so a crash undoes
nothing that a member has seen.
"""

from collections.abc import Iterator
from random import Random
from uuid import UUID

from msgspec.structs import replace

from millstream.config import Limits
from millstream.control.catalog import Catalog
from millstream.engine.filters.name_patterns import Pattern
from millstream.engine.gate import Gate, Operation, group_resource, topic_resource
from millstream.engine.groups.consumer.group import ConsumerGroup
from millstream.engine.groups.consumer.reconciliation import AWAY, JOINING, LEAVING
from millstream.engine.groups.consumer.views import (
    ConsumerDescription,
    ConsumersDescription,
    described,
)
from millstream.engine.groups.consumer.vocabulary import Beat, Beaten
from millstream.engine.groups.coordinator import Coordinator, Group
from millstream.engine.groups.coordinators import Coordinators
from millstream.engine.runtime.alarms import loop_ms
from millstream.errors import Denied, InvalidRequest, NotCoordinator, NotLeader, UnknownTopic
from millstream.errors.groups import GroupNotFound
from millstream.internal_topics.groups import check_text
from millstream.model import Session
from millstream.names import INTERNAL_TOPICS

KIND = "group of the new consumer protocol"
PATTERNS_MAX = 1_000  # Patterns whose topics are remembered; the oldest gives way.


class ConsumerGroups:
    def __init__(
        self,
        gate: Gate,
        catalog: Catalog,
        coordinators: Coordinators,
        *,
        limits: Limits,
        entropy: Random,
    ) -> None:
        self._gate = gate
        self._catalog = catalog
        self._coordinators = coordinators
        self._limits = limits
        self._entropy = entropy
        self._matches = _Matches(catalog)

    async def heartbeat(self, session: Session, group_id: str, beat: Beat) -> Beaten:
        """Join, stay in, change or leave a group, as `beat.epoch` says.

        A member without an id that joins gets one.
        """
        self._gate.admit(session, Operation.JOIN, group_resource(group_id))
        self._check(group_id, beat)
        for name in beat.names or ():
            self._gate.admit(session, Operation.DESCRIBE, topic_resource(name))
        coordinator = await self._coordinators.find(group_id)
        is_new = group_id not in coordinator.groups
        group = self._group(coordinator, group_id, is_joining=beat.epoch == JOINING)
        try:
            consumers = coordinator.consumers_of(group)
            answer = self._hear(session, consumers, beat)
            coordinator.save_consumers(group, consumers)
            await coordinator.applied(group, group.written_offset)
            if is_new:
                self._gate.note("group.create", session, group_resource(group_id))
        except NotLeader as problem:
            raise NotCoordinator(group_id, problem.leader) from problem
        finally:
            coordinator.drop_if_bare(group)
        return answer

    async def describe(self, session: Session, group_id: str) -> ConsumersDescription:
        """The group and its members; `GroupNotFound` for one of the classic kind too."""
        self._gate.admit(session, Operation.DESCRIBE, group_resource(group_id))
        coordinator = await self._coordinators.find_confirmed(group_id)
        group = coordinator.groups.get(group_id)
        if group is None or group.consumers is None:
            raise GroupNotFound(group_id, KIND)
        description = described(group.consumers, self._catalog)
        topics = {name for member in description.members for name in _topics_of(member)}
        if not all(self._gate.sees(session, topic_resource(name)) for name in topics):
            # Which one is not said: the group's topics are not for this session to know.
            raise Denied(session.principal, Operation.DESCRIBE.words, "topic:of this group")
        return description

    # -- parts -----------------------------------------------------------------------------------

    def _group(self, coordinator: Coordinator, group_id: str, *, is_joining: bool) -> Group:
        group = coordinator.groups.get(group_id)
        if group is None and is_joining:
            return self._coordinators.open(coordinator, group_id)
        # Members of the classic kind keep others out, until the last of them has left.
        if group is None or (group.consumers is None and not (is_joining and group.is_idle)):
            raise GroupNotFound(group_id, KIND)
        return group

    def _hear(self, session: Session, consumers: ConsumerGroup, beat: Beat) -> Beaten:
        if beat.epoch in {LEAVING, AWAY}:
            return consumers.leave(beat, loop_ms())
        world = _World(session, self._gate, self._catalog, self._matches)
        return consumers.beat(self._named(session, beat), world, loop_ms())

    def _named(self, session: Session, beat: Beat) -> Beat:
        """With all that the member does not say itself."""
        member_id = beat.member_id or str(UUID(int=self._entropy.getrandbits(128), version=4))
        return replace(
            beat, member_id=member_id, client_id=session.client_id, client_host=session.address
        )

    def _check(self, group_id: str, beat: Beat) -> None:
        check_text(group_id, beat.member_id, beat.instance_id, beat.rack_id, beat.pattern)
        check_text(*(beat.names or ()))
        _demand(group_id, "a group id")
        _demand(beat.epoch >= AWAY, "a member epoch from -2 on")
        _demand(beat.instance_id != "" and beat.rack_id != "", "no instance or rack without a name")
        _demand(beat.epoch != AWAY or beat.instance_id is not None, "an instance id to be back as")
        size = len(beat.pattern or "") + sum(len(name) for name in beat.names or ())
        _demand(size <= self._limits.member_metadata_bytes_max, "fewer topics")
        if beat.epoch == JOINING:
            _demand(beat.is_full and not beat.owned, "all there is to say, and to own nothing")
        else:
            _demand(beat.member_id, "a member id")


class _Matches:
    """Which topics patterns match. A topic is looked at once for each pattern, then remembered."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._known: dict[str, _Match] = {}

    def of(self, text: str) -> tuple[str, ...]:
        match = self._known.get(text)
        if match is None:
            match = _Match(Pattern(text))
            if len(self._known) >= PATTERNS_MAX:
                del self._known[next(iter(self._known))]
            self._known[text] = match
        return match.names(self._catalog)


class _Match:
    def __init__(self, pattern: Pattern) -> None:
        self._pattern = pattern
        self._version = -1
        self._verdicts: dict[str, bool] = {}
        self._names: tuple[str, ...] = ()

    def names(self, catalog: Catalog) -> tuple[str, ...]:
        if self._version != catalog.version:
            names = [topic.name for topic in catalog.topics() if topic.name not in INTERNAL_TOPICS]
            self._verdicts = {name: self._verdict(name) for name in names}
            self._names = tuple(sorted(name for name in names if self._verdicts[name]))
            self._version = catalog.version
        return self._names

    def _verdict(self, name: str) -> bool:
        known = self._verdicts.get(name)
        return self._pattern.matches(name) if known is None else known


class _World:
    """All topics, and those that a session may know of."""

    def __init__(self, session: Session, gate: Gate, catalog: Catalog, matches: _Matches) -> None:
        self._session = session
        self._gate = gate
        self._catalog = catalog
        self._matches = matches

    @property
    def version(self) -> int:
        return self._catalog.version

    def find(self, name: str) -> tuple[UUID, int] | None:
        try:
            topic = self._catalog.find(name)
        except UnknownTopic:
            return None
        return topic.topic_id, topic.partition_count

    def matching(self, pattern: str) -> tuple[str, ...]:
        return tuple(
            name
            for name in self._matches.of(pattern)
            if self._gate.sees(self._session, topic_resource(name))
        )


def _demand(claim: object, missing: str) -> None:
    if not claim:
        raise InvalidRequest(f"the heartbeat of a member of a consumer group needs {missing}")


def _topics_of(member: ConsumerDescription) -> Iterator[str]:
    yield from member.names
    for share in (*member.assigned, *member.target):
        yield share.topic
