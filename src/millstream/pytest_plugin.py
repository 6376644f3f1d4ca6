"""Fixtures for pytest, found through the entry point: a real broker, a topic, a client, Spark.

Owns their scopes. The one thing to know: nothing is imported before a test asks for a fixture, so
a suite that uses none of them pays for this module alone.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from millstream.client import Client
    from millstream.testing import RunningBroker


@pytest.fixture(scope="session")
def millstream_broker() -> "Iterator[RunningBroker]":
    """A broker in this process, in memory, for the whole session; with xdist one per worker."""
    from millstream.testing import run_broker

    with run_broker() as broker:
        yield broker


@pytest.fixture
def millstream_topic(millstream_broker: "RunningBroker") -> str:
    """The name of a topic with one partition that no other test has."""
    name = f"test-{uuid4().hex}"
    millstream_broker.create_topic(name)
    return name


@pytest.fixture
def millstream_client(millstream_broker: "RunningBroker") -> "Iterator[Client]":
    """A client of the SDK, connected to `millstream_broker`."""
    from millstream.client import connect

    with connect(millstream_broker.bootstrap) as client:
        yield client


@pytest.fixture(scope="session")
def millstream_spark() -> "Iterator[SparkSession]":
    """A Spark session that knows the format "millstream"; one JVM for the whole session."""
    from pyspark.sql import SparkSession

    from millstream.spark.session import session

    was_running = SparkSession.getActiveSession() is not None
    spark = session("millstream-tests")
    yield spark
    if not was_running:  # Who started it ends it.
        spark.stop()
