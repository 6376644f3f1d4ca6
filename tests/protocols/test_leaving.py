"""A client that leaves frees all that was received from it, without the cycle collector."""

import gc
import socket
import struct
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from millstream.server.gateway_factories import (
    classic_gateway_factory,
    flux_gateway_factory,
    flymq_gateway_factory,
    kafka_gateway_factory,
)
from millstream.server.net.connection import Gateway, GatewayFactory, NewClient
from millstream.server.node import Node
from millstream.testing import run_broker

SECONDS_MAX = 20
HALF = bytes(500_000)
BEGUN = {
    "kafka": struct.pack(">i", 2 * len(HALF)) + HALF,
    "flymq": b"\xaf\x01\x01\x01" + struct.pack(">I", 2 * len(HALF)) + HALF,
    "flux": b"SUB a.> s\r\nPUB a.b 1\r\nx\r\nPUB a.b 1000000\r\n" + HALF,
    "classic": struct.pack(">IIQQII", 32 + 2 * len(HALF), 9, 1, 0, 0, 2 * len(HALF)) + HALF,
}


@pytest.fixture
def gateways(monkeypatch: pytest.MonkeyPatch) -> "list[weakref.ref[object]]":
    """All that are made, as far as they still live."""
    made: list[weakref.ref[object]] = []
    for name, make in (
        ("kafka", kafka_gateway_factory),
        ("flymq", flymq_gateway_factory),
        ("flux", flux_gateway_factory),
        ("classic", classic_gateway_factory),
    ):
        # Any: the factories of protocols take options of their own.
        def watched(
            node: Node, make: Callable[..., GatewayFactory] = make, **options: Any
        ) -> GatewayFactory:
            make_gateway = make(node, **options)

            def and_watch(client: NewClient) -> Gateway:
                gateway = make_gateway(client)
                made.append(weakref.ref(gateway))
                return gateway

            return and_watch

        monkeypatch.setattr(f"millstream.server.listeners.{name}_gateway_factory", watched)
    return made


@pytest.fixture
def no_collecting() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("protocol", BEGUN)
def test_a_client_that_leaves_within_a_large_request_leaves_nothing(
    gateways: "list[weakref.ref[object]]", no_collecting: None, protocol: str
) -> None:
    with run_broker() as broker:
        ports = {"flux": broker.flux_port, "classic": broker.classic_port}
        with socket.create_connection((broker.host, ports.get(protocol, broker.port))) as client:
            client.sendall(BEGUN[protocol])
            _until(lambda: bool(gateways))
        _until(lambda: all(gateway() is None for gateway in gateways))


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
