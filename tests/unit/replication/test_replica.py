"""One partition on a node: what an append promises when the disk gives out around it."""

import asyncio
from collections.abc import Callable
from random import Random
from uuid import UUID

import pytest

from millstream.codec.batch import read_header
from millstream.errors import (
    DamagedLog,
    NotEnoughReplicasAfterAppend,
    NotLeader,
    RequestError,
    StorageUnavailable,
    TimedOut,
)
from millstream.metrics import Metrics
from millstream.model import (
    NEVER_VOTED,
    Appended,
    Boundary,
    Epoch,
    LogId,
    NodeId,
    Position,
    ReplicaId,
)
from millstream.ports import PeerMessage
from millstream.raft.core import Core
from millstream.raft.member import Timing
from millstream.raft.messages import Fetch, Hint, PreVoteGranted, Reset, VoteGranted
from millstream.raft.roles import Role
from millstream.replication.consensus_log import ConsensusLog
from millstream.replication.group_commit import GroupCommit
from millstream.replication.replica import ACKNOWLEDGE_S_MAX, Replica
from millstream.server.system.real_ports import NoLinks
from millstream.settings import TopicSettings
from millstream.storage.files.memory import MemoryFiles
from millstream.storage.journal.journal import open_journal
from millstream.storage.log.cache import LogCache
from millstream.storage.log.recovery import open_log
from tests.support.nodes import FixedClock, batch, fake_ports
from tests.support.virtual_loop import run

LOG = LogId(UUID(int=7), 0)
ONE, TWO, THREE = ReplicaId(1), ReplicaId(2), ReplicaId(3)
WAITERS_MAX = 9


class LossyLinks(NoLinks):
    """Loses every message: the tests play the followers."""

    def send(self, node: NodeId, message: PeerMessage) -> None:
        return


def leading_replica(
    *, voters: frozenset[ReplicaId] = frozenset({ONE, TWO}), settings: TopicSettings | None = None
) -> Replica:
    """A leader, one of whose followers waits for news."""
    files = MemoryFiles()
    journal = open_journal(files, bytes_max=2**20)
    records = open_log(
        files,
        f"logs/{LOG}",
        settings=settings or TopicSettings(),
        cache=LogCache(index_bytes_max=2**20, open_files_max=9),
        start_offset=0,
        boundaries=(),
        decompressed_bytes_max=2**20,
    )
    log = ConsensusLog(LOG, records, journal, FixedClock(), founders=voters, fetch_bytes_max=2**20)
    core = Core(ONE, log, NEVER_VOTED, Random(1), timing=Timing())
    while core.role is Role.FOLLOWER:
        core.tick()
    core.step(TWO, PreVoteGranted(core.epoch))
    core.step(TWO, VoteGranted(core.epoch))
    core.durable(log.last)
    core.step(TWO, Fetch(core.epoch, log.last, 0))
    ports = fake_ports(files)
    commits = GroupCommit(
        {},
        journal,
        ports.sync_threads,
        LossyLinks(),
        Metrics(),
        durability="sync",
        flush_interval_ms=1_000,
    )
    return Replica(LOG, log, core, commits, waiters_max=WAITERS_MAX)


def unreadable(after: Position) -> tuple[tuple[()], bytes]:
    raise DamagedLog("a bad sector")


def in_a_loop(story: Callable[[], None]) -> None:
    async def answered() -> None:
        story()

    run(answered())


def test_an_append_that_cannot_be_read_for_a_follower_is_written_and_not_refused() -> None:
    def story() -> None:
        replica = leading_replica()
        replica.consensus_log.read = unreadable  # type: ignore[method-assign]
        data = batch(b"a")

        appended = replica.append(data, read_header(data))

        assert (appended.base_offset, appended.end_offset) == (0, 1)
        assert replica.log.end_offset == 1

    in_a_loop(story)


def test_a_leader_whose_log_cannot_be_read_gives_up_and_the_outcome_is_unknown() -> None:
    async def story() -> None:
        replica = leading_replica()
        data = batch(b"a")
        first = replica.append(data, read_header(data))
        waiting = replica.committed(first.end_offset, None)
        replica.core.step(TWO, Fetch(replica.core.epoch, replica.consensus_log.last, 0))
        replica.consensus_log.read = unreadable  # type: ignore[method-assign]
        second = replica.append(data, read_header(data))

        assert not replica.is_leader
        with pytest.raises(StorageUnavailable):
            await waiting
        with pytest.raises(NotLeader):
            await replica.committed(second.end_offset, None)
        with pytest.raises(StorageUnavailable):
            replica.append(data, read_header(data))

    run(story())


def test_an_append_that_is_refused_has_written_nothing() -> None:
    def story() -> None:
        replica = leading_replica()
        replica.log.is_folded = False  # As while a truncation is being made up for.
        data = batch(b"a")

        with pytest.raises(RequestError) as refusal:
            replica.append(data, read_header(data))

        assert refusal.value.retriable
        assert replica.log.end_offset == 0
        assert not replica.is_ready

    in_a_loop(story)


ALL_THREE = TopicSettings(min_insync_replicas=3)


def leader_of_three() -> Replica:
    replica = leading_replica(voters=frozenset({ONE, TWO, THREE}), settings=ALL_THREE)
    fetch(replica, THREE)
    return replica


def fetch(replica: Replica, follower: ReplicaId) -> None:
    """A follower acknowledges all there is."""
    replica.core.step(follower, Fetch(replica.core.epoch, replica.consensus_log.last, 0))
    replica.notify()


def tick(replica: Replica, count: int) -> None:
    for _ in range(count):
        replica.core.tick()
        replica.notify()


def test_acks_all_waits_for_as_many_replicas_as_the_topic_asks_for() -> None:
    async def story() -> None:
        replica = leader_of_three()
        data = batch(b"a")
        appended = replica.append(data, read_header(data))
        replica.core.durable(replica.consensus_log.last)
        waiting = replica.acknowledged(appended.end_offset, appended)

        fetch(replica, TWO)
        assert replica.high_watermark == 1  # Two of three are a majority: readers may see it.
        assert not waiting.done()

        fetch(replica, THREE)
        assert await waiting == appended

    run(story())


def test_a_replica_that_falls_silent_after_the_append_is_told_to_the_producer() -> None:
    async def story() -> None:
        replica = leader_of_three()
        data = batch(b"a")
        appended = replica.append(data, read_header(data))
        replica.core.durable(replica.consensus_log.last)
        waiting = replica.acknowledged(appended.end_offset, appended)

        for _ in range(Timing().election_ticks):
            fetch(replica, TWO)
            tick(replica, 1)

        assert replica.is_leader
        assert replica.in_step_count == 2
        with pytest.raises(NotEnoughReplicasAfterAppend):
            await waiting

    run(story())


def test_a_follower_that_is_silent_is_not_in_step_though_it_holds_everything() -> None:
    def story() -> None:
        replica = leader_of_three()
        fetch(replica, TWO)
        assert replica.in_step_count == 3

        for _ in range(Timing().election_ticks):
            fetch(replica, TWO)
            tick(replica, 1)

        assert replica.in_step_count == 2

    in_a_loop(story)


def test_who_waits_for_more_than_a_majority_is_told_when_leadership_ends() -> None:
    async def story() -> None:
        replica = leader_of_three()
        data = batch(b"a")
        appended = replica.append(data, read_header(data))
        waiting = replica.acknowledged(appended.end_offset, appended)

        tick(replica, Timing().election_ticks)

        assert not replica.is_leader
        with pytest.raises((NotLeader, NotEnoughReplicasAfterAppend)):
            await waiting

    run(story())


async def keep_up_without_the_third(replica: Replica, seconds: float) -> None:
    """One follower holds everything; another is heard, and stays where it is."""
    behind = Position(replica.consensus_log.last.epoch, 0)
    for _ in range(int(seconds)):
        await asyncio.sleep(1)
        fetch(replica, TWO)
        replica.core.step(THREE, Fetch(replica.core.epoch, behind, 0))
        tick(replica, 1)


def test_a_wait_for_a_replica_that_stays_behind_has_an_end_and_the_record_stays() -> None:
    async def story() -> None:
        replica = leader_of_three()
        data = batch(b"a")
        appended = replica.append(data, read_header(data))
        replica.core.durable(replica.consensus_log.last)
        waiting = replica.acknowledged(appended.end_offset, appended)

        await keep_up_without_the_third(replica, ACKNOWLEDGE_S_MAX - 1)
        assert not waiting.done()
        await keep_up_without_the_third(replica, 2)

        with pytest.raises(TimedOut, match="the record is in the log"):
            await waiting
        assert replica.is_leader
        assert replica.high_watermark == 1

    run(story())


def test_waits_that_their_requests_gave_up_make_room_for_others() -> None:
    async def story() -> None:
        replica = leader_of_three()
        data = batch(b"a")
        for _ in range(3 * WAITERS_MAX):
            appended = replica.append(data, read_header(data))
            waiting = replica.acknowledged(appended.end_offset, appended)
            waiting.set_exception(TimedOut("the request's own time is up"))
            with pytest.raises(TimedOut):
                await waiting
            await asyncio.sleep(0)

        assert not replica.acknowledged(appended.end_offset, appended).done()

    run(story())


def test_a_voter_change_keeps_the_waiters_of_a_leader_that_wins_it() -> None:
    async def story() -> None:
        replica, appended = leader_with_a_record()
        waiting = replica.committed(appended.end_offset, appended)

        replica.core.change_voters(frozenset({ONE, TWO, THREE}) - {THREE})
        replica.notify()
        assert replica.core.role is Role.CANDIDATE
        assert not waiting.done()
        replica.core.step(TWO, VoteGranted(replica.core.epoch))
        replica.notify()
        assert replica.is_leader
        assert not waiting.done()

        replica.core.durable(replica.consensus_log.last)
        fetch(replica, TWO)
        assert await waiting == appended

    run(story())


def test_a_voter_change_that_is_lost_fails_the_waiters() -> None:
    async def story() -> None:
        replica, appended = leader_with_a_record()
        waiting = replica.committed(appended.end_offset, appended)

        replica.core.change_voters(frozenset({ONE, TWO}))
        replica.notify()
        replica.core.step(THREE, Hint(Epoch(replica.core.epoch + 1), THREE))
        replica.notify()

        with pytest.raises(NotLeader):
            await waiting

    run(story())


def test_a_waiter_whose_record_was_reset_away_is_not_answered_by_the_watermark() -> None:
    async def story() -> None:
        replica, appended = leader_with_a_record()
        waiting = replica.committed(appended.end_offset, appended)
        epoch, last = Epoch(replica.core.epoch + 1), replica.consensus_log.last

        # Elsewhere another record was committed there, and deleted since.
        start = appended.end_offset + 5
        bounds = (Boundary(epoch, start, replica.core.voters),)
        replica.core.step(THREE, Reset(epoch, last, start, bounds))
        replica.notify()

        assert replica.high_watermark > appended.end_offset
        with pytest.raises(NotLeader):
            await waiting

    run(story())


def leader_with_a_record() -> tuple[Replica, Appended]:
    """A leader of three, established, and a record that only its own log holds."""
    replica = leader_of_three()
    fetch(replica, TWO)
    data = batch(b"a")
    appended = replica.append(data, read_header(data))
    replica.core.durable(replica.consensus_log.last)
    return replica, appended
