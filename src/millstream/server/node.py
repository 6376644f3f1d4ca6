"""A node: its storage, its control log and its engine, from start to stop.

Owns the phases of a node and the order in which its parts start and stop; the services are built in
`engine.assembly`. A node alone is a cluster of one: it elects itself like any other. Its listeners
open once it is ready: then the high watermark of each partition is known, and no client sees one
that is too low.
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
from millstream.engine.assembly import Engine, Foundation, build_engine
from millstream.engine.controller import Controller
from millstream.engine.gate import Everyone, Gate, Policy
from millstream.engine.hosting import Hosting
from millstream.engine.running_config import RunningConfig
from millstream.engine.topic_defaults import TopicDefaults
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

_log = logging.getLogger(__name__)

# The control log is kept whole: every node folds it from its first record.
CONTROL_SETTINGS = TopicSettings(retention_ms=UNLIMITED)
CONTROL_NAME = "(control log)"  # As `inspect` and `repair` call it.


class Phase(Enum):
    """The phases of a node."""

    BUILT = "built"
    STARTING = "starting"
    READY = "ready"
    STOPPING = "stopping"
    STOPPED = "stopped"  # In good order.
    FAILED = "failed"


class Event(Enum):
    RUN = "run"
    READY = "ready"
    STOP_ASKED = "stop asked"
    CLOSED = "closed"
    BROKE = "broke"


TRANSITIONS: dict[tuple[Phase, Event], Phase] = {
    (Phase.BUILT, Event.RUN): Phase.STARTING,
    (Phase.STARTING, Event.READY): Phase.READY,
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
        control = self.hub.keep_now(CONTROL_LOG, config.voters, CONTROL_SETTINGS, name=CONTROL_NAME)
        _check_control_log(control, config.data_dir)
        state = State()
        defaults = TopicDefaults(me, config.topic_defaults, state.resources)
        self.running_config = RunningConfig(me, config, state.resources)
        self.running_config.watch(self.hub.reconfigure)
        self._hosting = Hosting(me, self.hub, defaults, self.running_config)
        self.hub.topic_name = partial(_topic_name, state.catalog)
        self._controller = Controller(
            control,
            state,
            ports.clock,
            self._hosting.applied,
            skipped={command.offset for command in read_skipped(ports.files, config.data_dir)},
        )
        foundation = Foundation(
            Gate(policy, self.metrics),
            self._controller,
            self.hub,
            config,
            ports,
            self.metrics,
            defaults,
            self.running_config,
        )
        self._engine = engine = build_engine(foundation, subscriptions=subscribed_topics)
        self._offer(engine)
        observer = Observer(
            state.catalog,
            self.hub,
            engine.group_coordinators,
            engine.delayed_scheduler,
            engine.push.pump,
        )
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
                        self._become_ready(),
                        *map(self._with_open_logs, self._engine.workers()),
                        self.faults.run(),
                    )
                ]
                await self._stop_asked.wait()
                self._move(Event.STOP_ASKED)
                for worker in workers:
                    worker.cancel()
                self._engine.push.pump.save(all_of_it=True)
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

    def _offer(self, engine: Engine) -> None:
        """Make the services of the engine attributes of the node, which listeners call."""
        self.topics = engine.topics
        self.partitions = engine.partitions
        self.publisher = engine.publisher
        self.producer_ids = engine.producer_ids
        self.transactions = engine.transactions
        self.batch_groups = engine.batch_groups
        self.groups = engine.groups
        self.consumer_groups = engine.consumer_groups
        self.delayed = engine.delayed
        self.deliveries = engine.push.deliveries
        self.dead_letters = engine.dead_letters
        self.client_quotas = engine.client_quotas
        self.resources = engine.resources
        self.usage = engine.usage
        self.repairs = engine.repairs
        self.unpacking = engine.unpacking

    async def _with_open_logs(self, run: Callable[[], Awaitable[None]]) -> None:
        """Begin when all logs are open: a log that is not here counts as deleted, or as lost."""
        await self._are_logs_open.wait()
        await run()

    async def _become_ready(self) -> None:
        await self.hub.led(CONTROL_LOG)
        await self._controller.folded()
        self._hosting.finish_folding(self._controller.state.catalog)
        await self.hub.opened()
        self._are_logs_open.set()
        await self.hub.ready()
        await self.threads.run(self._reserve.keep)
        self._move(Event.READY)
        self.ready.set()
        _log.info(
            "ready node=%d partitions=%d data_dir=%s",
            self.config.node_id,
            len(self.hub.replicas),
            self.config.data_dir if self.config.storage == "disk" else "(memory)",
        )

    async def _finish_writing(self) -> None:
        """Let requests that wait for a sync be answered, for `stop_ms_max` at most."""
        try:
            async with asyncio.timeout(self.config.timing.stop_ms_max / 1000):
                await self.hub.commits.finish()
        except TimeoutError:
            _log.warning("stopping with writes still unsynced")

    def _close(self) -> None:
        # Logs that this life has not opened are as the last one left them: not in order, unless
        # that one ended cleanly. A follower may stop before it knows of all its topics.
        unopened = set(self.hub.logs_on_disk()) - self.hub.replicas.keys()
        if self.hub.close() and (self._directory.was_clean or not unopened):
            self._directory.mark_clean()
        self._directory.close()
        _log.info("stopped node=%d", self.config.node_id)

    def _move(self, event: Event) -> None:
        self.phase = TRANSITIONS[self.phase, event]


def _check_control_log(control: Replica, data_dir: str) -> None:
    """Refuse to start without a command: topics would be missing that have records."""
    log = control.log
    for segment in [*log.sealed(), *filter(None, [log.active])]:
        work = log.verification(segment)
        if work is not None:
            work.run()
            work.finish()
    damage = log.damage()
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
        _log.info(
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
