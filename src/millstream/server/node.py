"""The composition root: what a node is made of, and its life from start to stop.

Owns the order in which things begin and end. A node alone is a cluster of one: it elects itself
like any other. Its doors open once its partitions have settled, so that no client sees a high
watermark that is merely not known yet.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from enum import Enum
from functools import partial

from millstream.config import Config
from millstream.control.catalog import Catalog
from millstream.control.state import State
from millstream.engine.controller import Controller
from millstream.engine.dead_letters.service import DeadLetters
from millstream.engine.delayed.scheduler import DelayedScheduler
from millstream.engine.delayed.service import DelayedRecords
from millstream.engine.gate import Everyone, Gate, Policy
from millstream.engine.groups.consumer.service import ConsumerGroups
from millstream.engine.groups.coordinators import Coordinators
from millstream.engine.groups.service import Groups
from millstream.engine.hosting import Hosting
from millstream.engine.ledgers.exactly_once import WriterContext
from millstream.engine.partitions.service import Partitions
from millstream.engine.produce.message_ids import Windows
from millstream.engine.produce.pipeline import ProducePipeline
from millstream.engine.produce.split import BatchSplitter
from millstream.engine.produce.transactional import TransactionalWrites
from millstream.engine.produce.unpacking import Unpacking
from millstream.engine.producer_ids import ProducerIds
from millstream.engine.publish.missing_topics import MissingTopics
from millstream.engine.publish.publisher import Publisher
from millstream.engine.push.assembly import open_deliveries
from millstream.engine.quotas.accounts import Usage
from millstream.engine.quotas.limits import ClientQuotas
from millstream.engine.repairs import Repairs
from millstream.engine.resources import ResourceSettings
from millstream.engine.runtime.background import BackgroundTasks
from millstream.engine.topic_defaults import TopicDefaults
from millstream.engine.topics import Topics
from millstream.engine.transactions.batch_groups import BatchGroups
from millstream.engine.transactions.coordinators import TransactionCoordinators
from millstream.engine.transactions.service import Transactions
from millstream.errors import StartupError, UnknownTopic
from millstream.metrics import Metrics
from millstream.model import CONTROL_LOG, LogId, NodeId
from millstream.ports import Ports
from millstream.protocols.kafka.consumer_metadata import subscribed_topics
from millstream.replication.hub import Hub
from millstream.replication.replica import Replica
from millstream.server.faults import Faults
from millstream.server.observing import Observer
from millstream.settings import UNLIMITED, TopicSettings
from millstream.storage.files.directory import DataDirectory, open_directory
from millstream.storage.files.reserve import Reserve
from millstream.storage.files.skipped_commands import read_skipped
from millstream.storage.journal.journal import open_journal

log = logging.getLogger(__name__)

# The control log is kept whole: every node folds it from its first record.
CONTROL_SETTINGS = TopicSettings(retention_ms=UNLIMITED)


CONTROL_NAME = "(control log)"  # As `inspect` and `repair` call it.


class Phase(Enum):
    """Where a node is in its life."""

    BUILT = "built"
    STARTING = "starting"
    READY = "ready"
    STOPPING = "stopping"
    STOPPED = "stopped"  # In good order.
    FAILED = "failed"


class Event(Enum):
    RUN = "run"
    SETTLED = "settled"
    STOP_ASKED = "stop asked"
    CLOSED = "closed"
    BROKE = "broke"


TRANSITIONS: dict[tuple[Phase, Event], Phase] = {
    (Phase.BUILT, Event.RUN): Phase.STARTING,
    (Phase.STARTING, Event.SETTLED): Phase.READY,
    (Phase.STARTING, Event.STOP_ASKED): Phase.STOPPING,
    (Phase.READY, Event.STOP_ASKED): Phase.STOPPING,
    (Phase.STOPPING, Event.CLOSED): Phase.STOPPED,
    (Phase.STARTING, Event.BROKE): Phase.FAILED,
    (Phase.READY, Event.BROKE): Phase.FAILED,
    (Phase.STOPPING, Event.BROKE): Phase.FAILED,
}


class Node:
    """`run` it; use `topics` and `partitions` once it is `ready`; then `stop` it."""

    def __init__(
        self, config: Config, ports: Ports, directory: DataDirectory, policy: Policy
    ) -> None:
        me = NodeId(config.node_id)
        self.config = config
        self.clock = ports.clock
        self.entropy = ports.entropy
        self.threads = ports.threads
        self.metrics = Metrics()
        self.faults = Faults()
        self.phase = Phase.BUILT
        self.ready = asyncio.Event()
        self._are_logs_open = asyncio.Event()
        self._directory = directory
        self._stop_asked = asyncio.Event()
        self._reserve = Reserve(ports.files)
        journal = open_journal(
            ports.files,
            bytes_max=config.limits.journal_bytes_max,
            reserve=self._reserve,
            was_clean=directory.was_clean,
        )
        was_clean = directory.was_clean
        self.hub = Hub(me, ports, journal, config=config, metrics=self.metrics, was_clean=was_clean)
        control = self.hub.keep_now(
            CONTROL_LOG, config.voters, CONTROL_SETTINGS, name="(control log)"
        )
        _check_control_log(control, config.data_dir)
        state = State()
        self._defaults = TopicDefaults(me, config.topic_defaults, state.resources)
        self._hosting = Hosting(me, self.hub, self._defaults)
        self.hub.topic_name = partial(_topic_name, state.catalog)
        self._controller = Controller(
            control,
            state,
            ports.clock,
            self._hosting.applied,
            skipped={one.offset for one in read_skipped(ports.files, config.data_dir)},
        )
        gate = Gate(policy, self.metrics)
        self._open_services(gate, state.catalog, ports)
        self.repairs = Repairs(gate, state.catalog, self.hub, self.hub.topic_name)
        pump = self._delivering.pump
        observer = Observer(state.catalog, self.hub, self._coordinators, self._delaying, pump)
        self.metrics.watch(observer.samples)

    @property
    def cluster_id(self) -> str:
        return self._directory.cluster_id

    async def run(self) -> None:
        """Live until `stop`. Cancelling is pulling the plug: nothing is tidied up."""
        self._move(Event.RUN)
        try:
            async with asyncio.TaskGroup() as group:
                hub = group.create_task(self.hub.run())
                workers = [
                    group.create_task(work)
                    for work in (
                        self._controller.run(),
                        self._settle(),
                        self._with_open_logs(self._coordinators.run),
                        self._with_open_logs(self._transactions.run),
                        self._with_open_logs(self._pipeline.run),
                        self._with_open_logs(self._delaying.run),
                        self._with_open_logs(self._missing_topics.run),
                        self._with_open_logs(self._delivering.pump.run),
                        self._with_open_logs(self._background.run),
                        self.faults.run(),
                    )
                ]
                await self._stop_asked.wait()
                self._move(Event.STOP_ASKED)
                for worker in workers:
                    worker.cancel()
                self._delivering.pump.save(all_of_it=True)
                await self._finish_writing()
                hub.cancel()
            self._close()
            self._move(Event.CLOSED)
        except BaseException:
            self._move(Event.BROKE)
            raise
        finally:
            self.ready.clear()

    def stop(self) -> None:
        """Ask the node to stop in good order; `run` returns when it has."""
        self._stop_asked.set()

    def abandon(self) -> None:
        """After `run` was cut short: let the next node in this process have the directory."""
        self._directory.close()

    def _open_services(self, gate: Gate, catalog: Catalog, ports: Ports) -> None:
        """What the doors ask, and what keeps the broker's own books."""
        config = self.config
        self.topics = Topics(
            gate,
            self._controller,
            self.hub,
            config=config,
            clock=ports.clock,
            entropy=ports.entropy,
        )
        self._transactions = TransactionCoordinators(
            catalog,
            self.hub,
            self._internal_topics(ports),
            ProducerIds(Gate(Everyone(), self.metrics), self._controller),
            config=config,
            clock=ports.clock,
        )
        limits, threads = config.limits, ports.threads
        self._unpacking = Unpacking(threads, "read", limits=limits, metrics=self.metrics)
        self._pipeline = self._open_pipeline(gate, catalog, ports)
        self.partitions = Partitions(
            gate,
            self._controller,
            self.hub,
            config=config,
            clock=ports.clock,
            metrics=self.metrics,
            pipeline=self._pipeline,
            unpacking=self._unpacking,
        )
        self.producer_ids = ProducerIds(gate, self._controller)
        self.client_quotas = ClientQuotas(gate, self._controller, config.limits)
        self.resources = ResourceSettings(gate, self._controller, self._defaults, config)
        self.usage = Usage(self._controller.state.quotas, config.limits)
        self._open_groups(gate, catalog, ports)
        self._open_queues(gate, catalog, ports)

    def _open_groups(self, gate: Gate, catalog: Catalog, ports: Ports) -> None:
        """What members of groups ask, and transactions that commit for them."""
        config = self.config
        self._coordinators = Coordinators(
            catalog,
            self.hub,
            self._internal_topics(ports),
            config=config,
            clock=ports.clock,
            subscriptions=subscribed_topics,
            resources=self._controller.state.resources,
        )
        self.transactions = Transactions(
            gate,
            catalog,
            self._transactions,
            self._coordinators,
            config=config,
            clock=ports.clock,
        )
        self.batch_groups = BatchGroups(gate, self._transactions, config=config, clock=ports.clock)
        self.groups = Groups(
            gate,
            catalog,
            self._coordinators,
            limits=config.limits,
            clock=ports.clock,
            entropy=ports.entropy,
            check_transaction=self.transactions.check_offsets,
        )
        self.consumer_groups = ConsumerGroups(
            gate, catalog, self._coordinators, limits=config.limits, entropy=ports.entropy
        )

    def _open_queues(self, gate: Gate, catalog: Catalog, ports: Ports) -> None:
        """What doors publish with and are pushed by."""
        self._missing_topics = MissingTopics(self.topics, config=self.config)
        self.publisher = Publisher(
            gate,
            catalog,
            self.topics,
            self.partitions,
            self._missing_topics,
            config=self.config,
            defaults=self._defaults,
            clock=ports.clock,
        )
        self._delivering = open_deliveries(
            gate,
            catalog,
            self.hub,
            self.partitions,
            self._internal_topics(ports),
            self.writer_context,
            config=self.config,
            defaults=self._defaults,
            metrics=self.metrics,
            entropy=ports.entropy,
        )
        self.deliveries = self._delivering.deliveries
        self._background = BackgroundTasks()
        self.dead_letters = DeadLetters(
            gate,
            catalog,
            self.partitions,
            self._delivering.shards,
            self._delivering.dead_letter_writer,
            self._background,
            clock=ports.clock,
        )

    def _open_pipeline(self, gate: Gate, catalog: Catalog, ports: Ports) -> ProducePipeline:
        """What a batch goes through on its way in, and what waits there until it is due."""
        limits, clock, metrics, topics = (
            self.config.limits,
            ports.clock,
            self.metrics,
            self._internal_topics(ports),
        )
        self.unpacking = Unpacking(ports.threads, "produce", limits=limits, metrics=metrics)
        windows = Windows(catalog, self.hub, clock, self._unpacking)
        producer_ids = ProducerIds(Gate(Everyone(), metrics), self._controller)
        self.writer_context = WriterContext(catalog, self.hub, producer_ids, clock, windows.arrived)
        self._delaying = DelayedScheduler(
            catalog, self.hub, topics, self.writer_context, config=self.config
        )
        self.delayed = DelayedRecords(gate, catalog, self._delaying, windows)
        transactions = TransactionalWrites(
            self._transactions,
            clock,
            queued_max=limits.transaction_queued_batches_max,
            participants_max=limits.transaction_partitions_max,
        )
        splitter = BatchSplitter(
            windows, self._delaying, self.hub, limits=limits, clock=clock, metrics=metrics
        )
        return ProducePipeline(
            transactions,
            windows,
            self._delaying,
            topics,
            splitter,
            self.unpacking,
            limits=limits,
            clock=clock,
            metrics=metrics,
        )

    def _internal_topics(self, ports: Ports) -> Topics:
        """For topics that the broker itself needs: nobody's rights are asked."""
        return Topics(
            Gate(Everyone(), self.metrics),
            self._controller,
            self.hub,
            config=self.config,
            clock=ports.clock,
            entropy=ports.entropy,
        )

    async def _with_open_logs(self, run: Callable[[], Awaitable[None]]) -> None:
        """Begin when all logs are open: a log that is not here counts as deleted, or as lost."""
        await self._are_logs_open.wait()
        await run()

    async def _settle(self) -> None:
        await self.hub.led(CONTROL_LOG)
        await self._controller.folded()
        self._hosting.finish_folding(self._controller.state.catalog)
        await self.hub.opened()
        self._are_logs_open.set()
        await self.hub.settled()
        await self.threads.run(self._reserve.keep)
        self._move(Event.SETTLED)
        self.ready.set()
        log.info(
            "ready node=%d partitions=%d data_dir=%s",
            self.config.node_id,
            len(self.hub.replicas),
            self.config.data_dir if self.config.storage == "disk" else "(memory)",
        )

    async def _finish_writing(self) -> None:
        """Let those who wait for a sync have their answer, but not for ever."""
        try:
            async with asyncio.timeout(self.config.timing.stop_ms_max / 1000):
                await self.hub.commits.finish()
        except TimeoutError:
            log.warning("stopping with writes still unsynced")

    def _close(self) -> None:
        if self.hub.close():
            self._directory.mark_clean()
        self._directory.close()
        log.info("stopped node=%d", self.config.node_id)

    def _move(self, event: Event) -> None:
        self.phase = TRANSITIONS[self.phase, event]


def _check_control_log(control: Replica, data_dir: str) -> None:
    """Refuse to start without a command: topics would be missing that have records."""
    records = control.log.records
    for segment in [*records.sealed(), *filter(None, [records.active])]:
        work = records.verification(segment)
        if work is not None:
            work.carry_out()
            work.finish()
    damage = records.damage()
    if damage:
        raise StartupError(
            f"the control log is damaged: {damage[0].problem()}. Restore {data_dir} from a backup, "
            "or give the command up that stands there with: millstream repair --skip "
            f"'{CONTROL_NAME}/0@{damage[0].base_offset}' --data-dir {data_dir}"
        )


def _topic_name(catalog: Catalog, log_id: LogId) -> str:
    if log_id == CONTROL_LOG:
        return CONTROL_NAME
    try:
        return catalog.find_id(log_id.topic_id).name
    except UnknownTopic:
        return str(log_id)


def build_node(config: Config, ports: Ports, *, policy: Policy | None = None) -> Node:
    """Open the data directory and put a node together; raises `StartupError` with one sentence."""
    directory = open_directory(
        ports.files, config.data_dir, node_id=NodeId(config.node_id), entropy=ports.entropy
    )
    if not (directory.is_new or directory.was_clean):
        log.info(
            "the last stop was not in order: verifying what was not proven data_dir=%s",
            config.data_dir,
        )
    try:
        return Node(config, ports, directory, policy or Everyone())
    except BaseException:
        if directory.was_clean:
            # Nothing was changed yet. Without the marker the next start would take damage for a
            # torn write, and cut it off.
            directory.mark_clean()
        directory.close()
        raise


@asynccontextmanager
async def running(node: Node) -> AsyncIterator[Node]:
    """Run `node` for the length of a block, from ready to stopped in good order."""
    async with asyncio.TaskGroup() as group:
        life = group.create_task(node.run())
        ready = group.create_task(node.ready.wait())
        await asyncio.wait({life, ready}, return_when=asyncio.FIRST_COMPLETED)
        try:
            yield node
        finally:
            ready.cancel()
            node.stop()
