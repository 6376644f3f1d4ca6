"""Handlers of configs: DescribeConfigs, AlterConfigs and IncrementalAlterConfigs.

`config_table` has the configs of topics, `broker_config_table` those of nodes, `resource_configs`
all others.
"""

from collections import Counter
from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple, assert_never

from millstream.config import Config
from millstream.control.resources import ResourceKind
from millstream.engine.gate import Operation
from millstream.errors import InvalidRequest, InvalidSetting, RequestError
from millstream.kafka_wire.apis.configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from millstream.kafka_wire.error_codes import ErrorCode, code_for, control_code_for
from millstream.protocols.kafka.context import Context
from millstream.protocols.kafka.gateway import Handler
from millstream.protocols.kafka.handlers.broker_config_table import every_node_entries, node_entries
from millstream.protocols.kafka.handlers.config_table import (
    FIXED_CONFIGS,
    Entry,
    TopicConfig,
    check_name,
    error_text,
    is_known,
    is_list,
    is_setting,
    own_config,
    topic_entries,
)
from millstream.protocols.kafka.handlers.resource_configs import (
    NAMES,
    check_level,
    client_metrics_entries,
    group_entries,
    logger_entries,
    set_level,
    setting_of,
)
from millstream.protocols.kafka.handlers.resource_configs import is_list as is_list_of


class ResourceType(IntEnum):
    """Types of config resources, by Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Change(IntEnum):
    """Operations of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


_EVERY_RESOURCE = 1  # The version of ListConfigResources that can ask for all of them.

KINDS = {
    ResourceType.BROKER: ResourceKind.NODE,
    ResourceType.GROUP: ResourceKind.GROUP,
    ResourceType.CLIENT_METRICS: ResourceKind.CLIENT_METRICS,
}

_Described = DescribeConfigsResponse.Result
_Outcome = tuple[ErrorCode, str | None]


class _Edit(NamedTuple):
    name: str
    operation: int
    value: str | None


class _Alteration(NamedTuple):
    """The edits of one resource in a request; `replaces`: configs it does not name are unset."""

    resource_type: int
    name: str
    edits: list[_Edit]
    replaces: bool


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
        result.error_code, result.error_message = code_for(problem), error_text(problem)
        return result
    # As in Kafka, an empty list of names asks for all of them, like none at all.
    names = set(resource.configuration_keys or ())
    result.configs = [
        _config(entry, request) for entry in entries if not names or entry.name in names
    ]
    return result


def _entries(context: Context, resource_type: int, name: str) -> list[Entry]:
    broker, session = context.broker, context.session
    match resource_type:
        case ResourceType.TOPIC:
            topic = broker.topics.describe_configs(session, name)
            return topic_entries(topic.overrides, context.inherited)
        case ResourceType.BROKER:
            config = broker.topics.node_config(session)
            if not name:
                return every_node_entries(context.inherited)
            _check_node(config, name)
            return node_entries(config, context.dialled, context.inherited)
        case ResourceType.BROKER_LOGGER:
            broker.resources.admit_to_loggers(session, Operation.DESCRIBE_CONFIGS)
            _check_node(broker.config, name)
            return logger_entries()
        case ResourceType.GROUP:
            overrides = broker.resources.describe(session, ResourceKind.GROUP, name)
            return group_entries(overrides, broker.config)
        case ResourceType.CLIENT_METRICS:
            overrides = broker.resources.describe(session, ResourceKind.CLIENT_METRICS, name)
            return client_metrics_entries(overrides)
        case _:
            raise InvalidRequest(_unknown(resource_type))


def _held_entries(
    context: Context, kind: ResourceKind, name: str, held: Mapping[str, str]
) -> list[Entry]:
    """The entries that a change starts from; whether they may be changed was asked before."""
    match kind:
        case ResourceKind.NODE:
            if not name:
                return every_node_entries(context.inherited)
            _check_node(context.broker.config, name)
            return node_entries(context.broker.config, context.dialled, context.inherited)
        case ResourceKind.GROUP:
            return group_entries(held, context.broker.config)
        case ResourceKind.CLIENT_METRICS:
            return client_metrics_entries(held)
        case _:
            assert_never(kind)


def _check_node(config: Config, name: str) -> None:
    if name != str(config.node_id):
        raise InvalidRequest(f"this is node {config.node_id}, not {name[:100]!r}")


def _config(entry: Entry, request: DescribeConfigsRequest) -> _Described.Config:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return _Described.Config(
        name=entry.name,
        value=entry.value,
        read_only=entry.is_read_only,
        config_source=entry.source,
        is_sensitive=False,
        synonyms=[
            _Described.Config.Synonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in synonyms
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
        context.broker.topics.admit_to_cluster(context.session, Operation.DESCRIBE_CONFIGS)
        for kind in dict.fromkeys(kinds):
            answer.config_resources += [
                ListConfigResourcesResponse.Resource(resource_name=name, resource_type=kind)
                for name in _names(context, kind)
            ]
    except RequestError as problem:
        return ListConfigResourcesResponse(error_code=code_for(problem), config_resources=[])
    return answer


def _unknown(kind: int) -> str:
    known = ", ".join(member.name for member in ResourceType)
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
            return context.broker.resources.names(session, KINDS[ResourceType(kind)])
        case _:
            raise InvalidRequest(_unknown(kind))


# -- alter -------------------------------------------------------------------------------------


async def alter_configs(context: Context, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """Replace: what the request does not name goes back to its default."""
    alterations = [
        _Alteration(
            resource.resource_type,
            resource.resource_name,
            [_Edit(config.name, Change.SET, config.value) for config in resource.configs],
            replaces=True,
        )
        for resource in request.resources
    ]
    outcomes = await _alter_all(context, alterations, validate_only=request.validate_only)
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
    alterations = [
        _Alteration(
            resource.resource_type,
            resource.resource_name,
            [
                _Edit(config.name, config.config_operation, config.value)
                for config in resource.configs
            ],
            replaces=False,
        )
        for resource in request.resources
    ]
    outcomes = await _alter_all(context, alterations, validate_only=request.validate_only)
    return IncrementalAlterConfigsResponse(
        responses=[
            IncrementalAlterConfigsResponse.Result(
                error_code=code, error_message=message, resource_type=kind, resource_name=name
            )
            for (kind, name), (code, message) in outcomes.items()
        ]
    )


async def _alter_all(
    context: Context, alterations: list[_Alteration], *, validate_only: bool
) -> dict[tuple[int, str], _Outcome]:
    copies = Counter((alteration.resource_type, alteration.name) for alteration in alterations)
    outcomes: dict[tuple[int, str], _Outcome] = {}
    for alteration in alterations:
        which = (alteration.resource_type, alteration.name)
        if which in outcomes:
            continue
        try:
            if copies[which] > 1:
                raise InvalidRequest("a resource is altered once in a request")
            _check_once(alteration.edits)
            await _alter(context, alteration, validate_only=validate_only)
        except RequestError as problem:
            is_node = alteration.resource_type == ResourceType.BROKER
            outcomes[which] = control_code_for(problem), error_text(problem, is_node=is_node)
        else:
            outcomes[which] = ErrorCode.NONE, None
    return outcomes


def _check_once(edits: list[_Edit]) -> None:
    for name, times in Counter(edit.name for edit in edits).items():
        if times > 1:
            raise InvalidRequest(f"{name[:100]} is changed twice")


async def _alter(context: Context, alteration: _Alteration, *, validate_only: bool) -> None:
    match alteration.resource_type:
        case ResourceType.TOPIC:
            await _alter_topic(context, alteration, validate_only=validate_only)
        case ResourceType.BROKER | ResourceType.GROUP | ResourceType.CLIENT_METRICS:
            await _alter_resource(context, alteration, validate_only=validate_only)
        case ResourceType.BROKER_LOGGER:
            _alter_loggers(context, alteration, validate_only=validate_only)
        case _:
            raise InvalidRequest(_unknown(alteration.resource_type))


def _own_edit(edit: _Edit) -> _Edit:
    name, value = own_config(edit.name, edit.value)
    return edit._replace(name=name, value=value)


async def _alter_topic(context: Context, alteration: _Alteration, *, validate_only: bool) -> None:
    topics, session = context.broker.topics, context.session
    topic = topics.open_configs(session, alteration.name)
    changes: dict[str, str | None] = dict.fromkeys(topic.overrides) if alteration.replaces else {}
    entries = topic_entries(topic.overrides, context.inherited)
    current = {entry.name: entry.value or "" for entry in entries}
    for edit in map(_own_edit, alteration.edits):
        if edit.operation == Change.DELETE and not is_known(edit.name):
            # As in Kafka: what is not set, and could not be, is not there afterwards. Another
            # version may have set it.
            if TopicConfig.setting(edit.name) in topic.overrides:
                changes[TopicConfig.setting(edit.name)] = None
            continue
        check_name(edit.name)
        value = _changed(edit, current[edit.name], is_list=is_list(edit.name))
        if value is None:
            if edit.name not in FIXED_CONFIGS:
                changes[TopicConfig.setting(edit.name)] = None
        elif is_setting(edit.name, value):
            changes[TopicConfig.setting(edit.name)] = value
    if validate_only or not changes:
        topics.check_alter(session, alteration.name, changes)
    else:
        await topics.alter(session, alteration.name, changes)


async def _alter_resource(
    context: Context, alteration: _Alteration, *, validate_only: bool
) -> None:
    resources, session = context.broker.resources, context.session
    kind = KINDS[ResourceType(alteration.resource_type)]
    held = resources.open(session, kind, alteration.name)
    changes: dict[str, str | None] = dict.fromkeys(held) if alteration.replaces else {}
    current = {
        entry.name: entry.value or ""
        for entry in _held_entries(context, kind, alteration.name, held)
    }
    for edit in alteration.edits:
        if edit.operation == Change.DELETE:
            taken_back = NAMES[kind].get(edit.name)
            if taken_back is not None and taken_back in held:
                changes[taken_back] = None
            continue  # What is not set is not there afterwards.
        setting = setting_of(kind, edit.name)
        is_a_list = is_list_of(kind, edit.name)
        changes[setting] = _changed(edit, current.get(edit.name, ""), is_list=is_a_list)
    if validate_only or not changes:
        resources.check_alter(session, kind, alteration.name, changes)
    else:
        await resources.alter(session, kind, alteration.name, changes)


def _alter_loggers(context: Context, alteration: _Alteration, *, validate_only: bool) -> None:
    context.broker.resources.admit_to_loggers(context.session, Operation.ALTER_CONFIGS)
    _check_node(context.broker.config, alteration.name)
    if alteration.replaces:
        raise InvalidRequest("levels of loggers are changed one by one: IncrementalAlterConfigs")
    levels = {edit.name: _changed(edit, "", is_list=False) for edit in alteration.edits}
    for name, level in levels.items():
        check_level(name, level)
    if not validate_only:
        for name, level in levels.items():
            set_level(name, level)


def _changed(edit: _Edit, current: str, *, is_list: bool) -> str | None:
    """The value that a config has after the change; None: its default."""
    name, value = edit.name, edit.value
    if edit.operation not in set(Change):
        raise InvalidRequest(f"operation {edit.operation} on {name} is not known")
    change = Change(edit.operation)
    if change is Change.DELETE:
        return None
    if value is None:
        raise InvalidSetting(f"{name} has no value")
    if change is Change.SET:
        return value
    if not is_list:
        raise InvalidSetting(f"{name} is not a list that could be added to or taken from")
    held = [part for part in current.split(",") if part]
    items = [part.strip() for part in value.split(",")]
    match change:
        case Change.APPEND:
            return ",".join(dict.fromkeys([*held, *items]))
        case Change.SUBTRACT:
            return ",".join(part for part in held if part not in items)
        case _:
            assert_never(change)


HANDLERS: dict[int, Handler] = {
    74: list_config_resources,
    32: describe_configs,
    33: alter_configs,
    44: incremental_alter_configs,
}
