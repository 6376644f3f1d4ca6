"""Creates, describes, lists, alters, grows and deletes topics.

Owns the checks of a change before it is proposed to the control log, and the placement of new
partitions. The rules that must hold on every node are the catalog's. For each change there is a
`check_...` that raises what the change would raise, without a change.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from random import Random
from uuid import UUID

from millstream.config import Config
from millstream.control.balance import (
    REPLICAS_DEFAULT,
    Candidate,
    candidates,
    machine_count,
    spread,
)
from millstream.control.catalog import OWNER, VIEW_OF, VIEW_WHERE, Topic, check_view
from millstream.control.commands import (
    AddPartitions,
    AlterTopic,
    CreateTopic,
    DeleteTopic,
    Replicas,
)
from millstream.engine.controller import Controller, Quorum
from millstream.engine.filters.filter import parse
from millstream.engine.gate import CLUSTER, Gate, Operation, topic_resource
from millstream.engine.masks import Masks, masks_of
from millstream.engine.quotas.accounts import Usage
from millstream.errors import (
    Denied,
    InternalTopic,
    InvalidPartitions,
    InvalidPlacement,
    InvalidReplication,
    InvalidSetting,
    PolicyViolation,
    UnknownTopic,
)
from millstream.errors.views import HasViews
from millstream.model import SYSTEM, Session
from millstream.names import AUDIT_TOPIC, DLQ_TOPIC_SUFFIX, SCHEMAS_TOPIC
from millstream.ports import Clock
from millstream.replication.hub import Hub
from millstream.settings import (
    BUILT_IN_SETTINGS,
    check_together,
    effective_settings,
    with_overrides,
)
from millstream.view_names import FILTER_MARK, is_automatic, split_filtered

MASK_PATHS = "mask_paths"
# Elections take one to two timeouts; a topic that is not led by then is led later.
LED_TIMEOUTS_MAX = 3


class Topics:
    def __init__(
        self,
        gate: Gate,
        controller: Controller,
        hub: Hub,
        *,
        config: Config,
        clock: Clock,
        entropy: Random,
        usage: Usage,
    ) -> None:
        self._gate = gate
        self._controller = controller
        self._hub = hub
        self._config = config
        self._clock = clock
        self._entropy = entropy
        self._usage = usage
        # Topics and their partition counts by commands that may not be applied yet.
        self._proposed: list[tuple[str, int]] = []
        self._proposed_count = 0  # Their partitions, of which some may be applied already.

    async def create(
        self,
        session: Session,
        name: str,
        *,
        partitions: int = 1,
        replicas: int | None = 1,
        placement: Sequence[Replicas] | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> Topic:
        """Create a topic; it takes records when this returns.

        Without a number of `replicas` it has `default_replicas`, and more when nodes join.
        A `placement` says itself how many partitions and replicas there are. A view, which its
        settings make it, has those of its base, whatever else is asked for.
        """
        follows_cluster = replicas is None and placement is None
        follows_cluster = follows_cluster and self._config.default_replicas == -1
        replicas = self.default_replicas if replicas is None else replicas
        self.check_create(
            session,
            name,
            partitions=partitions,
            replicas=replicas,
            placement=placement,
            settings=settings,
        )
        command = CreateTopic(
            name=name,
            topic_id=UUID(int=self._entropy.getrandbits(128), version=4),
            placement=tuple(placement or self._spread(partitions, replicas)),
            overrides=dict(settings or {}),
            created_ms=self._clock.now_ms(),
            follows_cluster=follows_cluster,
        )
        self._usage.take_mutations(session, len(command.placement))
        with self._proposing(name, len(command.placement)):
            topic = await self._controller.propose(session, command)
        await self._led(topic)
        return topic

    def check_create(
        self,
        session: Session,
        name: str,
        *,
        partitions: int = 1,
        replicas: int = 1,
        placement: Sequence[Replicas] | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._gate.admit(session, Operation.CREATE, topic_resource(name))
        _check_trail(session, name)
        settings = settings or {}
        if OWNER in settings:
            # Else who may only create and write would give themselves the rest.
            self._gate.admit(session, Operation.ALTER, CLUSTER)
        self._controller.state.catalog.check_name(name)
        self._check_required(session, name, settings)
        self._check_settings(settings)
        self._check_as_a_whole(settings)
        check_view(None, settings)
        base = self._base(session, settings)
        if base is not None:
            partitions, replicas = base.partition_count, len(base.placement[0])
        elif placement is not None:
            replicas = self._check_placement(placement)
            partitions = len(placement)
        self._check_counts(partitions, replicas, of_total=partitions)

    async def delete(self, session: Session, name: str) -> Topic:
        """Delete a topic with all its records."""
        self._gate.admit(session, Operation.DELETE, topic_resource(name))
        _check_trail(session, name)
        if name == SCHEMAS_TOPIC and self._config.registry.enabled:
            # The ids of its schemas stand in records; given anew, they would mean something else.
            raise InternalTopic(name, "deleted while the registry is on (registry.enabled)")
        catalog = self._controller.state.catalog
        views = catalog.views_of(catalog.find_own(name))
        automatic = [view.name for view in views if _is_automatic(view, name)]
        if len(automatic) < len(views):
            raise HasViews(name, [view.name for view in views if view.name not in automatic])
        self._usage.take_mutations(session, catalog.find_own(name).partition_count)
        # Made by older clients for a filter, for one reader: they go with their topic.
        for view in automatic:
            await self._controller.propose(session, DeleteTopic(name=view))
        return await self._controller.propose(session, DeleteTopic(name=name))

    async def alter(self, session: Session, name: str, changes: Mapping[str, str | None]) -> Topic:
        """Change settings; None takes one back to its default."""
        self.check_alter(session, name, changes)
        return await self._controller.propose(session, AlterTopic(name=name, changes=dict(changes)))

    def check_alter(self, session: Session, name: str, changes: Mapping[str, str | None]) -> None:
        self._gate.admit(session, Operation.ALTER_CONFIGS, topic_resource(name))
        _check_trail(session, name)
        if OWNER in changes and not self._gate.owns(session, name):
            self._gate.admit(session, Operation.ALTER, CLUSTER)
        before = self._controller.state.catalog.find_own(name).overrides
        if VIEW_WHERE in changes and (base := before.get(VIEW_OF)):
            # Another filter shows other records of the base.
            self._gate.admit(session, Operation.READ, topic_resource(base))
        after = {key: text for key, text in {**before, **changes}.items() if text is not None}
        # What is there already may be of another version, with other rules.
        self._check_settings({key: text for key, text in changes.items() if text is not None})
        self._check_as_a_whole(after)
        check_view(before, after)

    async def add_partitions(
        self,
        session: Session,
        name: str,
        *,
        total: int,
        placement: Sequence[Replicas] | None = None,
    ) -> Topic:
        """Grow a topic to `total` partitions; a `placement` is one of the added ones."""
        self.check_add_partitions(session, name, total=total, placement=placement)
        topic = self._controller.state.catalog.find(name)
        count = total - topic.partition_count
        command = AddPartitions(
            name=name,
            count_before=topic.partition_count,
            placement=tuple(placement or self._spread(count, len(topic.placement[0]))),
        )
        self._usage.take_mutations(session, count)
        with self._proposing(name, total):
            grown = await self._controller.propose(session, command)
        await self._led(grown)
        return grown

    def check_add_partitions(
        self,
        session: Session,
        name: str,
        *,
        total: int,
        placement: Sequence[Replicas] | None = None,
    ) -> None:
        self._gate.admit(session, Operation.ALTER, topic_resource(name))
        _check_trail(session, name)
        topic = self._controller.state.catalog.find(name)
        topic.check_writable()
        count, replicas = total - topic.partition_count, len(topic.placement[0])
        if count < 1:
            raise InvalidPartitions(f"{name} has {topic.partition_count} partitions already")
        self._check_counts(count, replicas, of_total=total)
        if placement is None:
            return
        if len(placement) != count:
            raise InvalidPlacement(f"{count} partitions are added, {len(placement)} are placed")
        if self._check_placement(placement) != replicas:
            raise InvalidPlacement(f"the partitions of {name} have {replicas} replicas each")

    def describe(self, session: Session, name: str) -> Topic:
        self._gate.admit(session, Operation.DESCRIBE, topic_resource(name))
        return self._find(name)

    def masks(self, session: Session, name: str) -> Masks:
        """The parts of a topic's records that screens hide from the session.

        A view has those of its base too, and a dead-letter topic those of the topic it serves;
        each is shown to sessions that may alter the topic whose setting it is.
        """
        self._gate.admit(session, Operation.DESCRIBE, topic_resource(name))
        catalog = self._controller.state.catalog
        bare = name.partition(FILTER_MARK)[0]
        base = catalog.find(name).overrides.get(VIEW_OF, bare)
        masks = Masks()
        for source in dict.fromkeys((bare, base, bare.removesuffix(DLQ_TOPIC_SUFFIX))):
            try:
                text = catalog.find(source).overrides.get(MASK_PATHS, "")
            except UnknownTopic:
                continue
            if text and not self._gate.allows(session, Operation.ALTER, topic_resource(source)):
                masks = masks.with_all(masks_of(text))
        return masks

    def describe_configs(self, session: Session, name: str) -> Topic:
        """A topic for its settings, which need a right of their own.

        Those of a filtered name are in the name: its readers have their filter checked this way.
        """
        is_filtered = split_filtered(name) is not None
        operation = Operation.DESCRIBE if is_filtered else Operation.DESCRIBE_CONFIGS
        self._gate.admit(session, operation, topic_resource(name))
        return self._find(name)

    def open_configs(self, session: Session, name: str) -> Topic:
        """A topic for a change of its settings."""
        self._gate.admit(session, Operation.ALTER_CONFIGS, topic_resource(name))
        return self._find(name)

    def may_describe_configs(self, session: Session, name: str) -> bool:
        """Whether an answer about a new topic may show its settings; asks nothing else."""
        return self._gate.allows(session, Operation.DESCRIBE_CONFIGS, topic_resource(name))

    def sees(self, session: Session, name: str) -> bool:
        """Whether a listing may show the topic."""
        return self._gate.sees(session, topic_resource(name))

    def operations(self, session: Session, name: str) -> int:
        """What the session may do with a topic, as bits (KIP-430)."""
        return self._gate.operations_of(session, topic_resource(name))

    def cluster_operations(self, session: Session) -> int:
        """The same for the cluster; nothing for a session that may not describe it."""
        if not self._gate.sees(session, CLUSTER):
            return 0
        return self._gate.operations_of(session, CLUSTER)

    def admit_to_cluster(self, session: Session, operation: Operation) -> None:
        """Raise unless the session may do that to the cluster as a whole."""
        self._gate.admit(session, operation, CLUSTER)

    def describe_id(self, session: Session, topic_id: UUID) -> Topic:
        """Describe by id; an id of a topic that the session may not see is as good as unknown."""
        topic = self._controller.state.catalog.find_id(topic_id)
        try:
            self._gate.admit(session, Operation.DESCRIBE, topic_resource(topic.name))
        except Denied as denied:
            # The name would tell what the id means.
            raise denied.about(f"topic:{topic_id}") from None
        return topic

    def describe_number(self, session: Session, number: int) -> Topic:
        """Describe by the number that is part of its records' sequence numbers."""
        topic = self._controller.state.catalog.find_number(number)
        try:
            self._gate.admit(session, Operation.DESCRIBE, topic_resource(topic.name))
        except Denied as denied:
            raise denied.about(f"topic:number {number}") from None
        return topic

    def list(self, session: Session) -> list[Topic]:
        """Every topic that the session may know of, by name."""
        self._gate.admit(session, Operation.DESCRIBE, "topics")
        topics = self._controller.state.catalog.topics()
        visible = [t for t in topics if self._gate.sees(session, topic_resource(t.name))]
        return sorted(visible, key=lambda topic: topic.name)

    def node_config(self, session: Session) -> Config:
        """The configuration of this node."""
        self._gate.admit(session, Operation.DESCRIBE_CONFIGS, CLUSTER)
        return self._config

    def quorum(self, session: Session) -> Quorum:
        """The leader of the control log, and its offsets."""
        self._gate.admit(session, Operation.DESCRIBE, CLUSTER)
        return self._controller.quorum()

    @property
    def machine_count(self) -> int:
        """How many replicas a partition can have."""
        return machine_count(self._places())

    @property
    def default_replicas(self) -> int:
        """How many replicas a topic has that is created without a number."""
        replicas = self._config.default_replicas
        return min(REPLICAS_DEFAULT, self.machine_count) if replicas == -1 else replicas

    # -- parts -----------------------------------------------------------------------------

    def _find(self, name: str) -> Topic:
        """A topic, or one filtered by its name; raise if there is none, or no such filter."""
        topic = self._controller.state.catalog.find(name)
        if topic.is_view and (filtered := split_filtered(name)) is not None:
            parse(filtered.where)
        return topic

    def _base(self, session: Session, settings: Mapping[str, str]) -> Topic | None:
        """The topic that a view with these settings shows; None if they make no view."""
        name = settings.get(VIEW_OF)
        if not name:
            return None
        # A session that may not read a topic must not read it through a view.
        self._gate.admit(session, Operation.READ, topic_resource(name))
        return self._controller.state.catalog.find_base(name)

    def _check_required(self, session: Session, name: str, settings: Mapping[str, str]) -> None:
        """Raise `PolicyViolation` for a topic of a client without what this cluster asks for."""
        if not self._config.required_topic_settings or session.principal == SYSTEM:
            return
        for required in self._config.required_topic_settings:
            key = required.replace(".", "_")
            if not settings.get(key):
                raise PolicyViolation(
                    f"topic {name!r} needs the setting {required}: this cluster creates no topic "
                    f"without it; say --set {required}=…"
                )

    def _check_as_a_whole(self, settings: Mapping[str, str]) -> None:
        limit = self._config.limits.topic_settings_max
        if len(settings) > limit:
            raise InvalidSetting(f"{len(settings)} settings, at most {limit}")
        check_together(effective_settings(BUILT_IN_SETTINGS, dict(settings))[0])

    def _check_settings(self, settings: Mapping[str, str]) -> None:
        with_overrides(BUILT_IN_SETTINGS, dict(settings))
        if where := settings.get(VIEW_WHERE):
            parse(where)
        try:
            masks_of(settings.get(MASK_PATHS, ""))
        except ValueError as problem:
            raise InvalidSetting(f"{MASK_PATHS}: {problem}") from None

    def _check_counts(self, partitions: int, replicas: int, *, of_total: int) -> None:
        limits = self._config.limits
        if not 1 <= of_total <= limits.topic_partitions_max:
            raise InvalidPartitions(
                f"{of_total} partitions, a topic has 1 to {limits.topic_partitions_max}"
            )
        held = self._controller.state.catalog.partition_count
        if held + self._proposed_count + partitions > limits.node_partitions_max:
            held += self._unapplied_partitions()
        if held + partitions > limits.node_partitions_max:
            raise InvalidPartitions(
                f"{held} partitions exist, at most {limits.node_partitions_max} are allowed"
            )
        nodes = self.machine_count
        if not 1 <= replicas <= nodes:
            raise InvalidReplication(f"{replicas} replicas asked for, there are {nodes} nodes")

    @contextmanager
    def _proposing(self, name: str, total: int) -> Iterator[None]:
        """Count the partitions of a proposal, so that all together keep within the limit."""
        proposal = (name, total)
        self._proposed.append(proposal)
        self._proposed_count += total
        try:
            yield
        finally:
            self._proposed.remove(proposal)
            self._proposed_count -= total

    def _unapplied_partitions(self) -> int:
        catalog = self._controller.state.catalog
        return sum(max(0, total - catalog.count_of(name)) for name, total in self._proposed)

    def _check_placement(self, placement: Sequence[Replicas]) -> int:
        """Return how many replicas each partition has."""
        counts = {len(replicas) for replicas in placement}
        if len(counts) != 1 or 0 in counts:
            raise InvalidPlacement("every partition needs replicas, and as many as the others")
        for replicas in placement:
            strangers = set(replicas) - {place.node_id for place in self._places()}
            if strangers:
                raise InvalidPlacement(f"there are no nodes {sorted(strangers)}")
            if len(set(replicas)) != len(replicas):
                raise InvalidPlacement(f"a node holds a partition once, not {list(replicas)}")
        return counts.pop()

    def _spread(self, partitions: int, replicas: int) -> tuple[Replicas, ...]:
        places = self._places()
        first = self._entropy.randrange(max(1, len(places)))
        return spread(places, partitions, replicas, first=first)

    def _places(self) -> Sequence[Candidate]:
        return candidates(self._controller.state.nodes, self._config.voters)

    async def _led(self, topic: Topic) -> None:
        """Wait until the replicas here are open and know their leader, for that not for ever."""
        await self._hub.opened(topic.log(at) for at in range(topic.partition_count))
        limit_ms = LED_TIMEOUTS_MAX * self._config.timing.election_timeout_ms
        try:
            async with asyncio.timeout(limit_ms / 1000):
                for partition in range(topic.partition_count):
                    await self._hub.led(topic.log(partition))
        except TimeoutError:
            return  # Created all the same; clients ask again until there is a leader.


def _check_trail(session: Session, name: str) -> None:
    """The audit trail is the broker's alone: not even an administrator makes or unmakes it."""
    if name == AUDIT_TOPIC and session.principal != SYSTEM:
        raise InternalTopic(name)


def _is_automatic(view: Topic, of: str) -> bool:
    return is_automatic(view.name, of=of, where=view.overrides.get(VIEW_WHERE, ""))
