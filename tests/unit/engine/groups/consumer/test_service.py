"""Consumer groups on a whole node: the two kinds of groups, offsets, restarts, faults, rights."""

import asyncio
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from millstream.config import Config, Limits, Timing
from millstream.control.resources import GROUP_SETTINGS, ResourceKind
from millstream.engine.gate import Everyone, Operation
from millstream.engine.groups.consumer.reconciliation import AWAY, LEAVING
from millstream.engine.groups.consumer.vocabulary import Beat, Beaten, ConsumersState
from millstream.engine.groups.views import Commit, Committed
from millstream.errors import (
    Denied,
    InvalidRequest,
    NotCoordinator,
    ProtocolError,
    RequestError,
    StorageUnavailable,
)
from millstream.errors.groups import (
    GroupNotEmpty,
    GroupNotFound,
    GroupSubscribed,
    InconsistentProtocol,
    InvalidPattern,
    StaleMemberEpoch,
    UnknownMember,
    UnsupportedAssignor,
)
from millstream.internal_topics.groups import partition_for
from millstream.model import LogId, Session
from millstream.names import OFFSETS_TOPIC
from millstream.server.node import Node
from millstream.storage.files.memory import MemoryFiles
from tests.support.crashing_files import CrashingFiles
from tests.support.groups import CONSUMER, GROUP, Consumer, running_groups
from tests.support.nodes import ORDERS, SESSION
from tests.support.virtual_loop import run

JOIN = Beat(
    member_id="one", epoch=0, rebalance_timeout_ms=60_000, names=("orders",), owned=frozenset()
)


class Reader:
    """A well-behaved member, one heartbeat at a time."""

    def __init__(self, node: Node, member_id: str, **settings: Any) -> None:
        self.node = node
        self.joining = replace(JOIN, member_id=member_id, **settings)
        self.epoch = 0
        self.owned: frozenset[LogId] = frozenset()

    @property
    def identity(self) -> Beat:
        return replace(
            Beat(member_id=self.joining.member_id, epoch=self.epoch),
            instance_id=self.joining.instance_id,
        )

    async def join(self) -> Beaten:
        return await self._say(self.joining)

    async def beat(self, **changes: Any) -> Beaten:
        return await self._say(replace(self.identity, owned=self.owned, **changes))

    async def leave(self, epoch: int = LEAVING) -> None:
        await self._say(replace(self.identity, epoch=epoch))

    async def _say(self, beat: Beat) -> Beaten:
        response = await self.node.consumer_groups.heartbeat(CONSUMER, GROUP, beat)
        self.epoch = response.epoch
        if response.assignment is not None:
            self.owned = response.assignment
        return response


async def pair(node: Node) -> tuple[Reader, Reader]:
    readers = Reader(node, "one"), Reader(node, "two")
    for reader in readers:
        await reader.join()
    for _ in range(3):
        for reader in readers:
            await reader.beat()
    return readers


async def commit(node: Node, **member: Any) -> RequestError | None:
    outcomes = await node.groups.commit_offsets(SESSION, GROUP, {ORDERS: Commit(5)}, **member)
    return outcomes[ORDERS]


async def committed(node: Node) -> int:
    committed = (await node.groups.fetch_offsets(SESSION, GROUP, [ORDERS]))[ORDERS]
    assert isinstance(committed, Committed), committed
    return committed.offset


async def state_of(node: Node) -> ConsumersState:
    return (await node.consumer_groups.describe(SESSION, GROUP)).state


# -- settings of a group --------------------------------------------------------------------------


def test_a_group_obeys_settings_of_its_own_from_the_next_heartbeat_on() -> None:
    async def story() -> None:
        async with running_groups() as node:
            first, second = await pair(node)
            before = await first.beat()
            await node.resources.alter(
                SESSION,
                ResourceKind.GROUP,
                GROUP,
                {"consumer_heartbeat_interval_ms": "700", "consumer_session_timeout_ms": "2000"},
            )

            response = await first.beat()
            await asyncio.sleep(2.5)
            # The other was last heard of under the old timeout, which still holds for it.
            members = (await node.consumer_groups.describe(SESSION, GROUP)).members

            assert before.heartbeat_interval_ms != response.heartbeat_interval_ms == 700
            assert [member.member_id for member in members] == ["two"]
            await node.resources.alter(
                SESSION, ResourceKind.GROUP, GROUP, dict.fromkeys(GROUP_SETTINGS)
            )
            assert (await second.beat()).heartbeat_interval_ms == before.heartbeat_interval_ms

    run(story())


# -- members ---------------------------------------------------------------------------------------


def test_two_members_share_a_topic() -> None:
    async def story() -> None:
        async with running_groups() as node:
            first, second = await pair(node)
            topic = node.topics.describe(SESSION, "orders")
            group = await node.consumer_groups.describe(SESSION, GROUP)

            assert first.owned | second.owned == {topic.log(index) for index in range(4)}
            assert len(first.owned) == len(second.owned) == 2
            assert group.state is ConsumersState.STABLE
            assert (group.epoch, group.target_epoch, group.assignor) == (2, 2, "uniform")
            described = group.members[0]
            assert (described.member_id, described.epoch) == ("one", 2)
            assert (described.client_id, described.client_host) == ("app", "10.0.0.1")
            assert described.assigned == described.target
            assert [share.topic for share in described.assigned] == ["orders"]

    run(story())


def test_a_member_without_an_id_is_given_one() -> None:
    async def story() -> None:
        async with running_groups() as node:
            response = await Reader(node, "").join()

            assert len(response.member_id) == 36

    run(story())


def test_what_a_member_is_told_is_durable_and_not_before() -> None:
    async def story() -> None:
        async with running_groups() as node:
            log_id = node.topics.describe(SESSION, OFFSETS_TOPIC).log(partition_for(GROUP, 16))

            joining = asyncio.ensure_future(Reader(node, "one").join())
            await asyncio.sleep(0)
            seen = node.hub.find(log_id).high_watermark, joining.done()
            await joining

            assert seen == (0, False)
            assert node.hub.find(log_id).high_watermark > 0

    run(story())


def test_a_member_that_goes_silent_is_removed() -> None:
    async def story() -> None:
        async with running_groups() as node:
            _, second = await pair(node)
            for _ in range(10):
                await asyncio.sleep(5)
                await second.beat()

            assert len(second.owned) == 4
            assert len((await node.consumer_groups.describe(SESSION, GROUP)).members) == 1

    run(story())


def test_topics_and_partitions_join_a_live_group() -> None:
    async def story() -> None:
        async with running_groups() as node:
            reader = Reader(node, "one", names=None, pattern="ord.*")
            await reader.join()
            assert len(reader.owned) == 4

            await node.topics.add_partitions(SESSION, "orders", total=5)
            await node.topics.create(SESSION, "ordinals", partitions=2)
            await node.topics.create(SESSION, "other", partitions=2)
            await reader.beat()

            assert len(reader.owned) == 7

    run(story())


def test_a_pattern_does_not_find_the_brokers_own_topics() -> None:
    async def story() -> None:
        async with running_groups() as node:
            reader = Reader(node, "one", names=None, pattern=".*")

            assert len((await reader.join()).assignment or ()) == 4

    run(story())


@pytest.mark.parametrize(
    "changes",
    [
        {"rebalance_timeout_ms": None},
        {"names": None},
        {"owned": None},
        {"owned": frozenset({LogId(UUID(int=1), 0)})},
        {"epoch": -3},
        {"epoch": AWAY},
        {"epoch": LEAVING, "member_id": ""},
        {"epoch": 1, "member_id": ""},
        {"instance_id": ""},
        {"rack_id": ""},
        {"names": ("x" * 2_000,)},
    ],
)
def test_a_heartbeat_that_makes_no_sense_is_refused(changes: dict[str, Any]) -> None:
    async def story() -> None:
        config = Config(limits=Limits(member_metadata_bytes_max=1_000))
        async with running_groups(config) as node:
            with pytest.raises(InvalidRequest):
                await node.consumer_groups.heartbeat(CONSUMER, GROUP, replace(JOIN, **changes))

            assert node.groups.list(SESSION) == []

    run(story())


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"assignor": "nope"}, UnsupportedAssignor),
        ({"pattern": "("}, InvalidPattern),
        ({"names": ("\ud800",)}, ProtocolError),
        ({"epoch": 1}, GroupNotFound),
        ({"epoch": LEAVING}, GroupNotFound),
    ],
)
def test_a_member_that_is_refused_leaves_no_group(
    changes: dict[str, object], problem: type[Exception]
) -> None:
    async def story() -> None:
        async with running_groups() as node:
            with pytest.raises(problem):
                await Reader(node, "one", **changes).join()

            assert node.groups.list(SESSION) == []

    run(story())


# -- the two kinds of groups -----------------------------------------------------------------------


def test_classic_members_keep_consumers_out() -> None:
    async def story() -> None:
        async with running_groups() as node:
            classic = Consumer(node.groups)
            await classic.enter()

            with pytest.raises(GroupNotFound):
                await Reader(node, "one").join()
            with pytest.raises(GroupNotFound):
                await node.consumer_groups.describe(SESSION, GROUP)

            await classic.heartbeat()

    run(story())


def test_consumers_keep_classic_members_out() -> None:
    async def story() -> None:
        async with running_groups() as node:
            reader = Reader(node, "one")
            await reader.join()

            with pytest.raises(InconsistentProtocol):
                await Consumer(node.groups).join()
            with pytest.raises(UnknownMember):
                await node.groups.heartbeat(CONSUMER, GROUP, member_id="one", generation=1)
            with pytest.raises(GroupNotFound):
                await node.groups.describe(SESSION, GROUP)

            await reader.beat()

    run(story())


def test_an_empty_group_becomes_what_its_next_member_is() -> None:
    files = MemoryFiles()

    async def first_life() -> None:
        async with running_groups(files=files) as node:
            classic = Consumer(node.groups)
            await classic.enter()
            await classic.leave()
            assert await commit(node) is None
            reader = Reader(node, "one")
            await reader.join()
            assert await state_of(node) is ConsumersState.STABLE
            await reader.leave()
            await Consumer(node.groups).enter()
            assert (await node.groups.describe(SESSION, GROUP)).members

    async def second_life() -> None:
        async with running_groups(files=files) as node:
            assert (await node.groups.describe(SESSION, GROUP)).members
            with pytest.raises(GroupNotFound):
                await node.consumer_groups.describe(SESSION, GROUP)
            assert await committed(node) == 5

    run(first_life())
    run(second_life())


def test_a_group_is_listed_with_its_state_and_deleted_when_it_is_empty() -> None:
    async def story() -> None:
        async with running_groups() as node:
            reader = Reader(node, "one")
            await reader.join()
            await commit(node, member_id="one", generation=1)
            (listing,) = node.groups.list(SESSION)
            assert listing == (GROUP, ConsumersState.STABLE, "consumer")
            with pytest.raises(GroupNotEmpty):
                await node.groups.delete(SESSION, GROUP)

            await reader.leave()
            assert await state_of(node) is ConsumersState.EMPTY
            await node.groups.delete(SESSION, GROUP)

            assert node.groups.list(SESSION) == []
            assert await committed(node) == -1
            with pytest.raises(GroupNotFound):
                await reader.beat(epoch=1)

    run(story())


# -- offsets ---------------------------------------------------------------------------------------


def test_a_member_commits_in_its_epoch_and_no_other() -> None:
    async def story() -> None:
        async with running_groups() as node:
            await Reader(node, "one").join()

            assert await commit(node, member_id="one", generation=1) is None
            assert isinstance(await commit(node, member_id="one", generation=2), StaleMemberEpoch)
            for stranger in ({"member_id": "two", "generation": 1}, {}):
                with pytest.raises(UnknownMember):
                    await commit(node, **stranger)

    run(story())


def test_a_member_asks_for_offsets_in_its_epoch_and_no_other() -> None:
    async def story() -> None:
        async with running_groups() as node:
            await Reader(node, "one").join()
            fetch = node.groups.fetch_offsets

            assert await fetch(SESSION, GROUP, [], member_id="one", epoch=1) == {}
            assert await fetch(SESSION, GROUP, []) == {}
            with pytest.raises(StaleMemberEpoch):
                await fetch(SESSION, GROUP, [], member_id="one", epoch=2)
            with pytest.raises(UnknownMember):
                await fetch(SESSION, GROUP, [], member_id="two", epoch=1)

    run(story())


def test_an_offset_is_deleted_unless_the_group_reads_its_topic() -> None:
    async def story() -> None:
        async with running_groups() as node:
            reader = Reader(node, "one")
            await reader.join()
            await commit(node, member_id="one", generation=1)

            refused = await node.groups.delete_offsets(SESSION, GROUP, [ORDERS])
            await reader.leave()
            deleted = await node.groups.delete_offsets(SESSION, GROUP, [ORDERS])

            assert isinstance(refused[ORDERS], GroupSubscribed)
            assert deleted == {ORDERS: None}
            assert await committed(node) == -1

    run(story())


def test_unused_offsets_expire_and_the_group_with_them() -> None:
    async def story() -> None:
        timing = Timing(offsets_retention_ms=60_000, offsets_check_ms=1_000)
        async with running_groups(Config(timing=timing)) as node:
            reader = Reader(node, "one")
            await reader.join()
            await commit(node, member_id="one", generation=1)
            for _ in range(20):
                await asyncio.sleep(5)
                await reader.beat()
            assert await committed(node) == 5  # Not while there are members.

            await reader.leave()
            await asyncio.sleep(50)
            assert await committed(node) == 5
            await asyncio.sleep(20)

            assert await committed(node) == -1
            assert node.groups.list(SESSION) == []

    run(story())


# -- restarts and faults ---------------------------------------------------------------------------


def test_members_go_on_after_a_restart_as_if_nothing_had_happened() -> None:
    files = MemoryFiles()
    readers: list[Reader] = []

    async def first_life() -> None:
        async with running_groups(files=files) as node:
            readers.extend(await pair(node))
            static = Reader(node, "three", instance_id="i", names=("other",))
            await static.join()
            await static.leave(AWAY)
            readers.append(static)

    async def second_life() -> None:
        async with running_groups(files=files) as node:
            for reader in readers[:2]:
                reader.node = node
                epoch = reader.epoch
                response = await reader.beat()
                assert response.assignment is None
                assert response.epoch == epoch + 1  # For the third has come in the meantime.
            again = Reader(node, "four", instance_id="i", names=("other",))
            assert (await again.join()).epoch == readers[0].epoch
            assert await state_of(node) is ConsumersState.STABLE

    run(first_life())
    run(second_life())


def test_what_cannot_be_saved_is_not_told_and_is_saved_later() -> None:
    files = CrashingFiles()

    async def first_life() -> None:
        async with running_groups(files=files) as node:
            ann = Reader(node, "one")
            await ann.join()
            files.space_left = 0
            with pytest.raises(StorageUnavailable):
                await Reader(node, "two").join()
            with pytest.raises(StorageUnavailable):
                await ann.beat()
            files.space_left = None
            second = Reader(node, "two")
            await second.join()
            for _ in range(3):
                await ann.beat()
                await second.beat()
            assert len(ann.owned) == len(second.owned) == 2

    async def second_life() -> None:
        async with running_groups(files=files) as node:
            group = await node.consumer_groups.describe(SESSION, GROUP)
            assert (group.state, len(group.members)) == (ConsumersState.STABLE, 2)

    run(first_life())
    run(second_life())


def test_a_coordinator_that_lost_its_partition_says_so_and_begins_anew() -> None:
    async def story() -> None:
        async with running_groups() as node:
            first, _ = await pair(node)
            coordinator = await node._engine.group_coordinators.find(GROUP)
            group = coordinator.groups[GROUP]
            beating = asyncio.ensure_future(first.beat(names=("orders", "other")))
            await asyncio.sleep(0)
            assert not group.is_committed

            coordinator._forget()

            with pytest.raises(NotCoordinator):
                await beating
            assert (await first.beat()).epoch >= first.epoch

    run(story())


# -- rights ----------------------------------------------------------------------------------------


class NotThisTopic(Everyone):
    """Strangers may join, and know of every topic but one."""

    def allows(self, session: Session, operation: Operation, resource: str) -> bool:
        return session == SESSION or resource != "topic:secret"


class NoMembers(Everyone):
    def allows(self, session: Session, operation: Operation, resource: str) -> bool:
        return session == SESSION


def test_a_topic_that_a_member_may_not_know_of_is_not_shared_out() -> None:
    async def story() -> None:
        async with running_groups(policy=NotThisTopic()) as node:
            await node.topics.create(SESSION, "secret", partitions=3)
            with pytest.raises(Denied):
                await Reader(node, "one", names=("secret",)).join()

            reader = Reader(node, "one", names=None, pattern=".*")

            assert len((await reader.join()).assignment or ()) == 4

    run(story())


def test_a_stranger_is_denied() -> None:
    async def story() -> None:
        async with running_groups(policy=NoMembers()) as node:
            with pytest.raises(Denied):
                await Reader(node, "one").join()
            with pytest.raises(Denied):
                await node.consumer_groups.describe(CONSUMER, GROUP)

    run(story())
