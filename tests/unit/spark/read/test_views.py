"""Where a query with a filter fetches its records."""

from collections.abc import Iterator

import pytest

from millstream.client import connect
from millstream.kafka_client.cluster import Cluster
from millstream.model import TopicPartition
from millstream.spark.errors import InvalidOption
from millstream.spark.options.source import source_options
from millstream.spark.read.offset_ranges import OffsetRange
from millstream.spark.read.views import check_filter, shown_by, without_views
from millstream.testing import RunningBroker, run_broker

TARGET = TopicPartition("orders", 2)
READ = [OffsetRange("orders", 0, 0, 1)]


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    with run_broker() as broker:
        broker.create_topic("orders")
        yield broker


@pytest.fixture
def cluster(broker: RunningBroker) -> Iterator[Cluster]:
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "orders"}
    cluster = Cluster(source_options(options, is_streaming=False).client)
    yield cluster
    cluster.forget()


def test_without_a_filter_records_come_from_the_topic() -> None:
    assert shown_by(TARGET, None) == TARGET


def test_with_a_filter_they_come_from_the_same_partition_of_the_filtered_name() -> None:
    assert shown_by(TARGET, "key") == TopicPartition("orders where key", 2)


def test_a_filter_is_checked_and_creates_no_topic(cluster: Cluster) -> None:
    check_filter(cluster, READ, "key")

    assert list(cluster.topics()) == ["orders"]
    with pytest.raises(InvalidOption, match=r"brokerFilter: filter, at character 1 \('colour'\)"):
        check_filter(cluster, READ, "colour")


def test_a_pattern_finds_topics_and_not_their_views(
    broker: RunningBroker, cluster: Cluster
) -> None:
    with connect(broker.bootstrap) as client:
        client.views.create("keyed", of="orders", where="key")

    assert without_views(cluster, ["orders", "keyed", "gone"]) == ["orders"]
