"""Implements the option brokerFilter: tasks fetch under filtered names.

A filtered name has the offsets of its topic. So positions, checkpoints and the column `topic` name
the topic, and only the fetches of tasks go to the filtered name: the same checkpoint goes on with
another filter, or without one. The broker creates nothing for it.
"""

from collections.abc import Iterable, Sequence

from millstream.kafka_client.cluster import Cluster, check
from millstream.kafka_wire.apis.configs import DescribeConfigsRequest, DescribeConfigsResponse
from millstream.kafka_wire.error_codes import ErrorCode
from millstream.model import TopicPartition
from millstream.spark.errors import InvalidOption
from millstream.spark.read.offset_ranges import OffsetRange
from millstream.view_names import filtered_name

_TOPIC = 2  # The resource type of topics in DescribeConfigs.
_VIEW_OF = "view.of"
_REFUSED = (ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST, ErrorCode.POLICY_VIOLATION)


def shown_by(target: TopicPartition, broker_filter: str | None) -> TopicPartition:
    """The partition to fetch from: under the filtered name, if there is a filter."""
    if broker_filter is None:
        return target
    return TopicPartition(filtered_name(target.topic, broker_filter), target.partition)


def check_filter(
    cluster: Cluster, planned: Iterable[OffsetRange], broker_filter: str | None
) -> None:
    """Have the broker check the filter for every topic, before any task reads through it."""
    if broker_filter is None:
        return
    topics = sorted({offset_range.target.topic for offset_range in planned})
    if topics:
        cluster.retry("check brokerFilter", lambda: _check(cluster, topics, broker_filter))


def without_views(cluster: Cluster, topics: Sequence[str]) -> list[str]:
    """The names that are topics and no views: the records of a view are in its topic as well."""
    if not topics:
        return []

    def ask() -> list[str]:
        shown = _shown(cluster, topics)
        return [name for name in topics if name in shown and not shown[name]]

    return cluster.retry("tell topics from views", ask)


def _shown(cluster: Cluster, names: Sequence[str], *, has_filter: bool = False) -> dict[str, str]:
    """The topic that each view shows, empty for topics; names that do not exist are left out."""
    resource = DescribeConfigsRequest.Resource
    keys = [_VIEW_OF]
    request = DescribeConfigsRequest(
        resources=[
            resource(resource_type=_TOPIC, resource_name=name, configuration_keys=keys)
            for name in names
        ]
    )
    topics = {}
    for result in cluster.any_broker().call(request, DescribeConfigsResponse).results:
        if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            continue
        if has_filter and result.error_code in _REFUSED:
            raise InvalidOption(f"brokerFilter: {result.error_message}")
        check(result.error_code, result.resource_name)
        values = {config.name: config.value or "" for config in result.configs}
        topics[result.resource_name] = values.get(_VIEW_OF, "")
    return topics


def _check(cluster: Cluster, topics: Sequence[str], broker_filter: str) -> None:
    names = [filtered_name(topic, broker_filter) for topic in topics]
    shown = _shown(cluster, names, has_filter=True)
    unknown = [name for name in names if name in shown and not shown[name]]
    if unknown:
        raise InvalidOption("brokerFilter: this broker does not filter, leave the option out")
