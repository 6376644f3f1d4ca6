"""Too many clients, clients that say nothing, and clients that send much and slowly."""

import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.hostile.broker import SECONDS_MAX, Broker, Client, batch, framed, serving

CLIENTS = 1_000
MIB = 2**20
REQUEST_BYTES_MAX = 48 * MIB


@pytest.fixture(scope="module")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with serving(
        tmp_path_factory.mktemp("flooded") / "log",
        MILLSTREAM_LIMITS__REQUEST_BYTES_MAX=str(REQUEST_BYTES_MAX),
    ) as running:
        yield running


def eventually(condition: Callable[[], bool]) -> bool:
    """Another process has to get round to it: ask for a while."""
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def test_a_thousand_idle_clients_stop_no_other_and_leave_nothing(broker: Broker) -> None:
    files, memory = broker.open_files(), broker.resident_bytes()
    with ExitStack() as stack, Client(broker) as good:
        for _ in range(CLIENTS):
            stack.enter_context(Client(broker))
        assert good.produce(batch(b"a")).error_code == 0
        assert broker.resident_bytes() - memory < 50 * MIB

    assert eventually(lambda: broker.open_files() <= files)


def test_clients_that_vanish_halfway_through_a_request_leave_nothing(broker: Broker) -> None:
    files = broker.open_files()
    with Client(broker) as good:
        for number in range(300):
            client = Client(broker)
            client.send(framed(bytes(200))[: 1 + number % 100])
            client.reset()
        assert good.produce(batch(b"a")).error_code == 0

    assert eventually(lambda: broker.open_files() <= files)


def test_clients_that_vanish_while_they_wait_leave_nothing(broker: Broker) -> None:
    files = broker.open_files()
    wait_ms = 2**31 - 1
    fetch = struct.pack(">hhih", 1, 4, 1, -1) + struct.pack(">iiiibi", -1, wait_ms, 99, 99, 0, 0)
    for _ in range(300):
        client = Client(broker)
        client.send(framed(fetch))
        client.reset()

    assert eventually(lambda: broker.open_files() <= files)


def test_large_frames_that_come_slowly_on_many_connections_fill_no_memory(broker: Broker) -> None:
    with ExitStack() as stack:
        good = stack.enter_context(Client(broker))
        assert good.produce(batch(b"a")).error_code == 0  # What this imports is no frame.
        before = broker.resident_bytes()
        slow = [stack.enter_context(Client(broker)) for _ in range(32)]
        for client in slow:
            client.try_send(struct.pack(">i", 100 * MIB))
        for _ in range(8):
            for client in slow:
                client.try_send(bytes(MIB))
            assert good.produce(batch(b"a")).error_code == 0

        # Of 256 MiB that were sent, no more is kept than all clients together may hold.
        # A frame that grows is copied: for a moment both are there.
        assert eventually(lambda: broker.resident_bytes() - before < 2 * REQUEST_BYTES_MAX)
        assert "dropped the connection with most of them" in broker.log


def test_a_client_over_the_limit_of_connections_is_refused(tmp_path: Path) -> None:
    with (
        serving(tmp_path / "log", MILLSTREAM_LIMITS__CONNECTIONS_MAX="20") as small,
        ExitStack() as stack,
    ):
        good = stack.enter_context(Client(small))
        good.produce(batch(b"a"))
        clients = [stack.enter_context(Client(small)) for _ in range(50)]

        assert clients[-1].is_closed()
        assert good.produce(batch(b"b")).error_code == 0
