"""One Spark session that has both connectors, and one broker of each kind for each module."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import TypeVar

import pytest
from benchmarks.kafka.install import Unavailable, kafka_jars
from benchmarks.kafka.peers import Server, apache_kafka
from benchmarks.spark.install import connector_jars
from pyspark.sql import SparkSession

from millstream.spark import session
from tests.spark.topics import Topics
from tests.support.broker_process import BrokerProcess

Fetched = TypeVar("Fetched")
_numbers = count()


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker(pytest.mark.interop)


def fetched(get: Callable[[], Fetched]) -> Fetched:
    try:
        return get()
    except Unavailable as problem:
        pytest.fail(
            f"{problem}: the Spark suite needs a JDK (17 or newer) and Maven on the PATH",
            pytrace=False,
        )


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    directory = tmp_path_factory.mktemp("spark")
    spark = session(
        "interop",
        master="local[2,4]",
        conf={
            "spark.jars": ",".join(map(str, fetched(connector_jars))),
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
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Apache Kafka, as a process."""
    peer = apache_kafka(fetched(kafka_jars))
    with Server(peer, tmp_path_factory.mktemp("kafka") / "server", "write") as server:
        yield server


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("broker"), DEFAULT_PARTITIONS=2)
    process.start()
    yield process
    process.kill()


@pytest.fixture
def topic() -> str:
    return f"topic-{next(_numbers)}"


@pytest.fixture
def topics(broker: BrokerProcess) -> Topics:
    return Topics(broker)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"
