"""Handlers of configs: DescribeConfigs, and the two ways to alter them.

Owns what the requests mean; which configs there are is `config_table`'s. Topics can be altered,
nodes only described: a node is configured when it starts.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import TypeVar, assert_never

from millstream.control.catalog import Topic
from millstream.errors import InvalidRequest, InvalidSetting, RequestError
from millstream.protocols.kafka.apis.configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from millstream.protocols.kafka.broker_config_table import node_entries
from millstream.protocols.kafka.config_table import (
    FIXED_CONFIGS,
    Entry,
    TopicConfig,
    check_name,
    is_known,
    is_list,
    is_setting,
    read_overrides,
    topic_entries,
)
from millstream.protocols.kafka.context import Context
from millstream.protocols.kafka.error_codes import ErrorCode, code_for, control_code_for
from millstream.protocols.kafka.gateway import Handler


class ResourceType(IntEnum):
    """What has configs, by Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Change(IntEnum):
    """What IncrementalAlterConfigs does to a config."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


_EVERY_RESOURCE = 1  # The version of ListConfigResources that can ask for all of them.

Changes = Mapping[str, str | None]  # By our names; None: back to the default.
_Described = DescribeConfigsResponse.Result
_Resource = TypeVar(
    "_Resource", AlterConfigsRequest.Resource, IncrementalAlterConfigsRequest.Resource
)


# -- describe ----------------------------------------------------------------------------------


def describe_configs(context: Context, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=[_described(context, resource, request) for resource in request.resources]
    )


def _described(
    context: Context, resource: DescribeConfigsRequest.Resource, request: DescribeConfigsRequest
) -> _Described:
    result = _Described(
        resource_type=resource.resource_type, resource_name=resource.resource_name, configs=[]
    )
    try:
        entries = _entries(context, resource.resource_type, resource.resource_name)
    except RequestError as problem:
        result.error_code, result.error_message = code_for(problem), str(problem)
        return result
    # As in Kafka, an empty list of names asks for all of them, like none at all.
    wanted = set(resource.configuration_keys or ())
    result.configs = [
        _config(entry, request) for entry in entries if not wanted or entry.name in wanted
    ]
    return result


def _entries(context: Context, resource_type: int, name: str) -> list[Entry]:
    broker, session = context.broker, context.session
    if resource_type == ResourceType.TOPIC:
        topic = broker.topics.describe(session, name)
        return topic_entries(topic.overrides, broker.config.topic_defaults)
    if resource_type != ResourceType.BROKER:
        raise InvalidRequest(_unknown(resource_type))
    config = broker.topics.node_config(session)
    if not name:
        return []  # The defaults for all nodes that were set while they ran: there are none.
    if name != str(config.node_id):
        raise InvalidRequest(f"this is node {config.node_id}, not {name[:100]!r}")
    return node_entries(config, context.dialled)


def _config(entry: Entry, request: DescribeConfigsRequest) -> _Described.Config:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return _Described.Config(
        name=entry.name,
        value=entry.value,
        read_only=entry.is_read_only,
        config_source=entry.source,
        is_sensitive=False,
        synonyms=[
            _Described.Config.Synonym(name=one.name, value=one.value, source=one.source)
            for one in synonyms
        ],
        config_type=entry.kind,
        documentation=entry.meaning if request.include_documentation else None,
    )


# -- list --------------------------------------------------------------------------------------


def list_config_resources(
    context: Context, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    """Everything that has configs; version 0 knows client metrics only."""
    kinds = request.resource_types or list(ResourceType)
    if context.version < _EVERY_RESOURCE:
        kinds = [ResourceType.CLIENT_METRICS]
    answer = ListConfigResourcesResponse(config_resources=[])
    if not set(kinds) <= set(ResourceType):
        answer.error_code = ErrorCode.UNSUPPORTED_VERSION  # As Kafka answers for unknown types.
        return answer
    try:
        for kind in dict.fromkeys(kinds):
            answer.config_resources += [
                ListConfigResourcesResponse.Resource(resource_name=name, resource_type=kind)
                for name in _names(context, kind)
            ]
    except RequestError as problem:
        return ListConfigResourcesResponse(error_code=code_for(problem), config_resources=[])
    return answer


def _unknown(kind: int) -> str:
    known = ", ".join(one.name for one in ResourceType)
    if kind in set(ResourceType):
        return f"{ResourceType(kind).name} resources have no configs here"
    return f"there is no config resource of type {kind}; there are {known}"


def _names(context: Context, kind: int) -> list[str]:
    """The resources of a kind, by name."""
    topics, session = context.broker.topics, context.session
    match kind:
        case ResourceType.TOPIC:
            return [topic.name for topic in topics.list(session)]
        case ResourceType.BROKER | ResourceType.BROKER_LOGGER:
            return [str(topics.node_config(session).node_id)]
        case ResourceType.CLIENT_METRICS | ResourceType.GROUP:
            return []
        case _:
            raise InvalidRequest(_unknown(kind))


# -- alter -------------------------------------------------------------------------------------


async def alter_configs(context: Context, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """Replace: what the request does not name goes back to its default."""
    outcomes = await _alter_all(
        context, request.resources, _replaced, validate_only=request.validate_only
    )
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResponse.Result(
                error_code=code, error_message=message, resource_type=kind, resource_name=name
            )
            for (kind, name), (code, message) in outcomes.items()
        ]
    )


async def incremental_alter_configs(
    context: Context, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Change what the request names and nothing else."""
    outcomes = await _alter_all(
        context, request.resources, _incremented, validate_only=request.validate_only
    )
    return IncrementalAlterConfigsResponse(
        responses=[
            IncrementalAlterConfigsResponse.Result(
                error_code=code, error_message=message, resource_type=kind, resource_name=name
            )
            for (kind, name), (code, message) in outcomes.items()
        ]
    )


_Outcome = tuple[ErrorCode, str | None]
_Reading = Callable[[Context, Topic, _Resource], Changes]


async def _alter_all(
    context: Context, resources: list[_Resource], read: _Reading[_Resource], *, validate_only: bool
) -> dict[tuple[int, str], _Outcome]:
    copies = Counter((one.resource_type, one.resource_name) for one in resources)
    outcomes: dict[tuple[int, str], _Outcome] = {}
    for resource in resources:
        which = (resource.resource_type, resource.resource_name)
        if which in outcomes:
            continue
        try:
            if copies[which] > 1:
                raise InvalidRequest("a resource is altered once in a request")
            await _alter(context, resource, read, validate_only=validate_only)
        except RequestError as problem:
            outcomes[which] = control_code_for(problem), str(problem)
        else:
            outcomes[which] = ErrorCode.NONE, None
    return outcomes


async def _alter(
    context: Context, resource: _Resource, read: _Reading[_Resource], *, validate_only: bool
) -> None:
    topics, session, name = context.broker.topics, context.session, resource.resource_name
    if resource.resource_type == ResourceType.BROKER:
        raise InvalidRequest("a node is configured when it starts, it cannot be altered")
    if resource.resource_type != ResourceType.TOPIC:
        raise InvalidRequest(_unknown(resource.resource_type))
    changes = read(context, topics.describe(session, name), resource)
    if validate_only or not changes:
        topics.check_alter(session, name, changes)
    else:
        await topics.alter(session, name, changes)


def _replaced(context: Context, topic: Topic, resource: AlterConfigsRequest.Resource) -> Changes:
    overrides = read_overrides((config.name, config.value) for config in resource.configs)
    return {**dict.fromkeys(topic.overrides), **overrides}


def _incremented(
    context: Context, topic: Topic, resource: IncrementalAlterConfigsRequest.Resource
) -> Changes:
    entries = topic_entries(topic.overrides, context.broker.config.topic_defaults)
    current = {entry.name: entry.value or "" for entry in entries}
    changes: dict[str, str | None] = {}
    seen: set[str] = set()
    for config in resource.configs:
        name = config.name
        if name in seen:
            raise InvalidRequest(f"{name[:100]} is changed twice")
        seen.add(name)
        if config.config_operation == Change.DELETE and not is_known(name):
            continue  # As in Kafka: what is not set, and could not be, is not there afterwards.
        check_name(name)
        value = _changed(name, config.config_operation, current[name], config.value)
        if value is None:
            if name not in FIXED_CONFIGS:
                changes[TopicConfig.setting(name)] = None
        elif is_setting(name, value):
            changes[TopicConfig.setting(name)] = value
    return changes


def _changed(name: str, operation: int, current: str, value: str | None) -> str | None:
    """The value that a config has after the change; None: its default."""
    if operation not in set(Change):
        raise InvalidRequest(f"operation {operation} on {name} is not known")
    change = Change(operation)
    if change is Change.DELETE:
        return None
    if value is None:
        raise InvalidSetting(f"{name} has no value")
    if change is Change.SET:
        return value
    if not is_list(name):
        raise InvalidSetting(f"{name} is not a list that could be added to or taken from")
    held = [part for part in current.split(",") if part]
    given = [part.strip() for part in value.split(",")]
    match change:
        case Change.APPEND:
            return ",".join(dict.fromkeys([*held, *given]))
        case Change.SUBTRACT:
            return ",".join(part for part in held if part not in given)
        case _:
            assert_never(change)


HANDLERS: dict[int, Handler] = {
    74: list_config_resources,
    32: describe_configs,
    33: alter_configs,
    44: incremental_alter_configs,
}
