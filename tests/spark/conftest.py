"""One Spark session for all tests, one broker for each module, topics by name."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millstream.spark import session
from tests.spark.topics import Topics
from tests.support.broker_process import BrokerProcess

TEST_SECONDS_MAX = 300  # The first test waits for a JVM to warm up.

_numbers = count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give all that need the JVM time to start it."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(TEST_SECONDS_MAX))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    directory = tmp_path_factory.mktemp("spark")
    spark = session(
        "tests",
        master="local[2,4]",
        conf={
            "spark.sql.warehouse.dir": str(directory / "warehouse"),
            "spark.local.dir": str(directory / "local"),
            # A test's JVM lives too short to profit from the second compiler.
            "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
            "spark.sql.streaming.stopTimeout": "30s",
        },
    )
    spark.sparkContext.setLogLevel("OFF")
    yield spark
    spark.stop()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("broker"), DEFAULT_PARTITIONS=2)
    process.start()
    yield process
    process.kill()


@pytest.fixture
def topics(broker: BrokerProcess) -> Topics:
    return Topics(broker)


@pytest.fixture
def topic() -> str:
    """A name that no other test of this process uses."""
    return f"topic-{next(_numbers)}"
