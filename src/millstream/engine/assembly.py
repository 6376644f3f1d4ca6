"""Builds the services of a node: each once, in the order in which they need each other.

`build_engine` returns them by name. The node starts and stops them; listeners call them.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from millstream.config import Config
from millstream.control.catalog import Catalog
from millstream.engine.access.acls import AccessRules
from millstream.engine.audit.trail import AuditTrail
from millstream.engine.checkpoints.service import Checkpoints
from millstream.engine.cluster.peer_calls import PeerCalls
from millstream.engine.cluster.relay.relaying import Relayed, on_first_link
from millstream.engine.controller import Controller
from millstream.engine.dead_letters.service import DeadLetters
from millstream.engine.delayed.scheduler import DelayedScheduler
from millstream.engine.delayed.service import DelayedRecords
from millstream.engine.encryption import EncryptionKeys
from millstream.engine.gate import Everyone, Gate
from millstream.engine.groups.consumer.service import ConsumerGroups
from millstream.engine.groups.coordinators import Coordinators, Subscriptions
from millstream.engine.groups.service import Groups
from millstream.engine.ledgers.exactly_once import RemoteLogs, WriterContext
from millstream.engine.partitions.service import Partitions
from millstream.engine.produce.message_ids import Windows
from millstream.engine.produce.pipeline import ProducePipeline
from millstream.engine.produce.schema_checks import SchemaChecks
from millstream.engine.produce.split import BatchSplitter
from millstream.engine.produce.transactional import TransactionalWrites
from millstream.engine.produce.unpacking import Unpacking
from millstream.engine.producer_ids import ProducerIds
from millstream.engine.publish.missing_topics import MissingTopics
from millstream.engine.publish.publisher import Publisher
from millstream.engine.push.assembly import Delivering, open_deliveries
from millstream.engine.quotas.accounts import Usage
from millstream.engine.quotas.limits import ClientQuotas
from millstream.engine.repairs import Repairs
from millstream.engine.resources import ResourceSettings
from millstream.engine.running_config import RunningConfig
from millstream.engine.runtime.background import BackgroundTasks
from millstream.engine.schemas.changes import SchemaChanges
from millstream.engine.schemas.log import RegistryLog
from millstream.engine.schemas.parsing import SchemaParser
from millstream.engine.schemas.service import Schemas
from millstream.engine.schemas.validation import RecordValidation
from millstream.engine.topic_defaults import TopicDefaults
from millstream.engine.topics import Topics
from millstream.engine.transactions.batch_groups import BatchGroups
from millstream.engine.transactions.coordinators import TransactionCoordinators
from millstream.engine.transactions.remote import RemoteTransactions
from millstream.engine.transactions.service import Transactions
from millstream.metrics import Metrics
from millstream.model import NodeId
from millstream.ports import Ports
from millstream.replication.hub import Hub

if TYPE_CHECKING:
    from millstream.engine.access.rights import Rights
    from millstream.engine.audit.recorder import Recorder
    from millstream.tracing.spans import Tracer


class Engine(Struct, frozen=True, kw_only=True):
    """The services that listeners call, then the parts that the services share."""

    topics: Topics
    partitions: Partitions
    publisher: Publisher
    producer_ids: ProducerIds
    transactions: Transactions
    batch_groups: BatchGroups
    groups: Groups
    consumer_groups: ConsumerGroups
    delayed: DelayedRecords
    dead_letters: DeadLetters
    client_quotas: ClientQuotas
    resources: ResourceSettings
    usage: Usage
    repairs: Repairs
    encryption: EncryptionKeys
    checkpoints: Checkpoints
    access_rules: AccessRules
    audit: AuditTrail
    schemas: Schemas | None  # None: the registry is off.
    schema_changes: SchemaChanges | None

    pipeline: ProducePipeline
    unpacking: Unpacking  # That of producers; readers have their own.
    writer_context: WriterContext
    delayed_scheduler: DelayedScheduler
    group_coordinators: Coordinators
    transaction_coordinators: TransactionCoordinators
    registry_log: RegistryLog | None
    missing_topics: MissingTopics
    push: Delivering
    background: BackgroundTasks

    def workers(self) -> list[Callable[[], Awaitable[None]]]:
        """The background work of all services; each runs until cancelled, once logs are open."""
        writer = self.audit.writer
        return [
            *([] if writer is None else [writer.run]),
            self.group_coordinators.run,
            self.transaction_coordinators.run,
            self.pipeline.run,
            self.delayed_scheduler.run,
            self.missing_topics.run,
            self.push.pump.run,
            self.background.run,
        ]


class Foundation(NamedTuple):
    """The parts that every service needs."""

    gate: Gate
    controller: Controller
    hub: Hub
    config: Config
    ports: Ports
    metrics: Metrics
    defaults: TopicDefaults
    running_config: RunningConfig
    rights: "Rights | None" = None  # The gate's policy, where authorization is on.
    recorder: "Recorder | None" = None  # Of the audit trail, where there is one.
    cluster_id: str = ""
    peers: PeerCalls | None = None  # Calls to other nodes.
    tracer: "Tracer | None" = None  # Takes spans, where tracing is on.

    @property
    def catalog(self) -> Catalog:
        return self.controller.state.catalog

    def topics(self, gate: Gate, usage: Usage) -> Topics:
        ports = self.ports
        return Topics(
            gate,
            self.controller,
            self.hub,
            config=self.config,
            clock=ports.clock,
            entropy=ports.entropy,
            usage=usage,
        )


class _Internal(NamedTuple):
    """For topics and producer ids of the broker itself: their gate admits every session."""

    topics: Topics
    producer_ids: ProducerIds


class _Produce(NamedTuple):
    pipeline: ProducePipeline
    partitions: Partitions
    unpacking: Unpacking
    writer_context: WriterContext
    delayed_scheduler: DelayedScheduler
    delayed: DelayedRecords


class _Registry(NamedTuple):
    schemas: Schemas | None
    changes: SchemaChanges | None
    validation: RecordValidation | None
    log: RegistryLog | None


class _Groups(NamedTuple):
    coordinators: Coordinators
    transactions: Transactions
    groups: Groups


def build_engine(base: Foundation, *, subscriptions: Subscriptions) -> Engine:
    """`subscriptions` reads the topics of a classic group's member, see `Coordinators`."""
    gate, controller, config, ports = base.gate, base.controller, base.config, base.ports
    catalog, clock = base.catalog, ports.clock
    broker_gate = Gate(Everyone(), base.metrics)
    usage = Usage(controller.state.quotas, config.limits)
    internal = _Internal(base.topics(broker_gate, usage), ProducerIds(broker_gate, controller))
    topics = base.topics(gate, usage)
    transaction_coordinators = TransactionCoordinators(
        catalog,
        base.hub,
        *internal,
        config=config,
        clock=clock,
        metrics=base.metrics,
        peers=base.peers,
    )
    registry = _build_registry(base, internal)
    remote = _build_remote(base, transaction_coordinators)
    produce = _build_produce(base, internal, transaction_coordinators, registry, remote)
    groups = _build_groups(base, internal, transaction_coordinators, subscriptions, remote)
    missing_topics = MissingTopics(topics, config=config)
    push = _build_push(base, internal, produce)
    background = BackgroundTasks()
    _relay(base, internal, produce, push, background, registry)
    return Engine(
        topics=topics,
        partitions=produce.partitions,
        publisher=_build_publisher(base, topics, produce.partitions, missing_topics),
        producer_ids=ProducerIds(gate, controller),
        transactions=groups.transactions,
        batch_groups=BatchGroups(gate, transaction_coordinators, config=config, clock=clock),
        groups=groups.groups,
        consumer_groups=ConsumerGroups(
            gate, catalog, groups.coordinators, limits=config.limits, entropy=ports.entropy
        ),
        delayed=produce.delayed,
        dead_letters=_build_dead_letters(base, produce.partitions, push, background),
        client_quotas=ClientQuotas(gate, controller, config.limits),
        resources=ResourceSettings(gate, controller, base.defaults, base.running_config, config),
        usage=usage,
        access_rules=AccessRules(gate, controller, config.limits, base.rights),
        audit=_build_audit(base, internal),
        repairs=Repairs(gate, catalog, base.hub, base.hub.topic_name),
        encryption=EncryptionKeys(gate, controller, base.hub, ports.threads, config.node_id),
        checkpoints=Checkpoints(gate, base.hub, ports, config),
        schemas=registry.schemas,
        schema_changes=registry.changes,
        pipeline=produce.pipeline,
        unpacking=produce.unpacking,
        writer_context=produce.writer_context,
        delayed_scheduler=produce.delayed_scheduler,
        group_coordinators=groups.coordinators,
        transaction_coordinators=transaction_coordinators,
        registry_log=registry.log,
        missing_topics=missing_topics,
        push=push,
        background=background,
    )


def _relay(
    base: Foundation,
    internal: _Internal,
    produce: _Produce,
    push: Delivering,
    background: BackgroundTasks,
    registry: _Registry,
) -> None:
    if base.peers is not None:
        relayed = Relayed(
            base.controller,
            base.hub,
            base.ports.threads,
            base.peers,
            internal.producer_ids,
            background,
            produce.partitions,
            push,
            produce.writer_context,
            produce.delayed_scheduler,
            registry.log,
        )
        on_first_link(base.ports.links, relayed, me=NodeId(base.config.node_id))


def _build_audit(base: Foundation, internal: _Internal) -> AuditTrail:
    writer = None
    if base.recorder is not None:
        from millstream.engine.audit.writer import AuditWriter

        writer = AuditWriter(
            base.recorder,
            base.controller,
            base.hub,
            internal.topics,
            config=base.config,
            ports=base.ports,
            cluster_id=base.cluster_id,
        )
    return AuditTrail(
        base.gate, base.catalog, base.hub, base.config, base.ports, base.recorder, writer
    )


def _build_remote(
    base: Foundation, coordinators: TransactionCoordinators
) -> RemoteTransactions | None:
    if base.peers is None:
        return None
    return RemoteTransactions(
        base.hub, coordinators, base.peers, config=base.config, clock=base.ports.clock
    )


def _build_produce(
    base: Foundation,
    internal: _Internal,
    coordinators: TransactionCoordinators,
    registry: _Registry,
    remote: RemoteTransactions | None,
) -> _Produce:
    """The path of a batch into the log, and the delayed records that leave it."""
    catalog, hub, metrics = base.catalog, base.hub, base.metrics
    limits, clock, threads = base.config.limits, base.ports.clock, base.ports.threads
    reading = Unpacking(threads, "read", limits=limits, metrics=metrics)
    unpacking = Unpacking(threads, "produce", limits=limits, metrics=metrics)
    windows = Windows(catalog, hub, clock, reading)
    context = WriterContext(
        catalog, hub, internal.producer_ids, clock, windows.arrived, RemoteLogs()
    )
    scheduler = DelayedScheduler(
        catalog, hub, internal.topics, context, config=base.config, metrics=metrics
    )
    transactional = TransactionalWrites(
        coordinators,
        clock,
        queued_max=limits.transaction_queued_batches_max,
        participants_max=limits.transaction_partitions_max,
        end_wait_ms_max=base.config.timing.transaction_end_wait_ms_max,
        remote=remote,
    )
    splitter = BatchSplitter(windows, scheduler, hub, limits=limits, clock=clock, metrics=metrics)
    pipeline = ProducePipeline(
        transactional,
        windows,
        scheduler,
        internal.topics,
        splitter,
        unpacking,
        limits=limits,
        clock=clock,
        metrics=metrics,
        schema_checks=_build_schema_checks(base, internal, splitter, unpacking, registry),
    )
    partitions = _partitions_class(base)(
        base.gate,
        base.controller,
        hub,
        config=base.config,
        clock=clock,
        metrics=metrics,
        pipeline=pipeline,
        unpacking=reading,
    )
    delayed = DelayedRecords(base.gate, catalog, scheduler, windows)
    return _Produce(pipeline, partitions, unpacking, context, scheduler, delayed)


def _partitions_class(base: Foundation) -> Callable[..., Partitions]:
    """The usual one, unless the audit trail is to tell of records, or traces of requests."""
    recorder, tracer = base.recorder, base.tracer
    if recorder is None or not (recorder.wants("data.produce") or recorder.wants("data.consume")):
        if tracer is None:
            return Partitions
        from millstream.engine.tracing.traced_partitions import TracedPartitions

        return partial(TracedPartitions, tracer)
    from millstream.engine.audit.audited_partitions import AuditedPartitions

    if tracer is None:
        return partial(AuditedPartitions, recorder)
    from millstream.engine.tracing.traced_partitions import TracedPartitions

    class TracedAndAudited(TracedPartitions, AuditedPartitions):
        """Each takes its own part, and passes the others on."""

    return partial(TracedAndAudited, tracer, recorder)


def _build_schema_checks(
    base: Foundation,
    internal: _Internal,
    splitter: BatchSplitter,
    unpacking: Unpacking,
    registry: _Registry,
) -> SchemaChecks | None:
    if registry.validation is None:
        return None
    return SchemaChecks(
        registry.validation,
        base.catalog,
        base.hub,
        internal.topics,
        splitter,
        unpacking,
        clock=base.ports.clock,
        metrics=base.metrics,
    )


def _build_groups(
    base: Foundation,
    internal: _Internal,
    transaction_coordinators: TransactionCoordinators,
    subscriptions: Subscriptions,
    remote: RemoteTransactions | None,
) -> _Groups:
    """Groups, and the transactions that commit offsets for them."""
    config, clock = base.config, base.ports.clock
    coordinators = Coordinators(
        base.catalog,
        base.hub,
        internal.topics,
        config=config,
        clock=clock,
        subscriptions=subscriptions,
        resources=base.controller.state.resources,
    )
    transactions = Transactions(
        base.gate,
        base.catalog,
        transaction_coordinators,
        coordinators,
        config=config,
        clock=clock,
        remote=remote,
    )
    groups = Groups(
        base.gate,
        base.catalog,
        coordinators,
        limits=config.limits,
        clock=clock,
        entropy=base.ports.entropy,
        check_transaction=transactions.verify_offsets,
    )
    return _Groups(coordinators, transactions, groups)


def _build_publisher(
    base: Foundation, topics: Topics, partitions: Partitions, missing_topics: MissingTopics
) -> Publisher:
    return Publisher(
        base.gate,
        base.catalog,
        topics,
        partitions,
        missing_topics,
        config=base.config,
        defaults=base.defaults,
        clock=base.ports.clock,
    )


def _build_push(base: Foundation, internal: _Internal, produce: _Produce) -> Delivering:
    return open_deliveries(
        base.gate,
        base.catalog,
        base.hub,
        produce.partitions,
        internal.topics,
        produce.writer_context,
        config=base.config,
        defaults=base.defaults,
        metrics=base.metrics,
        entropy=base.ports.entropy,
    )


def _build_registry(base: Foundation, internal: _Internal) -> _Registry:
    config = base.config.registry
    if not config.enabled:
        return _Registry(None, None, None, None)
    log = RegistryLog(
        base.catalog,
        base.hub,
        internal.topics,
        base.controller.state.schema_ids,
        config=base.config,
        clock=base.ports.clock,
    )
    base.metrics.watch(log.samples)
    parser = SchemaParser(base.ports.schema_compiler, base.ports.threads, config)
    return _Registry(
        Schemas(base.gate, log, parser, config),
        SchemaChanges(base.gate, log, parser, base.controller, config),
        RecordValidation(log, parser),
        log,
    )


def _build_dead_letters(
    base: Foundation, partitions: Partitions, push: Delivering, background: BackgroundTasks
) -> DeadLetters:
    make: Callable[..., DeadLetters] = DeadLetters
    if base.tracer is not None:
        from millstream.engine.tracing.traced_dead_letters import TracedDeadLetters

        make = partial(TracedDeadLetters, base.tracer)
    return make(
        base.gate,
        base.catalog,
        partitions,
        push.shards,
        push.dead_letter_writer,
        background,
        clock=base.ports.clock,
    )
