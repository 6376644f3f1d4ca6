"""A node: its storage, its control log and its engine, from start to stop.

Owns the phases of a node and the order in which its parts start and stop; the services are built in
`engine.assembly`. A node alone is a cluster of one: it elects itself like any other. Its listeners
open once it is ready: then the high watermark of each partition is known, and no client sees one
that is too low.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any

from millstream import __version__
from millstream.config import Config
from millstream.control.catalog import Catalog
from millstream.control.state import State
from millstream.engine.access.authentication import Authentication
from millstream.engine.access.first_user import make_first_user
from millstream.engine.access.logins import Logins
from millstream.engine.access.users import Users
from millstream.engine.assembly import Engine, Foundation, build_engine
from millstream.engine.checkpoints.checkpoint import remove_old_checkpoint
from millstream.engine.cluster.active_controller import ActiveController
from millstream.engine.cluster.admin import ClusterAdmin
from millstream.engine.cluster.copying import Copying
from millstream.engine.cluster.draining import Draining
from millstream.engine.cluster.leaders import LeaderNews
from millstream.engine.cluster.members import Members
from millstream.engine.cluster.peer_calls import PeerCalls
from millstream.engine.cluster.proposals import Proposals
from millstream.engine.cluster.upgrading import check_level
from millstream.engine.controller import Controller
from millstream.engine.encryption import check_encryption
from millstream.engine.gate import Everyone, Policy
from millstream.engine.hosting import Hosting
from millstream.engine.running_config import RunningConfig
from millstream.engine.topic_defaults import TopicDefaults
from millstream.errors import StartupError, UnknownTopic
from millstream.metrics import Metrics
from millstream.model import CONTROL_LOG, LastStop, LogId, NodeId, replica_id
from millstream.names import CONTROL_LOG_NAME
from millstream.ports import Ports
from millstream.protocols.http.operate.history import History
from millstream.protocols.kafka.consumer_metadata import subscribed_topics
from millstream.replication.hub import Hub
from millstream.replication.replica import Replica
from millstream.server.faults import Faults
from millstream.server.guarding import open_gate, open_recorder, open_rights, open_tracer
from millstream.server.keys import begin_keyring, check_keyring
from millstream.server.listener_specs import listener_specs
from millstream.server.monitoring.observing import watch_node
from millstream.settings import UNLIMITED, TopicSettings
from millstream.storage.files.directory import DataDirectory, check_whole, open_directory
from millstream.storage.files.membership import Membership, read_membership
from millstream.storage.files.reserve import Reserve
from millstream.storage.files.skipped_commands import read_skipped
from millstream.storage.journal.journal import open_journal

if TYPE_CHECKING:
    from millstream.engine.audit.recorder import Recorder
    from millstream.storage.sealing.keyring import Keyring

_log = logging.getLogger(__name__)

# The control log is kept whole: every node folds it from its first record.
CONTROL_SETTINGS = TopicSettings(retention_ms=UNLIMITED)


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
        self,
        config: Config,
        ports: Ports,
        directory: DataDirectory,
        policy: Policy | None,
        keyring: "Keyring | None" = None,
        membership: Membership | None = None,
    ) -> None:
        me = NodeId(config.node_id)
        self.config = config
        self.clock = ports.clock
        self.entropy = ports.entropy
        self.threads = ports.threads
        self.metrics = Metrics()
        self.history = History()
        self.faults = Faults()
        self.phase = Phase.BUILT
        self.ready = asyncio.Event()
        self._are_logs_open = asyncio.Event()
        self._directory = directory
        self._stop_asked = asyncio.Event()
        self._reserve = Reserve(ports.files)
        self.keyring = keyring
        self.hub = self._open_storage(ports, directory)
        control = self._open_control_log(membership)
        _check_control_log(control, config.data_dir)
        state = State()
        defaults = TopicDefaults(me, config.topic_defaults, state.resources)
        self.running_config = RunningConfig(me, config, state.resources)
        self.running_config.watch(self.hub.reconfigure)
        recorder = open_recorder(config, ports, self.metrics)
        self.tracer = open_tracer(config, directory.cluster_id, self.metrics)
        self._hosting = Hosting(me, self.hub, defaults, self.running_config)
        self.hub.topic_name = partial(_topic_name, state.catalog)
        peers = PeerCalls(ports.calls)
        self._controller = self._follow_control_log(control, state, ports, peers, recorder)
        rights = open_rights(config, self._controller) if policy is None else None
        foundation = Foundation(
            open_gate(policy or rights or Everyone(), self.metrics, recorder, rights),
            self._controller,
            self.hub,
            config,
            ports,
            self.metrics,
            defaults,
            self.running_config,
            rights,
            recorder,
            directory.cluster_id,
            peers,
            self.tracer,
        )
        self._open_cluster(foundation, peers, membership)
        self._open_access(foundation)
        self._engine = build_engine(foundation, subscriptions=subscribed_topics)
        self._offer(self._engine)
        self.group_lags = watch_node(
            self.metrics, state.catalog, self.hub, self._engine, ports.clock, config
        )

    def _open_storage(self, ports: Ports, directory: DataDirectory) -> Hub:
        journal = open_journal(
            ports.files,
            bytes_max=self.config.limits.journal_bytes_max,
            reserve=self._reserve,
            was_clean=directory.was_clean,
        )
        return Hub(
            NodeId(self.config.node_id),
            ports,
            journal,
            config=self.config,
            metrics=self.metrics,
            last_stop=LastStop(directory.was_clean, directory.clean_ends),
            keyring=self.keyring,
        )

    def _open_control_log(self, membership: Membership | None) -> Replica:
        """A newcomer observes: it asks those that voted when it joined."""
        config = self.config
        founding = config.voters if membership is None else membership.founders or config.voters
        founders = frozenset(replica_id(NodeId(node)) for node in founding)
        return self.hub.keep_now(CONTROL_LOG, founders, CONTROL_SETTINGS, name=CONTROL_LOG_NAME)

    def _follow_control_log(
        self,
        control: Replica,
        state: State,
        ports: Ports,
        peers: PeerCalls,
        recorder: "Recorder | None",
    ) -> Controller:
        skipped = read_skipped(ports.files, self.config.data_dir)
        return Controller(
            control,
            state,
            ports.clock,
            self._hosting.applied,
            skipped={command.offset for command in skipped},
            keeps_outcomes=recorder is not None,
            proposals=Proposals(NodeId(self.config.node_id), ports.entropy.getrandbits(64), peers),
            levels=ports.levels,
            node_id=NodeId(self.config.node_id),
        )

    def _open_cluster(
        self, foundation: Foundation, peers: PeerCalls, membership: Membership | None
    ) -> None:
        """Make what knows the other nodes."""
        ports, hub = foundation.ports, self.hub
        LeaderNews(hub, ports.links, peers, self._controller.state.catalog)
        self.members = Members(
            self._controller, ports, self.config, hub, peers, membership, foundation.cluster_id
        )
        self._draining = Draining(self.members, hub, ports.links, peers)
        known = (self.members, self._controller, hub, self.config, peers, ports.links)
        self._active_controller = ActiveController(*known, draining=self._draining)
        self._copying = Copying(self.members, hub, ports, peers, self.metrics)
        self.cluster = ClusterAdmin(
            foundation.gate, self._controller, self.members, self._active_controller
        )

    def _open_access(self, foundation: Foundation) -> None:
        """Make what knows users and checks their logins."""
        config, ports = foundation.config, foundation.ports
        self._ports = ports
        self.calls = ports.calls
        self.secrets = ports.secrets
        self.authentication = Authentication(
            foundation.controller.state.access, config, ports, self.metrics, foundation.recorder
        )
        self.users = Users(foundation.gate, self._controller, config, ports, self.authentication)
        specs = listener_specs(config)
        self._has_logins = any(spec.authenticates for spec in specs)
        self.logins = Logins(
            self.authentication,
            ports,
            is_required=any(s.transport.has_sasl for s in specs if "http" in s.protocols),
        )

    @property
    def has_reserve(self) -> bool:
        """Whether the space for a start is still set aside; it is, once the node is ready."""
        return self.phase is not Phase.READY or self._reserve.is_kept

    def are_coordinators_loading(self) -> bool:
        return self._engine.group_coordinators.is_loading

    def is_registry_loading(self) -> bool:
        log = self._engine.registry_log
        return log is not None and log.is_loading

    # Any: the result of the work, which its future has.
    def run_in_background(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Future[Any]":
        """Run work to its end, whatever becomes of the request that began it."""
        return self._engine.background.begin(work)

    def delayed_count(self) -> int:
        return self._engine.delayed_scheduler.delayed_count

    def delayed_late_ms(self) -> int:
        """How long the first delayed record has been due."""
        return self._engine.delayed_scheduler.late_ms()

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
                        remove_old_checkpoint(self._ports),
                        *map(self._with_open_logs, self._engine.workers()),
                        self.faults.run(),
                        self._with_open_logs(self._active_controller.run),
                        self._with_open_logs(self._copying.run),
                        *([self.authentication.run()] if self._has_logins else []),
                    )
                ]
                await self._stop_asked.wait()
                self._move(Event.STOP_ASKED)
                for worker in workers:
                    worker.cancel()
                self._engine.push.pump.save(all_of_it=True)
                await self._end_trail()
                await self._finish_writing()
                hub.cancel()
            if self.tracer is not None:
                await self.threads.run(self.tracer.close)
            self._close()
            self._move(Event.CLOSED)
        except BaseException:
            self._move(Event.BROKE)
            raise
        finally:
            self.ready.clear()
            if self.tracer is not None:
                self.tracer.stop()

    def stop(self) -> None:
        """Ask the node to stop in good order; `run` returns when it has."""
        self._stop_asked.set()

    async def hand_over(self) -> None:
        """Let other nodes of the cluster lead before this one stops, for `stop_ms_max` at most."""
        if self.members.membership is None or not self.ready.is_set():
            return
        if self.audit.writer is not None:
            await self.audit.writer.flush()  # While this node leads its part of the trail.
        await self._draining.leave(self.config.timing.stop_ms_max / 1000)

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
        self.encryption = engine.encryption
        self.checkpoints = engine.checkpoints
        self.access_rules = engine.access_rules
        self.audit = engine.audit
        self.unpacking = engine.unpacking
        self.schemas = engine.schemas
        self.schema_changes = engine.schema_changes

    async def _with_open_logs(self, run: Callable[[], Awaitable[None]]) -> None:
        """Begin when all logs are open: a log that is not here counts as deleted, or as lost."""
        await self._are_logs_open.wait()
        await run()

    async def _become_ready(self) -> None:
        await self.members.open_links()
        await self.hub.led(CONTROL_LOG)
        await self._controller.caught_up()
        check_encryption(self._controller.state.nodes, self.config.node_id, self.hub.keyring)
        self._hosting.finish_folding(self._controller.state.catalog)
        await self.hub.opened()
        self._are_logs_open.set()
        await self.hub.ready()
        await self.threads.run(self._reserve.keep)
        if self.audit.writer is not None:
            await self.audit.writer.read_key()
        if self._has_logins:
            await self.authentication.read_keys()
            await make_first_user(self.users, self.config, self._ports)
        self._move(Event.READY)
        if self.audit.recorder is not None:
            self.audit.recorder.note_system("system.start", {"version": __version__})
        self.ready.set()
        _log.info(
            "ready node=%d partitions=%d data_dir=%s",
            self.config.node_id,
            self.hub.log_count,
            self.config.data_dir if self.config.storage == "disk" else "(memory)",
        )

    async def _end_trail(self) -> None:
        """Write the last events, for `stop_ms_max` at most."""
        writer, recorder = self.audit.writer, self.audit.recorder
        if writer is None or recorder is None or not self.ready.is_set():
            return
        recorder.note_system("system.stop", {})
        with suppress(TimeoutError):
            async with asyncio.timeout(self.config.timing.stop_ms_max / 1000):
                await writer.flush(is_last=True)

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
        unopened = set(self.hub.logs_on_disk()) - self.hub.replicas.keys() - set(self.hub.resting)
        before = self._directory.clean_ends
        ends = {name: before[name] for log_id in unopened if (name := str(log_id)) in before}
        ends |= self.hub.log_ends()
        if self.hub.close() and (self._directory.was_clean or not unopened):
            self._directory.mark_clean(ends)
        self._directory.close()
        _log.info("stopped node=%d", self.config.node_id)

    def _move(self, event: Event) -> None:
        self.phase = TRANSITIONS[self.phase, event]


def _check_control_log(control: Replica, data_dir: str) -> None:
    """Refuse to start without a command: topics would be missing that have records."""
    log = control.log
    for segment in [*log.sealed(), *filter(None, [log.active])]:
        # Seals are checked here: a reader would find a wrong one only after the start.
        works = [log.verification(segment)]
        if log.sealer is not None:
            works.append(log.verification(segment, again=True))
        for work in filter(None, works):
            work.run()
            work.finish()
    damage = log.damage()
    if damage:
        raise StartupError(
            f"the control log is damaged: {damage[0].problem()}. Restore {data_dir} from a backup, "
            "or give the command up that stands there with: millstream repair --skip "
            f"'{CONTROL_LOG_NAME}/0@{damage[0].base_offset}' --data-dir {data_dir}"
        )


def _topic_name(catalog: Catalog, log_id: LogId) -> str:
    if log_id == CONTROL_LOG:
        return CONTROL_LOG_NAME
    try:
        return catalog.find_id(log_id.topic_id).name
    except UnknownTopic:
        return str(log_id)


def build_node(config: Config, ports: Ports, *, policy: Policy | None = None) -> Node:
    """Open the data directory and put a node together; raises `StartupError` with one sentence."""
    membership = read_membership(ports.files, config.data_dir)
    if membership is not None:
        check_level(membership.level, ports.levels)
        check_whole(ports.files, config.data_dir, membership)
        config = replace(config, node_id=membership.node_id)
    check_keyring(config, ports)
    directory = open_directory(
        ports.files,
        config.data_dir,
        node_id=NodeId(config.node_id),
        entropy=ports.entropy,
        cluster_id=None if membership is None else membership.cluster_id,
    )
    if not (directory.is_new or directory.was_clean):
        _log.info(
            "the last stop was not in order: verifying what was not proven data_dir=%s",
            config.data_dir,
        )
    try:
        keyring = begin_keyring(config, ports, directory)
        return Node(config, ports, directory, policy, keyring, membership)
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
