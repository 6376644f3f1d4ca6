"""Topics that are deleted and created anew under a query. Spark's part is played here: no JVM."""

import json
import logging
from collections.abc import Iterator

import pytest

from millstream.kafka_client.cluster import Cluster
from millstream.spark.errors import DataLoss
from millstream.spark.read.batch import BatchReader
from millstream.spark.read.offset_ranges import from_json
from tests.spark.played_queries import SCHEMA, Query, fill, hang_up, options, recreate, send
from tests.spark.topics import Topics


@pytest.fixture(autouse=True)
def hung_up() -> Iterator[None]:
    yield
    hang_up()


@pytest.mark.parametrize("count", [0, 2, 3, 5])
def test_a_new_topic_fails_the_query_whatever_its_length(
    topics: Topics, topic: str, count: int
) -> None:
    fill(topics, topic, range(3))
    query = Query(topics, topic)
    assert query.batch() == [0, 1, 2]
    recreate(topics, topic, range(100, 100 + count))

    for run in (query, Query(topics, topic, query.checkpoint)):
        with pytest.raises(DataLoss, match=f"topic {topic} was deleted and created anew"):
            run.batch()


@pytest.mark.parametrize("count", [0, 2, 3, 5])
def test_a_new_topic_is_read_from_its_start_where_loss_is_accepted(
    topics: Topics, topic: str, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    fill(topics, topic, range(3))
    query = Query(topics, topic, failOnDataLoss="false")
    query.batch()
    recreate(topics, topic, range(100, 100 + count))

    with caplog.at_level(logging.WARNING):
        again = Query(topics, topic, query.checkpoint, failOnDataLoss="false")
        assert again.batch() == list(range(100, 100 + count))
    assert f"topic {topic} was deleted and created anew" in caplog.text
    assert again.batch() == []
    send(topics, topic, range(200, 202))
    assert again.batch() == [200, 201]


def test_a_checkpoint_without_ids_goes_on_and_has_them_after_its_next_batch(
    topics: Topics, topic: str
) -> None:
    fill(topics, topic, range(3))
    query = Query(topics, topic, json.dumps({topic: {"0": 3}}))

    assert query.batch() == []  # Ids alone are no news.
    send(topics, topic, range(3, 5))
    assert query.batch() == [3, 4]
    recreate(topics, topic, range(100, 110))
    with pytest.raises(DataLoss, match="created anew"):
        query.batch()


def test_a_run_over_what_is_available_now_ends_with_a_checkpoint_without_ids(
    topics: Topics, topic: str
) -> None:
    fill(topics, topic, range(3))
    query = Query(topics, topic, json.dumps({topic: {"0": 3}}))
    query.reader.prepareForTriggerAvailableNow()

    start, end = query.plan()

    assert end == start


def test_a_batch_that_was_planned_for_the_topic_before_is_not_read_from_the_new_one(
    topics: Topics, topic: str
) -> None:
    fill(topics, topic, range(3))
    query = Query(topics, topic)
    start, end = query.plan()
    recreate(topics, topic, range(100, 105))

    with pytest.raises(DataLoss, match="was deleted and created anew meanwhile"):
        query.read(start, end)
    assert Query(topics, topic, failOnDataLoss="false").read(start, end) == []


def test_a_topic_that_is_created_anew_while_a_task_reads_fails_the_task(
    topics: Topics, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(topics, topic, range(3))
    query = Query(topics, topic, failOnDataLoss="false")
    start, end = query.plan()
    begin = Cluster.begin_fetch

    def late(*arguments: object) -> object:
        recreate(topics, topic, range(100, 105))
        return begin(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Cluster, "begin_fetch", late)

    with pytest.raises(DataLoss, match="was deleted and created anew meanwhile"):
        query.read(start, end)


def test_a_batch_query_is_of_the_topic_that_was_there_when_it_was_planned(
    topics: Topics, topic: str
) -> None:
    fill(topics, topic, range(3))
    reader = BatchReader(options(topics, topic, is_streaming=False), SCHEMA)
    (partition,) = reader.partitions()
    assert sum(rows.num_rows for rows in reader.read(partition)) == 3
    recreate(topics, topic, range(100, 105))

    with pytest.raises(DataLoss, match="was deleted and created anew meanwhile"):
        list(reader.read(partition))


def test_a_broker_that_has_not_heard_of_the_new_topic_yet_does_not_turn_the_query_back(
    topics: Topics, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(topics, topic, range(3))
    query = Query(topics, topic, failOnDataLoss="false")
    query.batch()
    former = from_json(json.loads(query.checkpoint)).topic_ids
    recreate(topics, topic, range(100, 105))
    assert query.batch() == list(range(100, 105))

    monkeypatch.setattr(Cluster, "last_topic_ids", lambda *_: dict(former))

    assert query.batch() == []


def test_brokers_without_ids_are_read_as_before(
    topics: Topics, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cluster, "last_topic_ids", lambda *_: {})
    fill(topics, topic, range(3))
    query = Query(topics, topic, failOnDataLoss="false")

    assert query.batch() == [0, 1, 2]
    assert json.loads(query.checkpoint) == {topic: {"0": 3}}
    recreate(topics, topic, range(100, 102))
    assert query.batch() == [100, 101]
