"""Handlers of ACLs: DescribeAcls, CreateAcls, DeleteAcls.

Owns the translation between Kafka's numbers and the engine's ACLs.
"""

from collections.abc import Iterable

from millstream.control.acls import Acl, AclFilter, make_acl
from millstream.errors import RequestError
from millstream.kafka_wire.apis.security import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from millstream.kafka_wire.error_codes import control_code_for
from millstream.protocols.kafka.context import Context
from millstream.protocols.kafka.gateway import Handler

_Resource = DescribeAclsResponse.Resource
_Deleted = DeleteAclsResponse.FilterResult


def describe_acls(context: Context, request: DescribeAclsRequest) -> DescribeAclsResponse:
    try:
        acls = context.broker.access_rules.acls(context.session, _filter(request))
    except RequestError as problem:
        return DescribeAclsResponse(
            error_code=control_code_for(problem), error_message=str(problem), resources=[]
        )
    return DescribeAclsResponse(resources=_by_resource(acls))


async def create_acls(context: Context, request: CreateAclsRequest) -> CreateAclsResponse:
    """Each creation has an outcome of its own; those that can be made are one command."""
    results = [CreateAclsResponse.Result() for _ in request.creations]
    acls: dict[int, Acl] = {}
    for place, creation in enumerate(request.creations):
        try:
            acls[place] = _acl(creation)
        except RequestError as problem:
            _refuse(results[place], problem)
    places = list(acls)
    try:
        refusals = await context.broker.access_rules.create(context.session, list(acls.values()))
    except RequestError as problem:
        for result in results:
            _refuse(result, problem)
    else:
        for at, refusal in refusals.items():
            _refuse(results[places[at]], refusal)
    return CreateAclsResponse(results=results)


async def delete_acls(context: Context, request: DeleteAclsRequest) -> DeleteAclsResponse:
    results = [_Deleted(matching_acls=[]) for _ in request.filters]
    filters: dict[int, AclFilter] = {}
    for place, entry in enumerate(request.filters):
        acl_filter = _filter(entry)
        try:
            acl_filter.check()
        except RequestError as problem:
            _refuse(results[place], problem)
        else:
            filters[place] = acl_filter
    try:
        removed = await context.broker.access_rules.delete(context.session, list(filters.values()))
    except RequestError as problem:
        for result in results:
            _refuse(result, problem)
    else:
        for place, acls in zip(filters, removed, strict=True):
            results[place].matching_acls = [_matching(acl) for acl in acls]
    return DeleteAclsResponse(filter_results=results)


def _refuse(result: CreateAclsResponse.Result | _Deleted, problem: RequestError) -> None:
    result.error_code, result.error_message = control_code_for(problem), str(problem)


def _filter(request: DescribeAclsRequest | DeleteAclsRequest.Filter) -> AclFilter:
    return AclFilter(
        request.resource_type_filter,
        request.resource_name_filter,
        request.pattern_type_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )


def _acl(creation: CreateAclsRequest.Creation) -> Acl:
    return make_acl(
        resource_type=creation.resource_type,
        resource_name=creation.resource_name,
        pattern_type=creation.resource_pattern_type,
        principal=creation.principal,
        host=creation.host,
        operation=creation.operation,
        permission=creation.permission_type,
    )


def _by_resource(acls: Iterable[Acl]) -> list[_Resource]:
    resources: dict[object, _Resource] = {}
    for acl in acls:
        resource = resources.get(acl.pattern)
        if resource is None:
            resource = resources[acl.pattern] = _Resource(
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                pattern_type=acl.pattern_type,
                acls=[],
            )
        resource.acls.append(
            _Resource.Acl(
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
        )
    return list(resources.values())


def _matching(acl: Acl) -> _Deleted.MatchingAcl:
    return _Deleted.MatchingAcl(
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


HANDLERS: dict[int, Handler] = {29: describe_acls, 30: create_acls, 31: delete_acls}
