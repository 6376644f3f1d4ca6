"""Which protocol a client speaks is told by its first byte."""

import asyncio

import pytest

from millstream.config import Limits
from millstream.server.net.connection import Pace
from millstream.server.net.first_byte import FirstByteGateway
from millstream.server.net.push_channel import PushChannel
from tests.support.line_server import LineGateway, LineServer

FLY = 0xAF


@pytest.fixture
def gateways() -> dict[str, LineGateway]:
    async def build() -> dict[str, LineGateway]:
        server = LineServer(Limits())
        server.answers_at_once = True
        return {name: LineGateway(server, Pace(), PushChannel()) for name in ("fly", "kafka")}

    return asyncio.run(build())


@pytest.mark.parametrize(
    ("first", "chosen"), [(b"\xaf", "fly"), (b"\x00", "kafka"), (b"G", "kafka")]
)
def test_the_first_byte_chooses_the_gateway(
    gateways: dict[str, LineGateway], first: bytes, chosen: str
) -> None:
    by_first_byte = FirstByteGateway({FLY: lambda: gateways["fly"]}, lambda: gateways["kafka"])

    requests = list(by_first_byte.receive(first + b"\nquiet\nrest"))
    assert by_first_byte.begin(requests[1]) is None

    assert requests == [first, b"quiet"]
    assert gateways[chosen].begun == [b"quiet"]
    assert by_first_byte.unfinished_bytes == len(b"rest")
    by_first_byte.close()
    assert gateways[chosen].is_closed
    assert not any(gateway.begun for name, gateway in gateways.items() if name != chosen)


def test_who_goes_without_a_word_leaves_nothing_behind(gateways: dict[str, LineGateway]) -> None:
    by_first_byte = FirstByteGateway({FLY: lambda: gateways["fly"]}, lambda: gateways["kafka"])

    assert by_first_byte.unfinished_bytes == 0
    by_first_byte.close()
    assert not any(gateway.is_closed for gateway in gateways.values())
