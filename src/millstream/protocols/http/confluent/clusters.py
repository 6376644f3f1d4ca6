"""Clusters, topics, settings, partitions and consumer groups of Confluent's REST proxy."""

from collections.abc import Generator
from http import HTTPStatus
from typing import Annotated, Literal

import msgspec

from millstream.control.catalog import Topic
from millstream.engine.gate import Operation
from millstream.errors.groups import GroupNotFound
from millstream.names import INTERNAL_TOPICS
from millstream.protocols.http.admin import topics as admin
from millstream.protocols.http.admin.groups import GroupDetail, describe
from millstream.protocols.http.calls import Call
from millstream.protocols.http.confluent.shapes import (
    ClusterParams,
    GroupParams,
    JsonObject,
    TopicParams,
    check_cluster,
    listing,
    path_of,
    resource,
    route,
)
from millstream.protocols.http.router import Params, Right

STEP_TOPICS = 50
Positive = Annotated[int, msgspec.Meta(ge=1)]


class Config(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    value: str | None = None


class NewTopic(msgspec.Struct, frozen=True, kw_only=True):
    topic_name: str
    partitions_count: Positive | None = None
    replication_factor: Positive | None = None
    configs: list[Config] = []


class Alteration(Config, frozen=True, kw_only=True):
    operation: Literal["SET", "DELETE"] = "SET"


class Alterations(msgspec.Struct, frozen=True, kw_only=True):
    data: list[Alteration]


def list_clusters(call: Call, params: Params) -> JsonObject:
    call.services.topics.admit_to_cluster(call.session, Operation.DESCRIBE)
    return {
        "kind": "KafkaClusterList",
        "metadata": {"self": "/v3/clusters", "next": None},
        "data": [_cluster(call)],
    }


def describe_cluster(call: Call, params: ClusterParams) -> JsonObject:
    call.services.topics.admit_to_cluster(call.session, Operation.DESCRIBE)
    check_cluster(call, params)
    return _cluster(call)


def _cluster(call: Call) -> JsonObject:
    return resource(call, "Cluster", members={}, related=("topics", "consumer-groups"))


# -- topics ----------------------------------------------------------------------------------------


def list_topics(call: Call, params: ClusterParams) -> Generator[None, None, JsonObject]:
    check_cluster(call, params)
    items = []
    for topic in call.services.topics.list(call.session):
        items.append(_topic(call, topic))
        if len(items) % STEP_TOPICS == 0:
            yield
    return listing(call, "Topic", items, "topics")


async def create_topic(call: Call, params: ClusterParams, body: NewTopic) -> JsonObject:
    check_cluster(call, params)
    services = call.services
    topic = await services.topics.create(
        call.session,
        body.topic_name,
        partitions=body.partitions_count or services.config.default_partitions,
        replicas=body.replication_factor or None,
        settings={
            each.name.replace(".", "_"): each.value
            for each in body.configs
            if each.value is not None
        },
    )
    return _topic(call, topic)


def describe_topic(call: Call, params: TopicParams) -> JsonObject:
    check_cluster(call, params)
    return _topic(call, call.services.topics.describe(call.session, params.topic))


async def delete_topic(call: Call, params: TopicParams) -> None:
    check_cluster(call, params)
    await call.services.topics.delete(call.session, params.topic)


def _topic(call: Call, topic: Topic) -> JsonObject:
    return resource(
        call,
        "Topic",
        "topics",
        topic.name,
        members={
            "topic_name": topic.name,
            "is_internal": topic.name in INTERNAL_TOPICS,
            "replication_factor": len(topic.placement[0]),
            "partitions_count": topic.partition_count,
        },
        related=("partitions", "configs"),
    )


def list_configs(call: Call, params: TopicParams) -> JsonObject:
    check_cluster(call, params)
    settings = admin.topic_settings(call, admin.TopicParams(topic=params.topic))
    items = []
    for setting in settings.items:
        name, is_own = setting.name.replace("_", "."), setting.source == "topic"
        members = {
            "topic_name": params.topic,
            "name": name,
            "value": setting.value,
            "is_default": not is_own,
            "is_read_only": False,
            "is_sensitive": False,
            "source": "DYNAMIC_TOPIC_CONFIG" if is_own else "DEFAULT_CONFIG",
            "synonyms": [],
        }
        place = ("topics", params.topic, "configs", name)
        items.append(resource(call, "TopicConfig", *place, members=members))
    return listing(call, "TopicConfig", items, "topics", params.topic, "configs")


async def alter_configs(call: Call, params: TopicParams, body: Alterations) -> None:
    check_cluster(call, params)
    changes = {
        each.name.replace(".", "_"): None if each.operation == "DELETE" else each.value
        for each in body.data
    }
    await call.services.topics.alter(call.session, params.topic, changes)


def list_partitions(call: Call, params: TopicParams) -> JsonObject:
    check_cluster(call, params)
    topic = call.services.topics.describe(call.session, params.topic)
    items = []
    for partition, at in enumerate(call.services.partitions.leadership(call.session, topic)):
        place = ("topics", params.topic, "partitions", partition)
        related = f"{path_of(call, *place)}/replicas"
        leader = None if at.leader is None else {"related": f"{related}/{at.leader}"}
        members = {
            "topic_name": params.topic,
            "partition_id": partition,
            "leader": leader,
            "replicas": {"related": related},
        }
        items.append(resource(call, "Partition", *place, members=members))
    return listing(call, "Partition", items, "topics", params.topic, "partitions")


# -- groups ----------------------------------------------------------------------------------------


async def list_groups(call: Call, params: ClusterParams) -> JsonObject:
    check_cluster(call, params)
    items = []
    for group in call.services.groups.list(call.session):
        try:
            items.append(_group(call, await describe(call, group.group_id)))
        except GroupNotFound:
            continue  # Gone since it was listed.
    return listing(call, "ConsumerGroup", items, "consumer-groups")


async def describe_group(call: Call, params: GroupParams) -> JsonObject:
    check_cluster(call, params)
    return _group(call, await describe(call, params.group))


def _group(call: Call, group: GroupDetail) -> JsonObject:
    return resource(
        call,
        "ConsumerGroup",
        "consumer-groups",
        group.name,
        members={
            "consumer_group_id": group.name,
            "is_simple": group.protocol_type != "consumer",
            "partition_assignor": group.assignor or "",
            "state": group.state.upper(),
        },
        related=("lags", "lag-summary"),
    )


async def lags(call: Call, params: GroupParams) -> JsonObject:
    check_cluster(call, params)
    items = _lags(await describe(call, params.group))
    place = ("consumer-groups", params.group, "lags")
    rows = [
        resource(
            call, "ConsumerLag", *place, each["topic_name"], each["partition_id"], members=each
        )
        for each in items
    ]
    return listing(call, "ConsumerLag", rows, *place)


async def lag_summary(call: Call, params: GroupParams) -> JsonObject:
    check_cluster(call, params)
    items = _lags(await describe(call, params.group))
    most = max(items, key=lambda each: each["lag"], default={})
    members = {
        "consumer_group_id": params.group,
        "max_lag_consumer_id": most.get("consumer_id", ""),
        "max_lag_instance_id": most.get("instance_id"),
        "max_lag_client_id": most.get("client_id", ""),
        "max_lag_topic_name": most.get("topic_name", ""),
        "max_lag_partition_id": most.get("partition_id", 0),
        "max_lag": most.get("lag", 0),
        "total_lag": sum(each["lag"] for each in items),
    }
    place = ("consumer-groups", params.group, "lag-summary")
    return resource(call, "ConsumerGroupLagSummary", *place, members=members)


def _lags(group: GroupDetail) -> list[JsonObject]:
    holders = {
        (each.topic, each.partition): member
        for member in group.member_list
        for each in member.partitions
    }
    items: list[JsonObject] = []
    for each in group.offsets:
        holder = holders.get((each.topic, each.partition))
        items.append(
            {
                "consumer_group_id": group.name,
                "topic_name": each.topic,
                "partition_id": each.partition,
                "current_offset": each.offset,
                "log_end_offset": each.end_offset or 0,
                "lag": each.lag or 0,
                "consumer_id": "" if holder is None else holder.id,
                "instance_id": None if holder is None else holder.instance_id,
                "client_id": "" if holder is None else holder.client_id,
            }
        )
    return items


_CLUSTER = (Right("DESCRIBE", "cluster"),)
_TOPIC, _GROUP = "topic:{topic}", "group:{group}"
_DESCRIBE, _DESCRIBE_GROUP = (Right("DESCRIBE", _TOPIC),), (Right("DESCRIBE", _GROUP),)

ROUTES = (
    route("GET", "", list_clusters, "The cluster, in a list", params=Params, rights=_CLUSTER),
    route(
        "GET",
        "/{cluster}",
        describe_cluster,
        "The cluster",
        params=ClusterParams,
        rights=_CLUSTER,
    ),
    route(
        "GET",
        "/{cluster}/topics",
        list_topics,
        "List topics",
        params=ClusterParams,
        rights=(Right("DESCRIBE", "topic:*"),),
    ),
    route(
        "POST",
        "/{cluster}/topics",
        create_topic,
        "Create a topic",
        params=ClusterParams,
        body=NewTopic,
        status=HTTPStatus.CREATED,
        rights=(Right("CREATE", "topic:{name}"),),
        example={"topic_name": "orders", "partitions_count": 3},
    ),
    route(
        "GET",
        "/{cluster}/topics/{topic}",
        describe_topic,
        "Describe a topic",
        params=TopicParams,
        rights=_DESCRIBE,
    ),
    route(
        "DELETE",
        "/{cluster}/topics/{topic}",
        delete_topic,
        "Delete a topic",
        params=TopicParams,
        reply=None,
        rights=(Right("DELETE", _TOPIC),),
    ),
    route(
        "GET",
        "/{cluster}/topics/{topic}/configs",
        list_configs,
        "Settings of a topic",
        params=TopicParams,
        rights=(Right("DESCRIBE_CONFIGS", _TOPIC),),
    ),
    route(
        "POST",
        "/{cluster}/topics/{topic}/configs:alter",
        alter_configs,
        "Change settings of a topic",
        params=TopicParams,
        body=Alterations,
        reply=None,
        rights=(Right("ALTER_CONFIGS", _TOPIC),),
        example={"data": [{"name": "retention.ms", "value": "1000"}]},
    ),
    route(
        "GET",
        "/{cluster}/topics/{topic}/partitions",
        list_partitions,
        "Partitions of a topic",
        params=TopicParams,
        rights=_DESCRIBE,
    ),
    route(
        "GET",
        "/{cluster}/consumer-groups",
        list_groups,
        "List consumer groups",
        params=ClusterParams,
        rights=(Right("DESCRIBE", "group:*"),),
    ),
    route(
        "GET",
        "/{cluster}/consumer-groups/{group}",
        describe_group,
        "Describe a consumer group",
        params=GroupParams,
        rights=_DESCRIBE_GROUP,
    ),
    route(
        "GET",
        "/{cluster}/consumer-groups/{group}/lags",
        lags,
        "Lag of a group by partition",
        params=GroupParams,
        rights=_DESCRIBE_GROUP,
    ),
    route(
        "GET",
        "/{cluster}/consumer-groups/{group}/lag-summary",
        lag_summary,
        "Lag of a group",
        params=GroupParams,
        rights=_DESCRIBE_GROUP,
    ),
)
