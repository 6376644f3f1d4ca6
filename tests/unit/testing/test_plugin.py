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


def run(pytester: pytest.Pytester, suite: str, *options: str) -> pytest.RunResult:
    pytester.makeini(STRICT)
    pytester.makepyfile(suite)
    return pytester.runpytest_subprocess(*options, timeout=280)


@pytest.mark.parametrize("options", [("-p", "no:xdist"), ("-n", "4")], ids=["alone", "parallel"])
def test_the_fixtures_work(pytester: pytest.Pytester, options: tuple[str, ...]) -> None:
    run(pytester, SUITE, *options).assert_outcomes(passed=8)


def test_the_client_fixture_works(pytester: pytest.Pytester) -> None:
    run(pytester, WITH_CLIENT, "-p", "no:xdist").assert_outcomes(passed=1)


def test_pytest_finds_the_plugin_by_itself() -> None:
    [found] = entry_points(group="pytest11", name="millstream")

    assert found.value == "millstream.pytest_plugin"


def test_the_plugin_costs_nothing_until_a_fixture_is_used() -> None:
    code = (
        "import pytest, sys; before = set(sys.modules); import millstream.pytest_plugin; "
        "print(sorted(m for m in set(sys.modules) - before if 'pytest' not in m))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert shown.stdout.strip() == "['millstream']"
