"""Handlers of nodes, for clients that know Millstream: describe, invite, join, alter."""

import msgspec

from millstream.control.nodes import NodeState
from millstream.control.tokens import JoinRequest
from millstream.errors import InvalidRequest, RequestError
from millstream.kafka_wire.apis.cluster import (
    ACTIVE,
    DRAINING,
    LEAVING,
    REMOVED,
    AlterNodeRequest,
    AlterNodeResponse,
    DescribeNodesRequest,
    DescribeNodesResponse,
    InviteNodeRequest,
    InviteNodeResponse,
    JoinClusterRequest,
    JoinClusterResponse,
)
from millstream.kafka_wire.error_codes import control_code_for
from millstream.protocols.kafka.context import Context
from millstream.protocols.kafka.gateway import Handler

_STATES = {
    DRAINING: NodeState.DRAINING,
    ACTIVE: NodeState.ACTIVE,
    REMOVED: NodeState.REMOVED,
    LEAVING: NodeState.LEAVING,
}


async def describe_nodes(context: Context, _request: DescribeNodesRequest) -> DescribeNodesResponse:
    try:
        views = await context.broker.cluster.describe(
            context.session, _listener(context), context.dialled
        )
    except RequestError as problem:
        return DescribeNodesResponse(
            error_code=control_code_for(problem), error_message=str(problem)
        )
    features = context.broker.members.features
    nodes = []
    for view in views:
        levels = features.known_by.get(view.node_id, features.known)
        nodes.append(
            DescribeNodesResponse.Node(
                **view._asdict(), level_lowest=levels.lowest, level_highest=levels.highest
            )
        )
    return DescribeNodesResponse(
        cluster_id=context.broker.cluster_id, nodes=nodes, level=features.level
    )


async def invite_node(context: Context, _request: InviteNodeRequest) -> InviteNodeResponse:
    members, listener = context.broker.members, _listener(context)
    endpoints = members.endpoints(listener, context.dialled)
    # This node first: it is known to be reachable.
    endpoints.sort(key=lambda each: each.node_id != context.broker.node_id)
    try:
        addresses = tuple(f"{each.host}:{each.port}" for each in endpoints)
        return InviteNodeResponse(
            token=await context.broker.cluster.invite(context.session, addresses)
        )
    except RequestError as problem:
        return InviteNodeResponse(error_code=control_code_for(problem), error_message=str(problem))


async def join_cluster(context: Context, request: JoinClusterRequest) -> JoinClusterResponse:
    try:
        try:
            newcomer = msgspec.json.decode(request.request, type=JoinRequest)
        except msgspec.MsgspecError as problem:
            raise InvalidRequest(
                f"the request of a newcomer was not understood: {problem}"
            ) from None
        admission = await context.broker.members.admit(
            context.session, bytes(request.invitation), newcomer, bytes(request.proof)
        )
        return JoinClusterResponse(admission=msgspec.json.encode(admission))
    except RequestError as problem:
        return JoinClusterResponse(error_code=control_code_for(problem), error_message=str(problem))


async def alter_node(context: Context, request: AlterNodeRequest) -> AlterNodeResponse:
    try:
        state = _STATES.get(request.state)
        if state is None:
            raise InvalidRequest(f"{request.state} is no state of a node")
        cluster, session = context.broker.cluster, context.session
        if state is NodeState.LEAVING:
            successor = request.successor or None
            if request.is_dry:
                cluster.check_decommission(session, request.node_id, successor)
            else:
                await cluster.decommission(session, request.node_id, successor)
        else:
            await cluster.change(session, request.node_id, state)
        return AlterNodeResponse()
    except RequestError as problem:
        return AlterNodeResponse(error_code=control_code_for(problem), error_message=str(problem))


def _listener(context: Context) -> str:
    return context.session.listener


HANDLERS: dict[int, Handler] = {
    10_040: describe_nodes,
    10_041: invite_node,
    10_042: join_cluster,
    10_043: alter_node,
}
