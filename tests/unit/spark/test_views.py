"""Where a query with a filter fetches its records."""

from millstream.model import TopicPartition
from millstream.spark.views import shown_by
from millstream.view_names import view_name

TARGET = TopicPartition("orders", 2)


def test_without_a_filter_records_come_from_the_topic() -> None:
    assert shown_by(TARGET, None) == TARGET


def test_with_a_filter_they_come_from_the_same_partition_of_its_view() -> None:
    assert shown_by(TARGET, "key") == TopicPartition(view_name("orders", "key"), 2)
