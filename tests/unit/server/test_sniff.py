"""Which protocol a client speaks is told by its first byte."""

import asyncio

import pytest

from millstream.config import Limits
from millstream.server.connection import Pace
from millstream.server.outbox import Outbox
from millstream.server.sniff import Sniffer
from tests.support.doors import LineDoor, LineGateway

FLY = 0xAF


@pytest.fixture
def gateways() -> dict[str, LineGateway]:
    async def build() -> dict[str, LineGateway]:
        door = LineDoor(Limits())
        door.answers_at_once = True
        return {name: LineGateway(door, Pace(), Outbox()) for name in ("fly", "kafka")}

    return asyncio.run(build())


@pytest.mark.parametrize(
    ("first", "chosen"), [(b"\xaf", "fly"), (b"\x00", "kafka"), (b"G", "kafka")]
)
def test_the_first_byte_chooses_the_gateway(
    gateways: dict[str, LineGateway], first: bytes, chosen: str
) -> None:
    sniffer = Sniffer({FLY: lambda: gateways["fly"]}, lambda: gateways["kafka"])

    requests = list(sniffer.receive(first + b"\nquiet\nrest"))
    assert sniffer.begin(requests[1]) is None

    assert requests == [first, b"quiet"]
    assert gateways[chosen].begun == [b"quiet"]
    assert sniffer.unfinished_bytes == len(b"rest")
    sniffer.close()
    assert gateways[chosen].is_closed
    assert not any(gateway.begun for name, gateway in gateways.items() if name != chosen)


def test_who_goes_without_a_word_leaves_nothing_behind(gateways: dict[str, LineGateway]) -> None:
    sniffer = Sniffer({FLY: lambda: gateways["fly"]}, lambda: gateways["kafka"])

    assert sniffer.unfinished_bytes == 0
    sniffer.close()
    assert not any(gateway.is_closed for gateway in gateways.values())
