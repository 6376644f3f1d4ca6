"""Handlers of consumer groups: finding a coordinator, membership, and describing groups.

Translates between Kafka's requests and the engine's groups. Subscriptions and assignments, which
members exchange through the broker, are opaque bytes here.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from millstream.engine.groups.classic.vocabulary import GroupState, Leaver
from millstream.errors import RequestError
from millstream.errors.groups import GroupNotFound, MemberIdRequired
from millstream.internal_topics.groups import Protocol
from millstream.kafka_wire.apis.discovery import FindCoordinatorRequest, FindCoordinatorResponse
from millstream.kafka_wire.apis.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from millstream.kafka_wire.error_codes import ErrorCode, code_for
from millstream.kafka_wire.schema import NO_OPERATIONS
from millstream.protocols.kafka.context import Context
from millstream.protocols.kafka.gateway import Handler
from millstream.protocols.kafka.group_states import STATES, type_of

_GROUP_KEY = 0  # The kinds of keys that FindCoordinator is asked for; 2 is not served yet.
_TRANSACTION_KEY = 1
_KEYS_IN_A_LIST = 4
_MEMBER_ID_FIRST = 4
_CAN_SKIP_ASSIGNMENT = 9
_MEMBERS_IN_A_LIST = 3
_TELLS_NOT_FOUND = 6

_Coordinator = FindCoordinatorResponse.Coordinator
_Described = DescribeGroupsResponse.Group


async def find_coordinator(
    context: Context, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    if context.version >= _KEYS_IN_A_LIST:
        return FindCoordinatorResponse(
            coordinators=[
                await _coordinator(context, key, request.key_type)
                for key in request.coordinator_keys
            ]
        )
    coordinator = await _coordinator(context, request.key, request.key_type)
    return FindCoordinatorResponse(
        error_code=coordinator.error_code,
        error_message=coordinator.error_message,
        node_id=coordinator.node_id,
        host=coordinator.host,
        port=coordinator.port,
    )


async def _coordinator(context: Context, key: str, key_type: int) -> _Coordinator:
    try:
        if key_type == _GROUP_KEY:
            node_id = await context.broker.groups.coordinator_of(context.session, key)
        elif key_type == _TRANSACTION_KEY:
            node_id = await context.broker.transactions.coordinator_of(context.session, key)
        else:
            raise RequestError("share groups are not served yet")
    except RequestError as problem:
        code = code_for(problem)
        if code is ErrorCode.UNKNOWN_SERVER_ERROR:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        context.end_if_cut_off()
        return _refused(key, code, str(problem))
    node = context.node(node_id)
    if node is None:
        return _refused(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, f"node {node_id} is not known")
    return _Coordinator(key=key, node_id=node_id, host=node.host, port=node.port)


def _refused(key: str, code: ErrorCode, text: str) -> _Coordinator:
    return _Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=text)


@contextmanager
def _only_for_a_client_that_stays(context: Context) -> Iterator[None]:
    """Close the connection, and with it the wait, as soon as the client closes its side.

    A killed member would otherwise take part in the rebalance, and perhaps lead it.
    """
    pace = context.pace
    if pace.has_ended:
        raise ConnectionResetError("a member closed its connection before its turn came")
    pace.ends_with_client = True
    try:
        yield
    finally:
        pace.ends_with_client = False


# -- membership --------------------------------------------------------------------------------


async def join_group(context: Context, request: JoinGroupRequest) -> JoinGroupResponse:
    timeout_ms = request.rebalance_timeout_ms
    try:
        with _only_for_a_client_that_stays(context):
            joined = await context.broker.groups.join(
                context.session,
                request.group_id,
                protocol_type=request.protocol_type,
                protocols=[
                    Protocol(protocol.name, protocol.metadata) for protocol in request.protocols
                ],
                session_timeout_ms=request.session_timeout_ms,
                # Before v1 there was one timeout for both.
                rebalance_timeout_ms=request.session_timeout_ms if timeout_ms < 0 else timeout_ms,
                member_id=request.member_id,
                instance_id=request.group_instance_id,
                needs_known_id=context.version >= _MEMBER_ID_FIRST,
                can_skip_assignment=context.version >= _CAN_SKIP_ASSIGNMENT,
            )
    except RequestError as problem:
        member_id = problem.member_id if isinstance(problem, MemberIdRequired) else ""
        # Java's consumer reads a null name only from v7 on.
        name = None if context.version >= 7 else ""
        return JoinGroupResponse(
            error_code=code_for(problem),
            protocol_name=name,
            leader="",
            member_id=member_id or request.member_id,
            members=[],
        )
    return JoinGroupResponse(
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name=joined.protocol,
        leader=joined.leader,
        skip_assignment=joined.skips_assignment,
        member_id=joined.member_id,
        members=[
            JoinGroupResponse.Member(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata,
            )
            for member in joined.members
        ],
    )


async def sync_group(context: Context, request: SyncGroupRequest) -> SyncGroupResponse:
    try:
        with _only_for_a_client_that_stays(context):
            synced = await context.broker.groups.sync(
                context.session,
                request.group_id,
                member_id=request.member_id,
                generation=request.generation_id,
                assignments={
                    assignment.member_id: assignment.assignment
                    for assignment in request.assignments
                },
                instance_id=request.group_instance_id,
                protocol_type=request.protocol_type,
                protocol=request.protocol_name,
            )
    except RequestError as problem:
        return SyncGroupResponse(error_code=code_for(problem), assignment=b"")
    return SyncGroupResponse(
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol,
        assignment=synced.assignment,
    )


async def heartbeat(context: Context, request: HeartbeatRequest) -> HeartbeatResponse:
    try:
        await context.broker.groups.heartbeat(
            context.session,
            request.group_id,
            member_id=request.member_id,
            generation=request.generation_id,
            instance_id=request.group_instance_id,
        )
    except RequestError as problem:
        return HeartbeatResponse(error_code=code_for(problem))
    return HeartbeatResponse()


async def leave_group(context: Context, request: LeaveGroupRequest) -> LeaveGroupResponse:
    is_list = context.version >= _MEMBERS_IN_A_LIST
    leavers = (
        [Leaver(member.member_id, member.group_instance_id) for member in request.members]
        if is_list
        else [Leaver(request.member_id)]
    )
    try:
        outcomes = await context.broker.groups.leave(context.session, request.group_id, leavers)
    except RequestError as problem:
        return LeaveGroupResponse(error_code=code_for(problem))
    codes = [ErrorCode.NONE if problem is None else code_for(problem) for problem in outcomes]
    if not is_list:
        return LeaveGroupResponse(error_code=codes[0])
    return LeaveGroupResponse(
        members=[
            LeaveGroupResponse.Member(
                member_id=leaver.member_id, group_instance_id=leaver.instance_id, error_code=code
            )
            for leaver, code in zip(leavers, codes, strict=True)
        ]
    )


# -- administration ----------------------------------------------------------------------------


async def describe_groups(
    context: Context, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(
        groups=[await _described(context, group_id, request) for group_id in request.groups]
    )


async def _described(context: Context, group_id: str, request: DescribeGroupsRequest) -> _Described:
    try:
        group = await context.broker.groups.describe(context.session, group_id)
    except RequestError as problem:
        code = code_for(problem)
        if isinstance(problem, GroupNotFound) and context.version < _TELLS_NOT_FOUND:
            code = ErrorCode.NONE  # Older clients know a group that is not there as a dead one.
        return _Described(
            error_code=code,
            error_message=str(problem),
            group_id=group_id,
            group_state=STATES[GroupState.DEAD],
            protocol_type="",
            protocol_data="",
            members=[],
        )
    return _Described(
        group_id=group_id,
        group_state=STATES[group.state],
        protocol_type=group.protocol_type,
        protocol_data=group.protocol or "",
        authorized_operations=context.broker.groups.operations(context.session, group_id)
        if request.include_authorized_operations
        else NO_OPERATIONS,
        members=[
            _Described.Member(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in group.members
        ],
    )


def list_groups(context: Context, request: ListGroupsRequest) -> ListGroupsResponse:
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    return ListGroupsResponse(
        groups=[
            ListGroupsResponse.Group(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=STATES[group.state],
                group_type=type_of(group.state),
            )
            for group in context.broker.groups.list(context.session)
            if not states or STATES[group.state].lower() in states
            if not types or type_of(group.state).lower() in types
        ]
    )


async def delete_groups(context: Context, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[await _deleted(context, group_id) for group_id in request.groups_names]
    )


async def _deleted(context: Context, group_id: str) -> DeleteGroupsResponse.Result:
    try:
        await context.broker.groups.delete(context.session, group_id)
    except RequestError as problem:
        return DeleteGroupsResponse.Result(group_id=group_id, error_code=code_for(problem))
    return DeleteGroupsResponse.Result(group_id=group_id)


HANDLERS: dict[int, Handler] = {
    10: find_coordinator,
    11: join_group,
    12: heartbeat,
    13: leave_group,
    14: sync_group,
    15: describe_groups,
    16: list_groups,
    42: delete_groups,
}
