"""Folds an internal topic into state, one `Shard` for each partition that this node leads.

Owns the topic, which is created on first use, and the life of its shards: adopted, loaded, dropped.
What the records mean is the shard's own.

Invariant: a shard lives as long as one term of leadership; its state is dropped with it.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Generic, NamedTuple, TypeVar

from millstream.codec.records import Record
from millstream.config import Config
from millstream.control.catalog import Catalog, Topic
from millstream.engine.ledgers.ledger import UNPACKED_BYTES_MAX, Entry, Ledger, Transactional
from millstream.engine.topics import Topics
from millstream.errors import (
    CoordinatorLoading,
    CoordinatorUnavailable,
    NotCoordinator,
    NotLeader,
    RequestError,
    StorageError,
    StorageUnavailable,
    TopicExists,
    UnknownTopic,
)
from millstream.internal_topics.groups import partition_for
from millstream.model import SYSTEM_SESSION, LogId, NodeId, TopicPartition
from millstream.ports import Clock
from millstream.replication.hub import Hub
from millstream.replication.replica import Replica

_log = logging.getLogger(__name__)

REPLICAS = 3  # Or the number of nodes, if that is less.
ADOPT_INTERVAL_MS = 1_000  # How long a partition may be led here before it is loaded.
# Small enough that a step of loading holds up the event loop for a few milliseconds at most.
LOAD_RECORDS = 100
SKIPPED_NAMED_MAX = 10  # Unreadable records of a shard that the log names; the others are counted.


class Shard(ABC):
    """One partition of an internal topic, while this node leads it."""

    def __init__(
        self,
        replica: Replica,
        clock: Clock,
        *,
        transactions: Transactional[None] | None = None,
        unpacked_bytes_max: int = UNPACKED_BYTES_MAX,
    ) -> None:
        self.ledger: Ledger[None] = Ledger(
            replica,
            clock,
            self._apply,
            transactions=transactions,
            unreadable=self._skip,
            check=self._check,
            unpacked_bytes_max=unpacked_bytes_max,
        )
        self.skipped_count = 0  # Records that are not ours, or of a later version.
        # Set by `Shards`, which knows the topic's name, before anything is loaded.
        self.topic = ""
        self.count_skipped: Callable[[], None] = lambda: None
        self.is_loaded = False
        self.is_gone = False
        self._replica = replica
        self._epoch = replica.core.epoch
        self._loading = self._load()
        # Compaction must not overtake the fold.
        replica.log.hold()
        replica.watch(self._follow)

    @property
    def replica(self) -> Replica:
        return self._replica

    def load_some(self) -> None:
        """Take a step of loading, of a few milliseconds."""
        if self.is_loaded or self.is_gone:
            return
        try:
            next(self._loading)
        except StopIteration:
            self.is_loaded = True
            self._replica.log.release()
            self._loaded()
        except StorageError as problem:
            self._replica.refused(problem)
            # A generator that raised is at its end, which must not be taken for the log's.
            self._loading = self._load()

    # -- what a subclass defines -------------------------------------------------------------------

    @abstractmethod
    def _apply(self, record: Record) -> None:
        """Fold the next committed record; raise one of `UNREADABLE`, and change nothing, if it
        cannot be read."""

    @abstractmethod
    def _check(self, entry: Entry) -> None:
        """Raise one of `UNREADABLE` for an entry that `_apply` could not read."""

    @abstractmethod
    def _restore(self) -> Iterator[None]:
        """Build state besides the fold, in steps; called once, after the last record.

        It reads nothing from storage.
        """

    @abstractmethod
    def _loaded(self) -> None:
        """The shard is loaded: unfinished work can go on."""

    @abstractmethod
    def _folded(self) -> None:
        """More is committed and applied."""

    @abstractmethod
    def _close(self) -> None:
        """Leadership is over: refuse the requests that wait."""

    # -- loading and dropping --------------------------------------------------------------------

    def _skip(self, record: Record, problem: Exception) -> None:
        """Skip a record that cannot be read, so that all others can be used."""
        self.skipped_count += 1
        self.count_skipped()
        if self.skipped_count <= SKIPPED_NAMED_MAX:
            _log.warning(
                "skipped a record that cannot be read topic=%s partition=%d offset=%d problem=%s",
                self.topic,
                self._replica.id.partition,
                record.offset,
                problem,
            )

    def _load(self) -> Iterator[None]:
        while not self.ledger.fold(records_max=LOAD_RECORDS):
            yield
        yield from self._restore()

    def _follow(self) -> None:
        """The replica has changed."""
        if self.is_gone:
            return
        replica = self._replica
        if not replica.is_leader or replica.is_gone or replica.core.epoch != self._epoch:
            self._forget()
        elif self.is_loaded:
            try:
                self.ledger.fold()
            except StorageError as problem:
                if not self.ledger.retry(problem, self._follow):
                    replica.refused(problem)
                return
            self._folded()

    def _forget(self) -> None:
        self.is_gone = True
        if not self.is_loaded:
            self._replica.log.release()
        self._replica.unwatch(self._follow)
        self._close()
        self.ledger.close(NotLeader(self._replica.id, self._replica.leader))

    def _moved(self, key: str) -> RequestError:
        failure = self._replica.failure
        if failure is not None:
            return StorageUnavailable(str(failure))
        return NotCoordinator(key, self._replica.leader)


S = TypeVar("S", bound=Shard)


class InternalTopicSpec(NamedTuple):
    """The settings that the topic is created with."""

    name: str
    partition_count: int
    settings: Mapping[str, str]


class Shards(Generic[S]):
    def __init__(
        self,
        topic: InternalTopicSpec,
        catalog: Catalog,
        hub: Hub,
        topics: Topics,
        begin: Callable[[Replica], S],
        *,
        config: Config,
    ) -> None:
        """`topics` creates the topic on behalf of the broker: its gate must admit it."""
        self._topic_spec = topic
        self._catalog = catalog
        self._hub = hub
        self._topics = topics
        self._begin = begin
        self._config = config
        self._led: dict[LogId, S] = {}

    def __iter__(self) -> Iterator[S]:
        """Every shard here, loaded or not."""
        return iter([shard for shard in self._led.values() if not shard.is_gone])

    @property
    def is_loading(self) -> bool:
        return any(not shard.is_loaded for shard in self)

    async def node_of(self, key: str) -> NodeId:
        """The node that leads the shard of `key`, as far as it is known here."""
        topic = await self._topic(key)
        partition = partition_for(key, topic.partition_count)
        leadership, log_id = self._hub.leadership, topic.log(partition)
        await leadership.find([log_id])
        leader = leadership.of(log_id).leader
        if leader is None:
            raise CoordinatorUnavailable(key)
        return leader

    async def home_of(self, key: str) -> TopicPartition:
        """The partition that holds the records of `key`."""
        topic = await self._topic(key)
        return TopicPartition(topic.name, partition_for(key, topic.partition_count))

    def home_now(self, key: str) -> TopicPartition:
        """The same without waiting for anything."""
        topic = self._topic_now(key)
        return TopicPartition(topic.name, partition_for(key, topic.partition_count))

    async def find(self, key: str) -> S:
        """The shard of `key`, if it is here and has loaded; creates the topic if there is none."""
        topic = await self._topic(key)
        await self._hub.opened([topic.log(partition_for(key, topic.partition_count))])
        return self.find_now(key)

    async def find_confirmed(self, key: str) -> S:
        """The shard of `key`, proven to hold all that was committed before this call."""
        shard = await self.find(key)
        if not await self._hub.links.confirmed(shard.replica) or shard.is_gone:
            raise self._absence(key, shard.replica.id)
        return shard

    def find_now(self, key: str) -> S:
        """The same without waiting for anything."""
        topic = self._topic_now(key)
        log_id = topic.log(partition_for(key, topic.partition_count))
        shard = self._adopt(log_id)
        if shard is None:
            raise self._absence(key, log_id)
        if not shard.is_loaded:
            raise CoordinatorLoading(key)
        return shard

    def all_here(self) -> list[S]:
        """Every shard on this node; `CoordinatorLoading` if one of them is not ready."""
        self.adopt()
        if self.is_loading:
            raise CoordinatorLoading("*")
        return list(self)

    def adopt(self) -> None:
        """Begin what this node has come to lead, and drop what it leads no more."""
        self._led = {at: shard for at, shard in self._led.items() if not shard.is_gone}
        try:
            topic = self._catalog.find(self._topic_spec.name)
        except UnknownTopic:
            return
        for partition in range(topic.partition_count):
            self._adopt(topic.log(partition))

    def load_some(self) -> None:
        for shard in self:
            shard.load_some()

    # -- parts -----------------------------------------------------------------------------------

    def _topic_now(self, key: str) -> Topic:
        try:
            return self._catalog.find(self._topic_spec.name)
        except UnknownTopic:
            raise CoordinatorUnavailable(key) from None

    async def _topic(self, key: str) -> Topic:
        """The topic, created if it does not exist."""
        spec = self._topic_spec
        try:
            return self._catalog.find(spec.name)
        except UnknownTopic:
            pass
        try:
            return await self._topics.create(
                SYSTEM_SESSION,
                spec.name,
                partitions=spec.partition_count,
                replicas=min(REPLICAS, self._topics.machine_count),
                settings=spec.settings,
            )
        except TopicExists:
            return self._catalog.find(spec.name)
        except NotLeader as problem:
            raise CoordinatorUnavailable(key) from problem

    def _adopt(self, log_id: LogId) -> S | None:
        """The shard of a partition, begun if this node has come to lead it."""
        known = self._led.get(log_id)
        if known is not None and not known.is_gone:
            return known
        replica = self._hub.replicas.get(log_id)
        if replica is None or not replica.is_leader or not replica.is_ready:
            return None
        shard = self._begin(replica)
        shard.topic = self._topic_spec.name
        shard.count_skipped = self._count_skipped
        self._led[log_id] = shard
        shard.load_some()  # Most often one step is enough.
        return None if shard.is_gone else shard

    def _count_skipped(self) -> None:
        self._hub.count_unreadable(self._topic_spec.name)

    def _absence(self, key: str, log_id: LogId) -> RequestError:
        problem = self._hub.damaged.get(log_id)
        replica = self._hub.replicas.get(log_id)
        if replica is not None:
            problem = replica.failure or problem
        if problem is not None:
            return StorageUnavailable(str(problem))
        if self._hub.is_opening(log_id) or (replica is not None and replica.is_leader):
            return CoordinatorLoading(key)
        return NotCoordinator(key, self._hub.leadership.of(log_id).leader)
