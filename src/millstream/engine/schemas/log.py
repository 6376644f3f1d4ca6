"""Folds `_schemas` into the state of the registry, and writes to it.

Nothing is loaded before the first request: a node whose clients have no schemas pays nothing.

Invariant: an id is in `_schemas` or at most the highest one in the control log, so that no id is
given twice, whatever was deleted and compacted meanwhile.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from millstream.codec.records import Record
from millstream.config import Config
from millstream.control.catalog import Catalog
from millstream.engine.ledgers.ledger import Entry
from millstream.engine.ledgers.shards import InternalTopicSpec, Shard, Shards
from millstream.engine.topics import Topics
from millstream.errors import CoordinatorLoading, NotCoordinator, RequestError, UnknownTopic
from millstream.internal_topics.registry import RegistryState
from millstream.internal_topics.schemas import decode_key, decode_value
from millstream.metrics import SCHEMAS, Sample
from millstream.names import SCHEMAS_TOPIC
from millstream.ports import Clock
from millstream.replication.hub import Hub
from millstream.replication.replica import Replica

if TYPE_CHECKING:
    from millstream.engine.schemas.copying import RegistryCopy

SETTINGS = {"cleanup_policy": "compact"}
# Another registry may have written the topic, with a producer that compresses.
UNPACKED_BYTES_MAX = 16 * 2**20
READY_WAIT_S = 0.005  # Between two looks at a partition that is being opened.
_EMPTY = RegistryState()  # Of a node without `_schemas`; nothing is ever applied to it.


class RegistryShard(Shard):
    """The one partition of `_schemas`, while this node leads it."""

    def __init__(self, replica: Replica, clock: Clock, given_ids: Mapping[str, int]) -> None:
        self.state = RegistryState()
        self._given_ids = given_ids
        super().__init__(replica, clock, unpacked_bytes_max=UNPACKED_BYTES_MAX)

    async def caught_up(self) -> None:
        """Wait until all that was written is folded; `NotLeader` if that is not to be known."""
        ledger = self.ledger
        while ledger.applied_offset < ledger.written_offset:
            await self._replica.committed(ledger.written_offset, None)
            await asyncio.sleep(0)

    def _apply(self, record: Record) -> None:
        key = decode_key(record.key)
        if key is not None:
            self.state.apply(key, decode_value(key, record.value))

    def _check(self, entry: Entry) -> None:
        key = decode_key(entry.key)
        if key is None:
            raise ValueError("a record without a key of the registry")
        decode_value(key, entry.value)

    def _restore(self) -> Iterator[None]:
        for context, highest in self._given_ids.items():
            self.state.raise_id(context, highest)
        yield

    def _loaded(self) -> None:
        return

    def _folded(self) -> None:
        return

    def _close(self) -> None:
        return


class RegistryLog:
    def __init__(
        self,
        catalog: Catalog,
        hub: Hub,
        topics: Topics,
        given_ids: Mapping[str, int],
        *,
        config: Config,
        clock: Clock,
    ) -> None:
        """`topics` creates the topic on behalf of the broker: its gate must admit it. `given_ids`
        are the highest ids in the control log, by context."""
        self._catalog = catalog
        self.given_ids = given_ids
        self.copy: RegistryCopy | None = None  # Of what another node leads, in a cluster.

        def begin(replica: Replica) -> RegistryShard:
            return RegistryShard(replica, clock, given_ids)

        spec = InternalTopicSpec(SCHEMAS_TOPIC, 1, SETTINGS)
        self._shards = Shards(spec, catalog, hub, topics, begin, config=config)

    def state_now(self) -> RegistryState | None:
        """The state, if nothing has to be waited for."""
        if not self._exists():
            return _EMPTY
        try:
            return self._shards.find_now("").state
        except RequestError:
            return None

    def recent_state(self) -> RegistryState | None:
        """The same, which may lack what another node has committed a moment ago."""
        state = self.state_now()
        if state is None and self.copy is not None:
            return self.copy.recent(self._topic_id())
        return state

    async def state(self) -> RegistryState:
        """The state of all that is committed; loads it first, in steps.

        Raises `NotCoordinator` or `CoordinatorUnavailable` while no leader is known.
        """
        if not self._exists():
            return _EMPTY
        try:
            return (await self._shard()).state
        except NotCoordinator as problem:
            if self.copy is None or problem.leader is None:
                raise
            return await self.copy.current(problem.leader, self._topic_id())

    async def settled(self) -> RegistryState:
        """The state with all that was written, also by requests that were cancelled meanwhile.

        For changes: raises `NotCoordinator` or `CoordinatorUnavailable` where another node leads.
        """
        if not self._exists():
            return _EMPTY
        shard = await self._shard()
        await shard.caught_up()
        return shard.state

    async def write(self, entries: Sequence[Entry]) -> RegistryState:
        """Commit records and fold them; creates the topic with the first one."""
        shard = await self._shard()
        await shard.ledger.propose(entries)
        return shard.state

    async def confirmed_replica(self, topic_id: UUID) -> Replica:
        """The replica that leads the topic, proven to know all that was committed before."""
        if not self._exists() or topic_id != self._topic_id():
            raise UnknownTopic(SCHEMAS_TOPIC)
        await self._shard()
        return (await self._shards.find_confirmed("")).replica

    async def _shard(self) -> RegistryShard:
        while True:
            try:
                return await self._shards.find("")
            except CoordinatorLoading:
                self._shards.load_some()
                await asyncio.sleep(0 if self._shards.is_loading else READY_WAIT_S)

    @property
    def is_loading(self) -> bool:
        return self._shards.is_loading

    def samples(self) -> Iterator[Sample]:
        state = self.state_now()
        if state is not None:
            yield Sample(SCHEMAS, (), state.id_count)

    def _topic_id(self) -> UUID:
        return self._catalog.find(SCHEMAS_TOPIC).topic_id

    def _exists(self) -> bool:
        try:
            return not self._catalog.find(SCHEMAS_TOPIC).is_view
        except UnknownTopic:
            return False
