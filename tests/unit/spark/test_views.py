"""Where a query with a filter fetches its records."""

from collections.abc import Iterator

import pytest

from millstream.client import connect
from millstream.model import TopicPartition
from millstream.spark.cluster import Cluster
from millstream.spark.errors import InvalidOption
from millstream.spark.offsets import OffsetRange
from millstream.spark.options import source_options
from millstream.spark.views import make_views, shown_by, without_views
from millstream.testing import RunningBroker, run_broker
from millstream.view_names import view_name

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


def test_with_a_filter_they_come_from_the_same_partition_of_its_view() -> None:
    assert shown_by(TARGET, "key") == TopicPartition(view_name("orders", "key"), 2)


def test_views_are_made_once_and_are_no_topics(cluster: Cluster) -> None:
    for _ in range(2):
        make_views(cluster, READ, "key")

    name = view_name("orders", "key")
    assert name in cluster.topics()
    assert without_views(cluster, ["orders", name, "gone"]) == ["orders"]


def test_a_view_that_was_altered_is_not_taken_for_what_was_asked_for(
    broker: RunningBroker, cluster: Cluster
) -> None:
    make_views(cluster, READ, "key")
    with connect(broker.bootstrap) as client:
        client.admin.alter_topic(view_name("orders", "key"), {"view.where": "value"})

        with pytest.raises(InvalidOption, match="shows orders where value; delete it"):
            make_views(cluster, READ, "key")


def test_a_topic_in_the_place_of_a_view_is_not_read_for_it(
    broker: RunningBroker, cluster: Cluster
) -> None:
    broker.create_topic(view_name("orders", "key"))

    with pytest.raises(InvalidOption, match="shows no topic"):
        make_views(cluster, READ, "key")
