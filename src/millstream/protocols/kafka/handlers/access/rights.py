"""Handlers of roles and explained decisions, for clients that know Millstream."""

from millstream.control.acls import AclOperation, ResourceType
from millstream.engine.access.acls import Question
from millstream.errors import InvalidRequest, RequestError
from millstream.kafka_wire.apis.rights import (
    AlterRolesRequest,
    AlterRolesResponse,
    DescribeRolesRequest,
    DescribeRolesResponse,
    ExplainAccessRequest,
    ExplainAccessResponse,
)
from millstream.kafka_wire.error_codes import control_code_for
from millstream.model import Principal
from millstream.protocols.kafka.context import Context
from millstream.protocols.kafka.gateway import Handler

_CREATE = 0


def describe_roles(context: Context, _request: DescribeRolesRequest) -> DescribeRolesResponse:
    try:
        roles = context.broker.access_rules.roles(context.session)
    except RequestError as problem:
        return DescribeRolesResponse(
            error_code=control_code_for(problem), error_message=str(problem)
        )
    return DescribeRolesResponse(
        roles=[
            DescribeRolesResponse.Role(
                name=view.role.name,
                description=view.role.description,
                is_built_in=view.is_built_in,
                created_ms=view.role.created_ms,
                users=list(view.users),
            )
            for view in roles
        ]
    )


async def alter_roles(context: Context, request: AlterRolesRequest) -> AlterRolesResponse:
    results = []
    for change in request.changes:
        result = AlterRolesResponse.Result(name=change.name)
        try:
            await _alter(context, change)
        except RequestError as problem:
            result.error_code, result.error_message = control_code_for(problem), str(problem)
        results.append(result)
    return AlterRolesResponse(results=results)


async def _alter(context: Context, change: AlterRolesRequest.Change) -> None:
    rules, session = context.broker.access_rules, context.session
    match change.action:
        case 0 | 1:
            await rules.put_role(
                session,
                change.name,
                description=change.description,
                must_be_new=change.action == _CREATE,
            )
        case 2:
            await rules.delete_role(session, change.name)
        case action:
            raise InvalidRequest(f"{action} is no change of a role; 0, 1 and 2 are")


def explain_access(context: Context, request: ExplainAccessRequest) -> ExplainAccessResponse:
    try:
        decision = context.broker.access_rules.explain(context.session, _question(request))
    except RequestError as problem:
        return ExplainAccessResponse(
            error_code=control_code_for(problem), error_message=str(problem)
        )
    return ExplainAccessResponse(is_allowed=decision.is_allowed, rule=str(decision.rule))


def _question(request: ExplainAccessRequest) -> Question:
    try:
        return Question(
            Principal.parse(request.principal),
            request.host,
            AclOperation(request.operation),
            ResourceType(request.resource_type),
            request.resource_name,
        )
    except ValueError as problem:
        raise InvalidRequest(f"this cannot be asked: {problem}") from None


HANDLERS: dict[int, Handler] = {
    10_013: describe_roles,
    10_014: alter_roles,
    10_016: explain_access,
}
