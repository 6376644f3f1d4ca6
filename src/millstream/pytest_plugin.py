"""Fixtures for pytest, found through the entry point: real brokers, topics, clients, Spark.

Owns their scopes, their ini options, and that the broker which tests share is in order again before
the next one. Nothing is imported before a test asks for a fixture, so a suite that uses none of
them pays for this module alone.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol
from uuid import uuid4

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from millstream.client import Client, aconnect
    from millstream.config import Config
    from millstream.testing import RunningBroker
    from millstream.testing.broker import SharedBroker

STORAGE, CONFIG, HTTP = "millstream_storage", "millstream_config", "millstream_http"


class MakeTopic(Protocol):
    """Create a topic that no other test has, and return its name."""

    def __call__(
        self,
        *,
        partitions: int = 1,
        settings: Mapping[str, object] | None = None,
        broker: "RunningBroker | None" = None,
    ) -> str: ...


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(STORAGE, "Where brokers of the fixtures keep records: memory or disk.")
    parser.addini(
        HTTP,
        "Whether brokers of the fixtures serve REST, schema registry and console too.",
        type="bool",
        default=False,
    )
    parser.addini(
        CONFIG,
        "Configuration of brokers of the fixtures, a line for each key: "
        "`limits.connections_max = 50`.",
        type="linelist",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Put the shared broker in order, before fixtures that talk to it are torn down."""
    shared = item.config.stash.get(_SHARED, None)
    if shared is not None:
        shared.heal()


@pytest.fixture(scope="session")
def millstream_broker(pytestconfig: pytest.Config) -> "Iterator[RunningBroker]":
    """A broker in this process for the whole session; with xdist one per worker."""
    from millstream.testing.broker import SharedBroker

    with _run_broker(pytestconfig, SharedBroker) as broker:
        assert isinstance(broker, SharedBroker)
        pytestconfig.stash[_SHARED] = broker
        yield broker
        del pytestconfig.stash[_SHARED]


@pytest.fixture
def millstream_own_broker(pytestconfig: pytest.Config) -> "Iterator[RunningBroker]":
    """A broker in this process for one test, which may do to it whatever it wants."""
    from millstream.testing import RunningBroker

    with _run_broker(pytestconfig, RunningBroker) as broker:
        yield broker


@pytest.fixture
def millstream_make_topic(request: pytest.FixtureRequest) -> MakeTopic:
    """`make_topic(partitions=1, settings=None, broker=None)` creates a topic, returns its name.

    Without a `broker` it is in `millstream_broker`.
    """

    def make_topic(
        *,
        partitions: int = 1,
        settings: Mapping[str, object] | None = None,
        broker: "RunningBroker | None" = None,
    ) -> str:
        target: RunningBroker = broker or request.getfixturevalue("millstream_broker")
        name = f"test-{uuid4().hex}"
        target.create_topic(name, partitions=partitions, settings=settings)
        return name

    return make_topic


@pytest.fixture
def millstream_topic(millstream_make_topic: MakeTopic) -> str:
    """The name of a topic with one partition that no other test has."""
    return millstream_make_topic()


@pytest.fixture
def millstream_client(millstream_broker: "RunningBroker") -> "Iterator[Client]":
    """A client of the SDK, connected to `millstream_broker`."""
    from millstream.client import connect

    with connect(millstream_broker.bootstrap) as client:
        yield client


@pytest.fixture
def millstream_async_client(millstream_broker: "RunningBroker") -> "aconnect":
    """`async with millstream_async_client as client:`, in whatever loop the test runs."""
    from millstream.client import aconnect

    return aconnect(millstream_broker.bootstrap)


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


_SHARED: "pytest.StashKey[SharedBroker]" = pytest.StashKey()


def _run_broker(
    pytestconfig: pytest.Config, kind: "type[RunningBroker]"
) -> "AbstractContextManager[RunningBroker]":
    from millstream.testing import run_broker

    config, http = _config(pytestconfig.getini(CONFIG)), bool(pytestconfig.getini(HTTP))
    match pytestconfig.getini(STORAGE):
        case "" | "memory":
            return run_broker(config=config, kind=kind, http=http)
        case "disk":
            return run_broker(storage="disk", config=config, kind=kind, http=http)
        case storage:
            raise pytest.UsageError(f"{STORAGE} = {storage}: it must be memory or disk")


def _config(lines: list[str]) -> "Config":
    """The configuration of test brokers with what the ini file says of it."""
    from millstream.config_sources import load, variable
    from millstream.errors import StartupError
    from millstream.testing.broker import DEFAULTS
    from millstream.testing.process import environment

    variables = environment(DEFAULTS)
    for line in lines:
        key, equals, value = line.partition("=")
        if not equals:
            raise pytest.UsageError(f"{CONFIG}: {line!r} is not of the form KEY = VALUE")
        variables[variable(key.strip())] = value.strip()
    try:
        return load(environment=variables)
    except StartupError as problem:
        raise pytest.UsageError(f"{CONFIG}: {problem}") from problem
