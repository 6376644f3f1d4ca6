"""A broker that may open few files, and a crowd of clients that do nothing but connect."""

import os
import resource
import socket
import time
from contextlib import ExitStack
from pathlib import Path

from tests.hostile.broker import SECONDS_MAX, Broker, Client, batch, serving

DESCRIPTORS_MAX = 256
CROWD = 241


def crowd(broker: Broker, stack: ExitStack, count: int = CROWD) -> None:
    addresses = [broker.address, broker.flux_address, broker.classic_address]
    for number in range(count):
        address = addresses[number % len(addresses)]
        stack.enter_context(socket.create_connection(address, timeout=SECONDS_MAX))


def eventually_connected(broker: Broker) -> Client:
    """A client that is served: while the crowd leaves, others may still be refused."""
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        client = Client(broker)
        try:
            client.create_topic()
        except OSError:
            client.socket.close()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        else:
            return client


def test_a_crowd_under_a_tiny_limit_takes_no_topic_and_no_broker_down(tmp_path: Path) -> None:
    with serving(
        tmp_path / "log", data_dir=tmp_path / "data", descriptors_max=DESCRIPTORS_MAX
    ) as broker:
        with Client(broker) as good, ExitStack() as stack:
            assert good.produce(batch(b"before")).error_code == 0
            crowd(broker, stack)
            for number in range(40):
                good.create_topic(f"new-{number}")
                assert good.produce(batch(b"new"), topic=f"new-{number}").error_code == 0
            assert good.produce(batch(b"meanwhile")).error_code == 0
            assert broker.open_files() < DESCRIPTORS_MAX

        with eventually_connected(broker) as client:
            client.create_topic("after")
            assert client.produce(batch(b"after"), topic="after").error_code == 0
        broker.assert_unharmed()
        assert "refused connections" in broker.log
        assert broker.log.count("refused connections") < 10
        assert "fitted limits to this machine" in broker.log


def test_descriptors_that_others_hold_are_seen(tmp_path: Path) -> None:
    # The limit is lowered behind the broker's back: what it counted on is not there.
    with serving(tmp_path / "log", data_dir=tmp_path / "data") as broker:
        with Client(broker) as good:
            good.create_topic("kept")
            assert good.produce(batch(b"before"), topic="kept").error_code == 0
            lowered = broker.open_files() + 1
            limit = resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE)
            resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE, (lowered, limit[1]))
            with ExitStack() as stack:
                crowd(broker, stack, 20)
                refused = [good.produce(batch(b"x"), topic="kept").error_code for _ in range(20)]
            assert refused == [0] * 20
            resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE, limit)

        with eventually_connected(broker) as client:
            client.create_topic("after")
            assert client.produce(batch(b"after"), topic="after").error_code == 0
        assert broker.process.poll() is None
        assert "stopped" not in broker.log


def test_the_soft_limit_is_raised_and_the_log_says_so(tmp_path: Path) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    soft = min(hard - 1, 300)
    assert os.name == "posix"

    with serving(
        tmp_path / "log", data_dir=tmp_path / "data", descriptors_max=f"{soft}:{hard}"
    ) as broker:
        limits = Path(f"/proc/{broker.process.pid}/limits").read_text(encoding="ascii")

    line = next(line for line in limits.splitlines() if line.startswith("Max open files"))
    assert line.split()[3:5] == [str(hard), str(hard)]
    assert f"raised the limit of open files from={soft} to={hard}" in broker.log
