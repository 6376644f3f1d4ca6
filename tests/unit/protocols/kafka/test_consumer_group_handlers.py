"""Consumer groups as Kafka's clients spell them: heartbeats, descriptions, lists, commits."""

from collections.abc import Callable, Coroutine

import pytest

from millstream.engine.gate import Everyone
from millstream.kafka_wire.apis.groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from millstream.kafka_wire.apis.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from millstream.kafka_wire.error_codes import ErrorCode
from millstream.model import Session
from millstream.server.node import Node
from tests.support.crashing_files import CrashingFiles
from tests.support.groups import GROUP, running_groups
from tests.support.nodes import SESSION
from tests.support.virtual_loop import run
from tests.unit.protocols.kafka.asking import STRANGER, ask

OWN_NAMES = 1  # The version from which members name themselves.


def on_a_node(story: Callable[[Node], Coroutine[None, None, None]]) -> None:
    async def whole() -> None:
        async with running_groups() as node:
            await story(node)

    run(whole())


def joining(**changes: object) -> ConsumerGroupHeartbeatRequest:
    said: dict[str, object] = {
        "group_id": GROUP,
        "member_id": "one",
        "member_epoch": 0,
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": ["orders"],
        "topic_partitions": [],
        **changes,
    }
    return ConsumerGroupHeartbeatRequest(**said)  # type: ignore[arg-type]


async def beat(
    node: Node,
    request: ConsumerGroupHeartbeatRequest,
    *,
    version: int = OWN_NAMES,
    session: Session = SESSION,
) -> ConsumerGroupHeartbeatResponse:
    return await ask(
        node, request, ConsumerGroupHeartbeatResponse, version=version, session=session
    )


def test_a_member_is_told_its_partitions_by_topic_id() -> None:
    async def story(node: Node) -> None:
        response = await beat(node, joining())

        assert (response.error_code, response.member_id, response.member_epoch) == (0, "one", 1)
        assert response.heartbeat_interval_ms == 5_000
        assert response.assignment is not None
        (share,) = response.assignment.topic_partitions
        assert share.topic_id == node.topics.describe(SESSION, "orders").topic_id
        assert share.partitions == [0, 1, 2, 3]

        again = await beat(node, ConsumerGroupHeartbeatRequest(
            group_id=GROUP, member_id="one", member_epoch=1
        ))  # fmt: skip
        assert (again.error_code, again.member_epoch, again.assignment) == (0, 1, None)

    on_a_node(story)


def test_an_early_client_is_given_an_id_and_a_later_one_must_have_it() -> None:
    async def story(node: Node) -> None:
        early = await beat(node, joining(member_id=""), version=0)
        late = await beat(node, joining(member_id=""))

        assert early.error_code == 0
        assert early.member_id
        assert late.error_code == ErrorCode.INVALID_REQUEST

    on_a_node(story)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"topic_partitions": None}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"server_assignor": "nope"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"subscribed_topic_regex": "("}, ErrorCode.INVALID_REGULAR_EXPRESSION),
        ({"member_epoch": 1, "member_id": "two"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_epoch": 2}, ErrorCode.FENCED_MEMBER_EPOCH),
        ({"group_id": "other", "member_epoch": 1}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"instance_id": "i", "member_id": "two"}, ErrorCode.UNRELEASED_INSTANCE_ID),
        ({"instance_id": "i", "member_id": "two", "member_epoch": 1}, ErrorCode.FENCED_INSTANCE_ID),
    ],
)
def test_a_member_is_told_what_is_wrong(changes: dict[str, object], code: ErrorCode) -> None:
    async def story(node: Node) -> None:
        await beat(node, joining(instance_id="i"))

        response = await beat(node, joining(**changes))

        assert response.error_code == code
        assert response.error_message

    on_a_node(story)


def test_a_disk_that_is_full_is_a_reason_to_ask_again() -> None:
    async def story() -> None:
        files = CrashingFiles()
        async with running_groups(files=files) as node:
            files.space_left = 0
            response = await beat(node, joining())
            files.space_left = None

            assert response.error_code == ErrorCode.NOT_COORDINATOR

    run(story())


def test_a_group_is_described_as_what_it_is() -> None:
    async def story(node: Node) -> None:
        await beat(node, joining(subscribed_topic_regex="ord.*", rack_id="r1"))

        described = await ask(
            node,
            ConsumerGroupDescribeRequest(group_ids=[GROUP, "other"]),
            ConsumerGroupDescribeResponse,
        )
        classic = await ask(node, DescribeGroupsRequest(groups=[GROUP]), DescribeGroupsResponse)

        group, other = described.groups
        assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Stable", 1, 1)
        assert group.assignor_name == "uniform"
        (member,) = group.members
        assert (member.member_id, member.member_epoch, member.rack_id) == ("one", 1, "r1")
        assert member.subscribed_topic_names == ["orders"]
        assert member.subscribed_topic_regex == "ord.*"
        assert member.assignment == member.target_assignment
        (share,) = member.assignment.topic_partitions
        assert (share.topic_name, share.partitions) == ("orders", [0, 1, 2, 3])
        assert member.member_type == 1
        assert other.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert classic.groups[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND

    on_a_node(story)


@pytest.mark.parametrize(
    ("types", "states", "is_listed"),
    [([], [], True), (["consumer"], ["stable"], True), (["Classic"], [], False),
     ([], ["Empty"], False)],
)  # fmt: skip
def test_a_group_is_listed_by_type_and_state(
    types: list[str], states: list[str], is_listed: bool
) -> None:
    async def story(node: Node) -> None:
        await beat(node, joining())

        listed = await ask(
            node,
            ListGroupsRequest(types_filter=types, states_filter=states),
            ListGroupsResponse,
        )

        groups = [(g.group_id, g.protocol_type, g.group_state, g.group_type) for g in listed.groups]
        assert groups == [(GROUP, "consumer", "Stable", "Consumer")][: int(is_listed)]

    on_a_node(story)


def test_a_classic_member_is_kept_out() -> None:
    async def story(node: Node) -> None:
        await beat(node, joining())
        protocol = JoinGroupRequest.Protocol(name="range", metadata=b"")

        refused = await ask(
            node,
            JoinGroupRequest(
                group_id=GROUP,
                session_timeout_ms=10_000,
                rebalance_timeout_ms=10_000,
                member_id="",
                protocol_type="consumer",
                protocols=[protocol],
            ),
            JoinGroupResponse,
        )

        assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    on_a_node(story)


@pytest.mark.parametrize(
    ("member_id", "epoch", "code"),
    [("one", 1, 0), ("one", 2, ErrorCode.STALE_MEMBER_EPOCH),
     ("two", 1, ErrorCode.UNKNOWN_MEMBER_ID)],
)  # fmt: skip
def test_offsets_are_committed_and_asked_for_in_the_epoch_of_the_member(
    member_id: str, epoch: int, code: int
) -> None:
    async def story(node: Node) -> None:
        await beat(node, joining())
        part = OffsetCommitRequest.Topic.Partition(partition_index=0, committed_offset=7)
        asked = OffsetFetchRequest.Group.Topic(name="orders", partition_indexes=[0])

        committed = await ask(
            node,
            OffsetCommitRequest(
                group_id=GROUP,
                generation_id_or_member_epoch=epoch,
                member_id=member_id,
                topics=[OffsetCommitRequest.Topic(name="orders", partitions=[part])],
            ),
            OffsetCommitResponse,
            version=9,
        )
        fetched = await ask(
            node,
            OffsetFetchRequest(
                groups=[
                    OffsetFetchRequest.Group(
                        group_id=GROUP, member_id=member_id, member_epoch=epoch, topics=[asked]
                    )
                ]
            ),
            OffsetFetchResponse,
            version=9,
        )

        assert committed.topics[0].partitions[0].error_code == code
        assert fetched.groups[0].error_code == code
        offsets = [p.committed_offset for t in fetched.groups[0].topics for p in t.partitions]
        assert offsets == ([7] if code == 0 else [])

    on_a_node(story)


def test_a_stranger_is_no_group_member_where_there_are_rights() -> None:
    class OnlyFriends(Everyone):
        def allows(self, session: Session, operation: object, resource: str) -> bool:
            return session == SESSION

    async def story() -> None:
        async with running_groups(policy=OnlyFriends()) as node:
            response = await beat(node, joining(), session=STRANGER)

            assert response.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED

    run(story())
