"""`run_broker`: up at once, anywhere, any number of them, and gone without a trace."""

import json
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.request import urlopen

import pytest
from confluent_kafka.admin import AdminClient

from millstream.client import connect
from millstream.config import Config
from millstream.errors import StartupError
from millstream.testing import CannotDoThis, NotRunning, RunningBroker, run_broker
from millstream.testing.broker import Mode, Storage
from tests.support.kafka_clients import SECONDS_MAX, all_values, produce

KINDS: list[tuple[Mode, Storage]] = [
    ("in-process", "memory"),
    ("in-process", "disk"),
    ("subprocess", "memory"),
    ("subprocess", "disk"),
]


def is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=SECONDS_MAX).close()
    except ConnectionRefusedError:
        return False
    return True


@pytest.mark.parametrize(("mode", "storage"), KINDS)
def test_a_broker_of_every_kind_serves_clients(mode: Mode, storage: Storage) -> None:
    with run_broker(mode=mode, storage=storage) as broker:
        assert broker.bootstrap == f"{broker.host}:{broker.port}"
        assert produce(broker.bootstrap, "orders", b"a", b"b") == []
        assert all_values(broker.bootstrap, "orders") == [b"a", b"b"]


@pytest.mark.parametrize("mode", ["in-process", "subprocess"])
def test_a_broker_with_http_serves_rest_at_the_same_address_after_a_kill(mode: Mode) -> None:
    with run_broker(mode=mode, storage="disk", http=True) as broker:
        url = broker.http_url
        produce(broker.bootstrap, "orders", b"a")
        broker.kill()
        broker.restart()
        with urlopen(f"{url}/v1/topics/orders", timeout=SECONDS_MAX) as answer:
            assert json.loads(answer.read())["records"] == 1
        assert broker.http_url == url


def test_a_broker_without_http_says_how_to_get_it() -> None:
    with run_broker() as broker, pytest.raises(NotRunning, match="http=True"):
        broker.http_url  # noqa: B018


def test_a_broker_in_process_is_ready_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    with run_broker():
        pass  # What is imported late is imported now.

    started = time.perf_counter()
    with run_broker():
        seconds = time.perf_counter() - started

    with capsys.disabled():
        print(f"\nready in {1000 * seconds:.0f} ms in process")
    assert seconds < 3  # 5 to 15 ms where the machine has nothing else to do.


def test_brokers_run_side_by_side() -> None:
    with run_broker() as first, run_broker() as other:
        produce(first.bootstrap, "orders", b"one")
        produce(other.bootstrap, "orders", b"other")

        assert first.port != other.port
        assert all_values(first.bootstrap, "orders") == [b"one"]
        assert all_values(other.bootstrap, "orders") == [b"other"]


def test_nothing_of_a_broker_is_left_behind() -> None:
    before = set(threading.enumerate())
    with run_broker(storage="disk") as broker:
        produce(broker.bootstrap, "orders", b"a")
        port = broker.port

    assert {t for t in threading.enumerate() if t.name.startswith("millstream")} <= before
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=SECONDS_MAX)


def test_a_broker_process_does_not_outlive_its_starter() -> None:
    code = (
        "import os, signal\nfrom millstream.testing import run_broker\n"
        "with run_broker(mode='subprocess') as broker:\n"
        "    print(broker.port, flush=True)\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    starter = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=False)
    deadline = time.monotonic() + SECONDS_MAX
    while is_open(int(starter.stdout)):
        assert time.monotonic() < deadline, "it is still there"
        time.sleep(0.05)


@pytest.mark.parametrize("mode", ["in-process", "subprocess"])
def test_a_directory_of_the_users_own_stays(mode: Mode, tmp_path: Path) -> None:
    with run_broker(mode=mode, storage="disk", directory=tmp_path / "kept") as broker:
        produce(broker.bootstrap, "orders", b"a")

    with run_broker(mode=mode, storage="disk", directory=tmp_path / "kept") as broker:
        assert all_values(broker.bootstrap, "orders") == [b"a"]


@pytest.mark.parametrize("mode", ["in-process", "subprocess"])
def test_settings_reach_the_broker(mode: Mode) -> None:
    with run_broker(mode=mode, config=Config(default_partitions=3)) as broker:
        produce(broker.bootstrap, "orders", b"a")

        listed = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(
            "orders", timeout=SECONDS_MAX
        )
        assert len(listed.topics["orders"].partitions) == 3


@pytest.mark.parametrize("mode", ["in-process", "subprocess"])
def test_a_port_that_is_taken_is_said_so(mode: Mode) -> None:
    with (
        run_broker() as broker,
        pytest.raises((StartupError, RuntimeError), match="cannot listen on"),
        run_broker(mode=mode, port=broker.port),
    ):
        pytest.fail("two brokers on one port")


def test_a_knob_that_means_nothing_now_says_so() -> None:
    with run_broker() as broker:
        with pytest.raises(NotRunning, match=r"resume\(\) of a broker that is running"):
            broker.resume()
        broker.kill()
        for knob in (broker.pause, broker.kill, broker.drop_acks):
            with pytest.raises(NotRunning, match="is down"):
                knob()


def test_a_process_of_its_own_says_which_knobs_it_lacks() -> None:
    def refused(broker: RunningBroker) -> None:
        with pytest.raises(CannotDoThis, match="in-process"):
            broker.drop_acks()
        with pytest.raises(CannotDoThis, match="in-process"):
            broker.advance_clock(1)
        broker.create_topic("orders", partitions=2, settings={"retention_ms": 60_000})
        with connect(broker.bootstrap) as client:
            described = client.admin.describe_topic("orders")
        assert len(described.partitions) == 2
        assert "60000" in {
            setting.value for setting in described.settings if setting.name == "retention.ms"
        }

    with run_broker(mode="subprocess") as broker:
        refused(broker)
