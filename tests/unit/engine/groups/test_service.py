"""Groups on a whole node: coordination, offsets, restarts, losing the lead, limits."""

import asyncio
from typing import Any

import pytest

from millstream.codec.batch import read_header
from millstream.config import Config, Limits, Timing
from millstream.engine.gate import Everyone, Operation
from millstream.engine.groups.classic.vocabulary import GroupState, Leaver
from millstream.engine.groups.views import NOT_COMMITTED, Commit, Committed, lags
from millstream.errors import (
    CoordinatorLoading,
    Denied,
    InternalTopic,
    NotCoordinator,
    Overloaded,
    ProtocolError,
    RequestError,
    StorageUnavailable,
    UnknownTopic,
)
from millstream.errors.groups import (
    GroupFull,
    GroupNotEmpty,
    GroupNotFound,
    GroupSubscribed,
    InconsistentProtocol,
    InvalidGroupId,
    MemberIdRequired,
    OffsetMetadataTooLarge,
    RebalanceInProgress,
    StaleGeneration,
    UnknownMember,
)
from millstream.internal_topics.groups import Protocol, partition_for
from millstream.model import Acks, NodeId, Session, TopicPartition
from millstream.names import OFFSETS_TOPIC
from millstream.server.node import Node
from millstream.settings import CleanupPolicy
from millstream.storage.files.memory import MemoryFiles
from tests.support.crashing_files import CrashingFiles
from tests.support.groups import CONSUMER, GROUP, RANGE, Consumer, running_groups
from tests.support.nodes import ORDERS, SESSION, batch, running_node
from tests.support.virtual_loop import run

SECOND = TopicPartition("orders", 1)
# A new group waits for more members, long enough to look at those who wait.
SLOW = Timing(group_initial_rebalance_delay_ms=3_000)
SUBSCRIBED_TO_ORDERS = b"\0\1\0\0\0\1\0\6orders\xff\xff\xff\xff\0\0\0\0"


async def commit(node: Node, offset: int = 5, group_id: str = GROUP) -> None:
    outcomes = await node.groups.commit_offsets(SESSION, group_id, {ORDERS: Commit(offset)})
    assert outcomes == {ORDERS: None}


async def committed(node: Node, group_id: str = GROUP) -> int:
    committed = (await node.groups.fetch_offsets(SESSION, group_id, [ORDERS]))[ORDERS]
    assert isinstance(committed, Committed), committed
    return committed.offset


async def stable_pair(node: Node) -> tuple[Consumer, Consumer]:
    first, second = Consumer(node.groups), Consumer(node.groups)
    await asyncio.gather(first.enter(), second.enter())
    return first, second


# -- the offsets topic -----------------------------------------------------------------------------


def test_the_offsets_topic_is_created_on_first_use_and_compacted() -> None:
    async def story() -> None:
        async with running_node() as node:
            assert node.topics.list(SESSION) == []

            here = await node.groups.coordinator_of(SESSION, GROUP)

            topic = node.topics.describe(SESSION, OFFSETS_TOPIC)
            settings = topic.settings(node.config.topic_defaults)
            assert here == NodeId(1)
            assert topic.partition_count == 16
            assert settings.cleanup_policy is CleanupPolicy.COMPACT
            assert settings.segment_bytes == 16 * 2**20

    run(story())


def test_those_who_ask_while_the_topic_is_being_created_succeed_or_may_ask_again() -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders")

            outcomes = await asyncio.gather(
                *(commit(node, group_id=f"g{n}") for n in range(20)), return_exceptions=True
            )

            refusals = [outcome for outcome in outcomes if outcome is not None]
            assert all(isinstance(r, RequestError) and r.retriable for r in refusals)
            for n in range(20):
                await commit(node, group_id=f"g{n}")

    run(story())


# -- members ---------------------------------------------------------------------------------------


def test_two_members_share_a_group_and_each_gets_its_own_assignment() -> None:
    async def story() -> None:
        async with running_groups() as node:
            first, second = Consumer(node.groups), Consumer(node.groups)

            synced = await asyncio.gather(first.enter(), second.enter())

            assert [s.assignment for s in synced] == [
                first.member_id.encode(),
                second.member_id.encode(),
            ]
            assert first.member_id.startswith("app-")
            assert (first.is_leader, second.is_leader) == (True, False)

    run(story())


def test_a_newcomer_makes_the_others_rejoin_and_a_leaver_too() -> None:
    async def story() -> None:
        async with running_groups() as node:
            first, second = await stable_pair(node)
            third = Consumer(node.groups)
            async with asyncio.TaskGroup() as group:
                group.create_task(third.enter())
                await asyncio.sleep(1)
                with pytest.raises(RebalanceInProgress):
                    await first.heartbeat()
                group.create_task(first.enter())
                group.create_task(second.enter())
            assert {c.generation for c in (first, second, third)} == {2}

            await third.leave()
            with pytest.raises(RebalanceInProgress):
                await first.heartbeat()
            await asyncio.gather(first.enter(), second.enter())

            assert {c.generation for c in (first, second)} == {3}

    run(story())


def test_an_assignment_is_handed_out_once_it_is_durable_and_not_before() -> None:
    async def story() -> None:
        async with running_groups() as node:
            member = Consumer(node.groups)
            await member.join()
            log_id = node.topics.describe(SESSION, OFFSETS_TOPIC).log(partition_for(GROUP, 16))

            syncing = asyncio.ensure_future(member.sync())
            await asyncio.sleep(0)
            seen = node.hub.find(log_id).high_watermark, syncing.done()
            await syncing

            assert seen == (0, False)
            assert node.hub.find(log_id).high_watermark == 1

    run(story())


def test_a_member_that_goes_silent_is_removed_and_the_group_goes_on() -> None:
    async def story() -> None:
        async with running_groups() as node:
            first, second = await stable_pair(node)

            with pytest.raises(RebalanceInProgress):
                await first.beat_for(60)
            assert asyncio.get_running_loop().time() < 30
            await first.enter()

            assert first.generation == 2
            with pytest.raises(UnknownMember):
                await second.heartbeat()

    run(story())


def test_a_caller_that_gives_up_waiting_leaves_nothing_behind() -> None:
    async def story() -> None:
        async with running_groups(Config(timing=SLOW)) as node:
            member = Consumer(node.groups)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1):
                    await member.join()

            assert len(node._engine.group_coordinators.waiters) == 0
            await asyncio.sleep(60)
            assert (await node.groups.describe(SESSION, GROUP)).state is GroupState.EMPTY

    run(story())


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"group_id": ""}, InvalidGroupId),
        ({"protocols": ()}, InconsistentProtocol),
        ({"member_id": "stranger"}, UnknownMember),
        ({"protocols": (Protocol("range", b"x" * (2**20 + 1)),)}, InconsistentProtocol),
        ({"protocol_type": "\ud800"}, ProtocolError),
        ({"needs_known_id": True}, MemberIdRequired),
    ],
)
def test_a_join_that_is_refused_leaves_no_group(
    changes: dict[str, object], error: type[Exception]
) -> None:
    async def story() -> None:
        async with running_groups() as node:
            arguments: dict[str, object] = {
                "group_id": GROUP,
                "protocol_type": "consumer",
                "protocols": RANGE,
                "session_timeout_ms": 10_000,
                "rebalance_timeout_ms": 10_000,
                **changes,
            }

            with pytest.raises(error):
                await node.groups.join(CONSUMER, **arguments)  # type: ignore[arg-type]
            await asyncio.sleep(11)  # Someone who was given an id may come back for a session.

            assert node.groups.list(SESSION) == []

    run(story())


def test_members_of_an_unknown_group_are_unknown() -> None:
    async def story() -> None:
        async with running_groups() as node:
            stranger: dict[str, Any] = {"member_id": "x", "generation": 1}
            with pytest.raises(UnknownMember):
                await node.groups.heartbeat(SESSION, GROUP, **stranger)
            with pytest.raises(UnknownMember):
                await node.groups.sync(SESSION, GROUP, assignments={}, **stranger)
            (outcome,) = await node.groups.leave(SESSION, GROUP, [Leaver("x")])

            assert isinstance(outcome, UnknownMember)

    run(story())


def test_groups_and_their_members_are_bounded() -> None:
    async def story() -> None:
        limits = Limits(groups_max=2, group_members_max=1)
        async with running_groups(Config(limits=limits)) as node:
            await commit(node, group_id="a")
            await Consumer(node.groups, group_id="b").enter()

            with pytest.raises(Overloaded, match="groups"):
                await commit(node, group_id="c")
            with pytest.raises(Overloaded, match="groups"):
                await Consumer(node.groups, group_id="c").join()
            with pytest.raises(GroupFull):
                await Consumer(node.groups, group_id="b").join()

    run(story())


def test_parked_requests_are_bounded() -> None:
    async def story() -> None:
        config = Config(limits=Limits(group_waiters_max=1), timing=SLOW)
        async with running_groups(config) as node, asyncio.TaskGroup() as group:
            group.create_task(Consumer(node.groups, instance_id="i").join())
            await asyncio.sleep(1)

            with pytest.raises(Overloaded, match="wait"):
                await Consumer(node.groups, instance_id="j").join()

    run(story())


# -- offsets ---------------------------------------------------------------------------------------


def test_committed_offsets_are_fetched_with_all_that_was_said_about_them() -> None:
    async def story() -> None:
        async with running_groups() as node:
            commits = {ORDERS: Commit(7, "seven", 3), SECOND: Commit(0)}

            outcomes = await node.groups.commit_offsets(SESSION, GROUP, commits)
            everything = await node.groups.fetch_offsets(SESSION, GROUP)
            asked = await node.groups.fetch_offsets(
                SESSION, GROUP, [SECOND, TopicPartition("orders", 2), TopicPartition("no", 0)]
            )

            assert outcomes == {ORDERS: None, SECOND: None}
            committed = everything[ORDERS]
            assert isinstance(committed, Committed)
            assert committed[:3] == (7, "seven", 3)
            assert set(everything) == {ORDERS, SECOND}
            assert asked[TopicPartition("orders", 2)] == NOT_COMMITTED
            assert asked[TopicPartition("no", 0)] == NOT_COMMITTED
            assert asked[SECOND] == everything[SECOND]

    run(story())


def test_commits_keep_the_order_of_their_calls() -> None:
    async def story() -> None:
        async with running_groups() as node:
            await asyncio.gather(*(commit(node, n) for n in range(50)))

            assert await committed(node) == 49

    run(story())


def test_a_commit_of_many_partitions_is_one_batch() -> None:
    async def story() -> None:
        async with running_groups() as node:
            await node.topics.add_partitions(SESSION, "orders", total=100)
            many = {TopicPartition("orders", p): Commit(p) for p in range(100)}

            await node.groups.commit_offsets(SESSION, GROUP, many)

            counts = []
            for partition in range(16):
                replica = node.hub.find(node.topics.describe(SESSION, OFFSETS_TOPIC).log(partition))
                end = replica.log.end_offset
                counts += [h.count for h in replica.log.batches(0, end)]
            assert counts == [100]

    run(story())


def test_bad_commits_are_refused_one_by_one_and_the_others_count() -> None:
    async def story() -> None:
        async with running_groups() as node:
            outcomes = await node.groups.commit_offsets(
                SESSION,
                GROUP,
                {
                    ORDERS: Commit(3),
                    SECOND: Commit(4, "x" * 4097),
                    TopicPartition("orders", 99): Commit(1),
                    TopicPartition("unknown", 0): Commit(1),
                },
            )

            assert [type(outcome) for outcome in outcomes.values()] == [
                type(None),
                OffsetMetadataTooLarge,
                UnknownTopic,
                UnknownTopic,
            ]
            assert set(await node.groups.fetch_offsets(SESSION, GROUP)) == {ORDERS}

    run(story())


def test_a_commit_must_come_from_the_current_generation() -> None:
    async def story() -> None:
        async with running_groups() as node:
            first, second = await stable_pair(node)

            async def commit_as(member_id: str, generation: int) -> None:
                await node.groups.commit_offsets(
                    SESSION,
                    GROUP,
                    {ORDERS: Commit(9)},
                    member_id=member_id,
                    generation=generation,
                )

            with pytest.raises(StaleGeneration):
                await commit_as(first.member_id, 0)
            with pytest.raises(UnknownMember):
                await commit_as("stranger", 1)
            with pytest.raises(UnknownMember):
                await commit_as("", -1)
            with pytest.raises(GroupNotFound):
                await node.groups.commit_offsets(
                    SESSION, "nobody", {ORDERS: Commit(1)}, member_id="x", generation=1
                )
            await commit_as(second.member_id, 1)

            assert await committed(node) == 9

    run(story())


def test_offsets_of_a_topic_that_was_created_again_do_not_count() -> None:
    async def story() -> None:
        async with running_groups() as node:
            await commit(node, 100)
            await node.topics.delete(SESSION, "orders")
            assert await committed(node) == 100
            await node.topics.create(SESSION, "orders")

            assert await committed(node) == -1
            assert await node.groups.fetch_offsets(SESSION, GROUP) == {}

    run(story())


def test_an_offset_is_deleted_unless_the_group_reads_its_topic() -> None:
    async def story() -> None:
        async with running_groups() as node:
            await node.topics.create(SESSION, "other")
            other = TopicPartition("other", 0)
            await node.groups.commit_offsets(SESSION, GROUP, {ORDERS: Commit(1), other: Commit(2)})
            member = Consumer(node.groups)
            await member.enter()
            with pytest.raises(GroupNotEmpty):  # What it is subscribed to is not known.
                await node.groups.delete_offsets(SESSION, GROUP, [ORDERS])

            member.protocols = (Protocol("range", SUBSCRIBED_TO_ORDERS),)
            await member.enter()
            outcomes = await node.groups.delete_offsets(SESSION, GROUP, [ORDERS, other])
            assert [type(o) for o in outcomes.values()] == [GroupSubscribed, type(None)]
            assert set(await node.groups.fetch_offsets(SESSION, GROUP)) == {ORDERS}
            await member.leave()
            await node.groups.delete_offsets(SESSION, GROUP, [ORDERS])

            assert await node.groups.fetch_offsets(SESSION, GROUP) == {}

    run(story())


def test_unused_offsets_expire_and_the_group_with_them() -> None:
    async def story() -> None:
        timing = Timing(offsets_retention_ms=60_000, offsets_check_ms=1_000)
        async with running_groups(Config(timing=timing)) as node:
            await commit(node, group_id="standalone")
            await commit(node)
            member = Consumer(node.groups)
            await member.enter()
            await member.beat_for(100)
            assert await committed(node) == 5  # Not while there are members.
            assert await committed(node, "standalone") == -1

            await asyncio.sleep(200)
            await commit(node, group_id="standalone")
            await asyncio.sleep(50)

            assert [g.group_id for g in node.groups.list(SESSION)] == ["standalone"]
            assert await committed(node) == -1

    run(story())


def test_offsets_of_topics_that_the_members_do_not_read_expire() -> None:
    async def story() -> None:
        timing = Timing(offsets_retention_ms=60_000, offsets_check_ms=1_000)
        async with running_groups(Config(timing=timing)) as node:
            await node.topics.create(SESSION, "other")
            other = TopicPartition("other", 0)
            await node.groups.commit_offsets(SESSION, GROUP, {ORDERS: Commit(1), other: Commit(2)})
            member = Consumer(node.groups)
            member.protocols = (Protocol("range", SUBSCRIBED_TO_ORDERS),)

            await member.enter()
            await member.beat_for(100)

            assert set(await node.groups.fetch_offsets(SESSION, GROUP)) == {ORDERS}

    run(story())


def test_offsets_of_a_deleted_topic_are_given_up() -> None:
    async def story() -> None:
        async with running_groups() as node:
            await commit(node)
            await node.topics.delete(SESSION, "orders")
            await asyncio.sleep(2 * 60 * 60)

            assert node.groups.list(SESSION) == []

    run(story())


def test_a_sweep_does_not_undo_a_commit_that_is_under_way() -> None:
    async def story() -> None:
        timing = Timing(offsets_retention_ms=1_000, offsets_check_ms=10**9)
        async with running_groups(Config(timing=timing)) as node:
            await commit(node, 1)
            await asyncio.sleep(5)
            async with asyncio.TaskGroup() as group:
                group.create_task(commit(node, 2))
                await asyncio.sleep(0)
                await node._engine.group_coordinators.sweep()

            assert await committed(node) == 2

    run(story())


# -- describing and deleting -----------------------------------------------------------------------


def test_a_group_is_described_with_its_members_and_offsets() -> None:
    async def story() -> None:
        async with running_groups() as node:
            member = Consumer(node.groups)
            await member.enter()
            await node.groups.commit_offsets(
                SESSION, GROUP, {ORDERS: Commit(2)}, member_id=member.member_id, generation=1
            )
            await node.partitions.append(SESSION, ORDERS, batch(b"a", b"b", b"c"), Acks.ALL)

            group = await node.groups.describe(SESSION, GROUP)
            end = node.partitions.health(SESSION, ORDERS).high_watermark

            assert (group.state, group.protocol_type, group.protocol) == (
                GroupState.STABLE,
                "consumer",
                "range",
            )
            (only,) = group.members
            assert (only.client_id, only.client_host) == ("app", "10.0.0.1")
            assert (only.metadata, only.assignment) == (b"orders", member.member_id.encode())
            assert lags(group.offsets, {ORDERS: end}) == {ORDERS: 1}

    run(story())


def test_groups_are_listed_by_id_with_their_state() -> None:
    async def story() -> None:
        async with running_groups() as node:
            await commit(node, group_id="zeta")
            await Consumer(node.groups, group_id="alpha").enter()

            assert [(g.group_id, g.state, g.protocol_type) for g in node.groups.list(SESSION)] == [
                ("alpha", GroupState.STABLE, "consumer"),
                ("zeta", GroupState.EMPTY, ""),
            ]

    run(story())


def test_a_group_is_deleted_with_its_offsets_once_it_is_empty() -> None:
    async def story() -> None:
        async with running_groups() as node:
            await commit(node)
            member = Consumer(node.groups)
            await member.enter()
            with pytest.raises(GroupNotEmpty):
                await node.groups.delete(SESSION, GROUP)

            await member.leave()
            await node.groups.delete(SESSION, GROUP)

            assert node.groups.list(SESSION) == []
            assert await committed(node) == -1
            with pytest.raises(GroupNotFound):
                await node.groups.delete(SESSION, GROUP)
            with pytest.raises(GroupNotFound):
                await node.groups.describe(SESSION, GROUP)

    run(story())


def test_a_commit_under_way_does_not_outlive_the_group_that_is_deleted() -> None:
    async def story() -> None:
        async with running_groups() as node:
            await commit(node, 1)
            async with asyncio.TaskGroup() as group:
                late = {SECOND: Commit(2)}
                group.create_task(node.groups.commit_offsets(SESSION, GROUP, late))
                await asyncio.sleep(0)
                await node.groups.delete(SESSION, GROUP)

            assert await node.groups.fetch_offsets(SESSION, GROUP) == {}

    run(story())


# -- rights ----------------------------------------------------------------------------------------


class NotThisTopic(Everyone):
    """Everybody may do everything but touch `secret`."""

    def allows(self, session: Session, operation: Operation, resource: str) -> bool:
        return resource != "topic:secret" or session == SESSION


def test_topics_that_a_session_may_not_read_are_refused_and_hidden() -> None:
    async def story() -> None:
        async with running_groups(policy=NotThisTopic()) as node:
            await node.topics.create(SESSION, "secret")
            secret = TopicPartition("secret", 0)
            await node.groups.commit_offsets(SESSION, GROUP, {secret: Commit(1), ORDERS: Commit(1)})

            outcomes = await node.groups.commit_offsets(
                CONSUMER, GROUP, {secret: Commit(2), ORDERS: Commit(2)}
            )
            named = await node.groups.fetch_offsets(CONSUMER, GROUP, [secret])
            everything = await node.groups.fetch_offsets(CONSUMER, GROUP)

            assert [type(o) for o in outcomes.values()] == [Denied, type(None)]
            assert isinstance(named[secret], Denied)
            assert set(everything) == {ORDERS}

    run(story())


# -- restarts and faults ---------------------------------------------------------------------------


def test_groups_and_offsets_survive_a_restart_and_members_go_on_without_a_rebalance() -> None:
    files = MemoryFiles()
    members: list[Consumer] = []

    async def first_life() -> None:
        async with running_groups(files=files) as node:
            members.extend(await stable_pair(node))
            await commit_in_generation(node, 42)

    async def second_life() -> None:
        async with running_groups(files=files) as node:
            for member in members:
                member.groups = node.groups
                await member.heartbeat()
            group = await node.groups.describe(SESSION, GROUP)
            again = await members[1].sync()

            assert (group.state, group.generation) == (GroupState.STABLE, 1)
            assert again.assignment == members[1].member_id.encode()
            assert await committed(node) == 42
            await commit_in_generation(node, 43)

    async def third_life() -> None:
        async with running_groups(files=files) as node:
            assert await committed(node) == 43
            await asyncio.sleep(60)  # No member came back.
            assert (await node.groups.describe(SESSION, GROUP)).state is GroupState.EMPTY

    async def commit_in_generation(node: Node, offset: int) -> None:
        await node.groups.commit_offsets(
            SESSION,
            GROUP,
            {ORDERS: Commit(offset)},
            member_id=members[0].member_id,
            generation=1,
        )

    run(first_life())
    run(second_life())
    run(third_life())


def test_those_who_wait_when_the_node_stops_are_told_to_look_elsewhere() -> None:
    async def story() -> None:
        async with asyncio.TaskGroup() as tasks:
            async with running_groups(Config(timing=SLOW)) as node:
                waiting = tasks.create_task(refused(Consumer(node.groups, instance_id="i")))
                await asyncio.sleep(1)
            await waiting

    async def refused(member: Consumer) -> None:
        with pytest.raises(NotCoordinator):
            await member.join()

    run(story())


def test_a_coordinator_that_lost_its_partition_answers_everyone_and_begins_anew() -> None:
    async def story() -> None:
        async with running_groups() as node:
            await commit(node, 1)
            coordinator = await node._engine.group_coordinators.find(GROUP)
            group = coordinator.groups[GROUP]
            group.written_offset += 1  # As if something were still under way.
            waiting = asyncio.ensure_future(Consumer(node.groups, instance_id="i").join())
            await asyncio.sleep(1)

            coordinator._forget()

            with pytest.raises(NotCoordinator):
                await waiting
            with pytest.raises(NotCoordinator):
                await coordinator.wait_committed(group)
            assert await committed(node) == 1
            assert await node._engine.group_coordinators.find(GROUP) is not coordinator

    run(story())


def test_a_group_that_cannot_be_saved_rebalances_until_it_can() -> None:
    async def story() -> None:
        files = CrashingFiles()
        async with running_groups(files=files) as node:
            member = Consumer(node.groups)
            await member.join()
            files.space_left = 0
            with pytest.raises(StorageUnavailable):
                await member.sync()
            with pytest.raises(RebalanceInProgress):
                await member.heartbeat()
            with pytest.raises(StorageUnavailable):
                await commit(node, group_id="other")
            files.space_left = None

            assert (await member.enter()).assignment == member.member_id.encode()
            assert [g.group_id for g in node.groups.list(SESSION)] == [GROUP]

    run(story())


def test_a_disk_that_failed_is_said_to_everyone_and_the_node_lives() -> None:
    async def story() -> None:
        files = CrashingFiles()
        async with running_groups(files=files) as node:
            await commit(node, 1)
            files.fail_sync()
            with pytest.raises((StorageUnavailable, NotCoordinator)):
                await commit(node, 2)
            with pytest.raises(StorageUnavailable):
                await commit(node, 3)

            assert node.groups.list(SESSION) == []

    run(story())


def test_a_coordinator_that_still_loads_says_so_and_loads_in_steps() -> None:
    files = MemoryFiles()

    async def first_life() -> None:
        config = Config(limits=Limits(commit_offsets_max=10_000))
        async with running_groups(config, files=files) as node:
            # Many records and few partitions: the node is ready before the records are folded.
            await node.topics.add_partitions(SESSION, "orders", total=100)
            for _ in range(100):
                many = {TopicPartition("orders", p): Commit(p) for p in range(100)}
                await node.groups.commit_offsets(SESSION, GROUP, many)

    async def second_life() -> None:
        async with running_node(files=files) as node:
            refusals = 0
            while True:
                try:
                    committed = await node.groups.fetch_offsets(SESSION, GROUP)
                except CoordinatorLoading:
                    refusals += 1
                    await asyncio.sleep(0.01)
                    continue
                break

            assert refusals > 0
            assert len(committed) == 100
            for target, place in committed.items():
                assert isinstance(place, Committed)
                assert place.offset == target.partition

    run(first_life())
    run(second_life())


def test_garbage_in_the_offsets_topic_does_no_harm() -> None:
    files = MemoryFiles()

    async def first_life() -> None:
        async with running_groups(files=files) as node:
            await commit(node, 1)
            data = batch(b"garbage", None, key=b"garbage")
            for partition in range(16):
                target = TopicPartition(OFFSETS_TOPIC, partition)
                with pytest.raises(InternalTopic):
                    node.partitions.append(SESSION, target, data, Acks.ALL)
                log_id = node.topics.describe(SESSION, OFFSETS_TOPIC).log(partition)
                node.hub.find(log_id).append(data, read_header(data))
            await commit(node, 2)
            assert await committed(node) == 2

    async def second_life() -> None:
        async with running_groups(files=files) as node:
            assert await committed(node) == 2

    run(first_life())
    run(second_life())


def test_offsets_survive_compaction() -> None:
    files = MemoryFiles()
    config = Config(timing=Timing(compaction_check_ms=1_000, retention_check_ms=1_000))

    async def first_life() -> None:
        async with running_groups(config, files=files) as node:
            await node.topics.alter(
                SESSION, OFFSETS_TOPIC, {"segment_bytes": "4096", "segment_ms": "1000"}
            )
            for n in range(300):
                await commit(node, n)
                await commit(node, n, group_id="gone")
            await node.groups.delete(SESSION, "gone")
            await asyncio.sleep(60)
            sizes = [
                node.partitions.health(SESSION, TopicPartition(OFFSETS_TOPIC, p)).log.size_bytes
                for p in range(16)
            ]
            assert sum(sizes) < 10_000

    async def second_life() -> None:
        async with running_groups(config, files=files) as node:
            assert await committed(node) == 299
            assert await committed(node, "gone") == -1
            assert [g.group_id for g in node.groups.list(SESSION)] == [GROUP]
            await commit(node, 300)

    run(first_life())
    run(second_life())
