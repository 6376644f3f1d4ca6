"""The option brokerFilter: records are fetched through views, and everything else stays as it is.

Owns the views of a query. A view has the offsets of its topic, so places, checkpoints and the
column `topic` speak of the topic, and only the fetches of tasks go to the view: the same checkpoint
goes on with another filter, or without one.
"""

from collections.abc import Iterable, Sequence

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
_VIEW_OF = "view.of"
_REFUSED = (ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST, ErrorCode.POLICY_VIOLATION)


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
    resource = DescribeConfigsRequest.Resource
    request = DescribeConfigsRequest(
        resources=[
            resource(resource_type=_TOPIC, resource_name=name, configuration_keys=[_VIEW_OF])
            for name in topics
        ]
    )

    def ask() -> list[str]:
        found = []
        for result in cluster.anyone().call(request, DescribeConfigsResponse).results:
            if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue  # It went meanwhile.
            check(result.error_code, result.resource_name)
            if not any(one.name == _VIEW_OF and one.value for one in result.configs):
                found.append(result.resource_name)
        return found

    return cluster.patiently("tell topics from views", ask)


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
                    config(name="view.where", value=broker_filter),
                ],
            )
            for topic in topics
        ]
    )
    for made in cluster.anyone().call(request, CreateTopicsResponse).topics:
        if made.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
            continue
        if made.error_code in _REFUSED:
            raise InvalidOption(f"brokerFilter: {made.error_message}")
        check(made.error_code, f"view {made.name}")
