"""Handlers of consumer groups (KIP-848): ConsumerGroupHeartbeat, ConsumerGroupDescribe.

Owns the translation between Kafka's requests and the engine's consumer groups.
"""

from collections.abc import Iterable

from millstream.engine.groups.consumer.views import ConsumerDescription, Share
from millstream.engine.groups.consumer.vocabulary import Beat
from millstream.errors import InvalidRequest, Overloaded, RequestError, StorageUnavailable
from millstream.internal_topics.consumer_groups import listed
from millstream.kafka_wire.apis.groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from millstream.kafka_wire.error_codes import ErrorCode, code_for
from millstream.kafka_wire.schema import NO_OPERATIONS
from millstream.model import LogId
from millstream.protocols.kafka.context import Context
from millstream.protocols.kafka.gateway import Handler
from millstream.protocols.kafka.group_states import STATES

# Members retry after these codes; after any other they give up for good.
_HEARTBEAT_CODES: dict[type[RequestError], ErrorCode] = {
    StorageUnavailable: ErrorCode.NOT_COORDINATOR,
    Overloaded: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
_MEMBERS_NAME_THEMSELVES = 1
_CONSUMER_MEMBER = 1  # Kafka's word for a member that is not on its way from a classic group.

_Assignment = ConsumerGroupHeartbeatResponse.Assignment
_Group = ConsumerGroupDescribeResponse.Group
_Shares = _Group.Member.Assignment


async def heartbeat(
    context: Context, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    try:
        if not request.member_id and context.version >= _MEMBERS_NAME_THEMSELVES:
            raise InvalidRequest("a member has an id of its own making")
        reply = await context.broker.consumer_groups.heartbeat(
            context.session, request.group_id, _beat(request)
        )
    except RequestError as problem:
        return ConsumerGroupHeartbeatResponse(
            error_code=_HEARTBEAT_CODES.get(type(problem)) or code_for(problem),
            error_message=str(problem),
            member_epoch=0,
            heartbeat_interval_ms=0,
        )
    return ConsumerGroupHeartbeatResponse(
        member_id=reply.member_id,
        member_epoch=reply.epoch,
        heartbeat_interval_ms=reply.heartbeat_interval_ms,
        assignment=None if reply.assignment is None else _assignment(reply.assignment),
    )


def _beat(request: ConsumerGroupHeartbeatRequest) -> Beat:
    names, owned = request.subscribed_topic_names, request.topic_partitions
    timeout_ms = request.rebalance_timeout_ms
    return Beat(
        member_id=request.member_id,
        epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=None if timeout_ms < 0 else timeout_ms,
        names=None if names is None else tuple(sorted(set(names))),
        pattern=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=None
        if owned is None
        else frozenset(
            LogId(topic.topic_id, index) for topic in owned for index in topic.partitions
        ),
    )


def _assignment(partitions: Iterable[LogId]) -> _Assignment:
    return _Assignment(
        topic_partitions=[
            _Assignment.TopicPartitions(topic_id=share.topic_id, partitions=list(share.partitions))
            for share in listed(partitions)
        ]
    )


async def describe(
    context: Context, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(
        groups=[await _described(context, group_id, request) for group_id in request.group_ids]
    )


async def _described(
    context: Context, group_id: str, request: ConsumerGroupDescribeRequest
) -> _Group:
    try:
        group = await context.broker.consumer_groups.describe(context.session, group_id)
    except RequestError as problem:
        return _Group(
            error_code=code_for(problem),
            error_message=str(problem),
            group_id=group_id,
            group_state="",
            group_epoch=0,
            assignment_epoch=0,
            assignor_name="",
            members=[],
        )
    return _Group(
        group_id=group_id,
        group_state=STATES[group.state],
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.assignor,
        members=[_member(member) for member in group.members],
        authorized_operations=context.broker.groups.operations(context.session, group_id)
        if request.include_authorized_operations
        else NO_OPERATIONS,
    )


def _member(member: ConsumerDescription) -> _Group.Member:
    return _Group.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.names),
        subscribed_topic_regex=member.pattern or None,
        assignment=_shares(member.assigned),
        target_assignment=_shares(member.target),
        member_type=_CONSUMER_MEMBER,
    )


def _shares(shares: Iterable[Share]) -> _Shares:
    return _Shares(
        topic_partitions=[
            _Shares.TopicPartitions(
                topic_id=share.topic_id,
                topic_name=share.topic,
                partitions=list(share.partitions),
            )
            for share in shares
        ]
    )


HANDLERS: dict[int, Handler] = {68: heartbeat, 69: describe}
