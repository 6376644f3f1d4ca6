"""The fixtures, in suites of their own: in parallel, next to strict settings, and unused.

That of Spark runs in the documents' own test.
"""

import subprocess
import sys
from importlib.metadata import entry_points

import pytest

pytest_plugins = ("pytester",)

# Several interpreters at once.
pytestmark = pytest.mark.timeout(300)

STRICT = "[pytest]\nfilterwarnings = error\naddopts = --strict-markers --strict-config\n"

SUITE = """
    import pytest
    from confluent_kafka import Consumer, Producer

    PORTS = set()

    def read(bootstrap, topic):
        settings = {"bootstrap.servers": bootstrap, "group.id": topic}
        consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
        consumer.subscribe([topic])
        message = consumer.poll(60)
        consumer.close()
        return message.value()

    @pytest.mark.parametrize("number", range(8))
    def test_records_come_back(millstream_broker, millstream_topic, number):
        producer = Producer({"bootstrap.servers": millstream_broker.bootstrap})
        producer.produce(millstream_topic, str(number))
        assert producer.flush(60) == 0
        assert read(millstream_broker.bootstrap, millstream_topic) == str(number).encode()
        PORTS.add(millstream_broker.port)
        assert len(PORTS) == 1, "one broker for the whole session"
"""

WITH_CLIENT = """
    def test_the_client_talks_to_the_broker(millstream_client, millstream_topic):
        written = millstream_client.produce(millstream_topic, "a")
        assert (written.topic, written.offset) == (millstream_topic, 0)
"""


# In this order: each test does its worst to the broker, and the next must not see it.
HARD_ON_THE_SHARED = """
    import asyncio
    import pytest
    from millstream.testing import CannotDoThis

    def write(client, topic):
        assert client.produce(topic, "a").offset == 0
        with client.consumer(topic) as consumer:
            assert next(consumer).value == b"a"

    def test_kill(millstream_broker):
        millstream_broker.kill()

    def test_after_kill(millstream_client, millstream_topic):
        write(millstream_client, millstream_topic)

    def test_pause(millstream_broker):
        millstream_broker.pause()

    def test_after_pause(millstream_client, millstream_topic):
        write(millstream_client, millstream_topic)

    def test_lost_acks(millstream_broker):
        millstream_broker.drop_acks()

    def test_after_lost_acks(millstream_broker, millstream_client, millstream_topic):
        write(millstream_client, millstream_topic)

    def test_clock(millstream_broker):
        with pytest.raises(CannotDoThis, match="millstream_own_broker"):
            millstream_broker.advance_clock(8 * 24 * 60 * 60 * 1000)

    def test_after_clock(millstream_client, millstream_topic):
        write(millstream_client, millstream_topic)

    def test_own(millstream_own_broker, millstream_broker, millstream_make_topic):
        assert millstream_own_broker.port != millstream_broker.port
        millstream_make_topic(broker=millstream_own_broker)
        millstream_own_broker.advance_clock(8 * 24 * 60 * 60 * 1000)
        millstream_own_broker.kill()

    def test_factory(millstream_client, millstream_make_topic):
        small, large = millstream_make_topic(), millstream_make_topic(
            partitions=3, settings={"retention.ms": 60_000, "segment_ms": 1_000}
        )
        described = millstream_client.admin.describe_topic(large)
        values = {one.name: one.value for one in described.settings}
        assert small != large
        assert len(described.partitions) == 3
        assert (values["retention.ms"], values["segment.ms"]) == ("60000", "1000")

    def test_async_client(millstream_async_client, millstream_topic):
        async def main():
            async with millstream_async_client as client:
                return await client.produce(millstream_topic, "a")

        assert asyncio.run(main()).offset == 0
"""

WITH_INI = """
    def test_what_the_ini_file_says_holds(millstream_client, millstream_broker):
        settings = millstream_client.admin.broker_settings()
        partitions = {one.name: one.value for one in settings}["num.partitions"]
        assert partitions == "5"
        assert millstream_broker._life.config.storage == "disk"
        assert millstream_broker.http_url.startswith("http://127.0.0.1:")
        assert millstream_broker._life.config.timing.group_initial_rebalance_delay_ms == 0
"""


def run(pytester: pytest.Pytester, suite: str, *options: str) -> pytest.RunResult:
    pytester.makeini(STRICT)
    pytester.makepyfile(suite)
    return pytester.runpytest_subprocess(*options, timeout=280)


@pytest.mark.parametrize("options", [("-p", "no:xdist"), ("-n", "4")], ids=["alone", "parallel"])
def test_the_fixtures_work(pytester: pytest.Pytester, options: tuple[str, ...]) -> None:
    run(pytester, SUITE, *options).assert_outcomes(passed=8)


def test_the_client_fixture_works(pytester: pytest.Pytester) -> None:
    run(pytester, WITH_CLIENT, "-p", "no:xdist").assert_outcomes(passed=1)


def test_what_a_test_does_to_the_shared_broker_ends_with_it(pytester: pytest.Pytester) -> None:
    run(pytester, HARD_ON_THE_SHARED, "-p", "no:xdist").assert_outcomes(passed=11)


def test_brokers_are_as_the_ini_file_says(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(WITH_INI)
    options = "millstream_storage = disk\nmillstream_http = true\n"
    options += "millstream_config =\n    default_partitions = 5\n"
    pytester.makeini(STRICT + options)
    pytester.runpytest_subprocess("-p", "no:xdist", timeout=280).assert_outcomes(passed=1)

    pytester.makeini(STRICT + "millstream_config = defaul_partitions = 5\n")
    refused = pytester.runpytest_subprocess("-p", "no:xdist", timeout=280)
    refused.assert_outcomes(errors=1)
    refused.stdout.fnmatch_lines(["*did you mean default_partitions*"])


def test_pytest_finds_the_plugin_by_itself() -> None:
    [plugin] = entry_points(group="pytest11", name="millstream")

    assert plugin.value == "millstream.pytest_plugin"


def test_the_plugin_costs_nothing_until_a_fixture_is_used() -> None:
    code = (
        "import pytest, sys; before = set(sys.modules); import millstream.pytest_plugin; "
        "print(sorted(m for m in set(sys.modules) - before if 'pytest' not in m))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert shown.stdout.strip() == "['millstream']"
