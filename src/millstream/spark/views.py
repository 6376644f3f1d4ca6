"""The option brokerFilter: records are fetched through views, and everything else stays as it is.

Owns the views of a query. A view has the offsets of its topic, so places, checkpoints and the
column `topic` speak of the topic, and only the fetches of tasks go to the view: the same checkpoint
goes on with another filter, or without one.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from millstream.model import TopicPartition
from millstream.protocols.kafka.apis.admin import CreateTopicsRequest, CreateTopicsResponse
from millstream.protocols.kafka.apis.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
)
from millstream.protocols.kafka.error_codes import ErrorCode
from millstream.spark.cluster import Cluster, check
from millstream.spark.errors import InvalidOption
from millstream.spark.offsets import OffsetRange
from millstream.view_names import view_name

BROKERS_CHOICE = -1  # Of partitions and replicas: a view has those of its topic.

_TOPIC = 2  # What settings are asked of.
_VIEW_OF, _VIEW_WHERE = "view.of", "view.where"
_REFUSED = (ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST, ErrorCode.POLICY_VIOLATION)


class _Shown(NamedTuple):
    """What a view shows; a topic that is none has nothing here."""

    topic: str
    where: str


def shown_by(target: TopicPartition, broker_filter: str | None) -> TopicPartition:
    """Where to fetch what the filter takes of a partition."""
    if broker_filter is None:
        return target
    return TopicPartition(view_name(target.topic, broker_filter), target.partition)


def make_views(cluster: Cluster, wanted: Iterable[OffsetRange], broker_filter: str | None) -> None:
    """See to it that there is a view for every topic that is read through a filter."""
    if broker_filter is None:
        return
    topics = sorted({one.target.topic for one in wanted})
    if topics:
        cluster.patiently("make views", lambda: _make(cluster, topics, broker_filter))


def without_views(cluster: Cluster, topics: Sequence[str]) -> list[str]:
    """The topics among these: what a view shows is in its topic as well."""
    if not topics:
        return []

    def ask() -> list[str]:
        shown = _shown(cluster, topics)
        return [name for name in topics if name in shown and not shown[name].topic]

    return cluster.patiently("tell topics from views", ask)


def _shown(cluster: Cluster, names: Sequence[str]) -> dict[str, _Shown]:
    """What these topics show, if they are views; those that are gone are left out."""
    resource = DescribeConfigsRequest.Resource
    keys = [_VIEW_OF, _VIEW_WHERE]
    request = DescribeConfigsRequest(
        resources=[
            resource(resource_type=_TOPIC, resource_name=name, configuration_keys=keys)
            for name in names
        ]
    )
    found = {}
    for result in cluster.anyone().call(request, DescribeConfigsResponse).results:
        if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            continue
        check(result.error_code, result.resource_name)
        values = {one.name: one.value or "" for one in result.configs}
        found[result.resource_name] = _Shown(values.get(_VIEW_OF, ""), values.get(_VIEW_WHERE, ""))
    return found


def _make(cluster: Cluster, topics: list[str], broker_filter: str) -> None:
    config = CreateTopicsRequest.Topic.Config
    request = CreateTopicsRequest(
        topics=[
            CreateTopicsRequest.Topic(
                name=view_name(topic, broker_filter),
                num_partitions=BROKERS_CHOICE,
                replication_factor=BROKERS_CHOICE,
                assignments=[],
                configs=[
                    config(name=_VIEW_OF, value=topic),
                    config(name=_VIEW_WHERE, value=broker_filter),
                ],
            )
            for topic in topics
        ]
    )
    known = []
    for made in cluster.anyone().call(request, CreateTopicsResponse).topics:
        if made.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
            known.append(made.name)
            continue
        if made.error_code in _REFUSED:
            raise InvalidOption(f"brokerFilter: {made.error_message}")
        check(made.error_code, f"view {made.name}")
    # Somebody asked for the same before, as a rule; but views can be altered.
    wanted = {view_name(topic, broker_filter): _Shown(topic, broker_filter) for topic in topics}
    for name, shown in _shown(cluster, known).items() if known else ():
        if shown != wanted[name]:
            raise InvalidOption(
                f"brokerFilter: view {name} shows {shown.topic or 'no topic'} where "
                f"{shown.where or 'nothing'}; delete it, and it is made again"
            )
