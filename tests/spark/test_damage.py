"""Records that the broker's disk has changed: a query fails and names them, and skips none."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

from millstream.client import connect
from millstream.spark.errors import DamagedRecords
from tests.spark.played_queries import Query, hang_up
from tests.spark.test_stream import Stream
from tests.spark.topics import Topics
from tests.support.broker_process import BrokerProcess
from tests.support.rotten import BAD, BATCH, RECORDS, TOPIC, write_and_damage

PARTS = [
    f"partition 0 of topic {TOPIC} is damaged",
    f"at offset {BAD} ",
    "no record was skipped",
    "millstream health",
    f"millstream repair --skip {TOPIC}/0@{BAD}",
]


@pytest.fixture
def rotten(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(write_and_damage(tmp_path))
    process.start()
    yield process
    process.stop()
    hang_up()


def give_up(broker: BrokerProcess) -> None:
    with connect(broker.address) as client:
        client.damage.skip(TOPIC, 0, BAD)


@pytest.mark.slow
@pytest.mark.parametrize("fails_on_data_loss", ["true", "false"])
def test_a_damaged_batch_fails_a_stream_until_it_is_given_up(
    spark: SparkSession, rotten: BrokerProcess, tmp_path: Path, fails_on_data_loss: str
) -> None:
    stream = Stream(spark, rotten, tmp_path / "checkpoint")
    options = {"subscribe": TOPIC, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "300"}
    options["failOnDataLoss"] = fails_on_data_loss

    for _ in range(2):  # Started again, the query fails again.
        with pytest.raises(StreamingQueryException) as failure:
            stream.run(**options)
        words = str(failure.value)
        assert [part for part in PARTS if part not in words] == []
        # The first batch of 300 is whole; of the second, which meets the damage, no row is seen.
        assert stream.offsets == [(0, offset) for offset in range(300)]
    give_up(rotten)
    stream.run(**options)

    kept = [*range(BAD), *range(BAD + BATCH, RECORDS)]
    assert stream.offsets == [(0, offset) for offset in kept]


@pytest.mark.slow
def test_a_damaged_batch_fails_a_batch_query(spark: SparkSession, rotten: BrokerProcess) -> None:
    frame = (
        spark.read.format("millstream")
        .option("kafka.bootstrap.servers", rotten.address)
        .option("subscribe", TOPIC)
        .load()
    )

    with pytest.raises(PySparkException) as failure:
        frame.count()

    assert [part for part in PARTS if part not in str(failure.value)] == []
    give_up(rotten)
    assert frame.count() == RECORDS - BATCH


@pytest.mark.parametrize("options", [{}, {"maxBytesPerTrigger": "1000000"}])
def test_damage_is_told_at_once_and_not_waited_for(
    rotten: BrokerProcess, options: dict[str, str]
) -> None:
    query = Query(Topics(rotten), TOPIC, failOnDataLoss="false", **options)

    with pytest.raises(DamagedRecords, match=f"at offset {BAD} "):
        query.batch()
    give_up(rotten)
    assert query.batch() == [*range(BAD), *range(BAD + BATCH, RECORDS)]
