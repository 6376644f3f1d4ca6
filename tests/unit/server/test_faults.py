"""What an unexpected error ends: one below the gate the node, one client's only its connection."""

import asyncio
import tomllib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from millstream.config import Config
from millstream.model import Session
from millstream.protocols.flux import gateway
from millstream.protocols.flux.messages import Messages
from millstream.server.faults import BELOW_THE_GATE
from millstream.server.node import Phase
from millstream.server.service import Service, first_of
from millstream.server.system.real_ports import real_ports
from millstream.storage.log.log import Log
from tests.support.line_server import LOOPS, run_on
from tests.support.source_tree import ROOT

CONFIG = Config(storage="memory", port=0)
LAYERS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
    "importlinter"
]["contracts"][0]["layers"]
CLIENTS: list["Flux"] = []


def test_every_layer_below_the_gate_counts() -> None:
    first, last = LAYERS.index("millstream.engine"), LAYERS.index("millstream.kafka_client")
    below = [name.strip() for layer in LAYERS[first:last] for name in layer.split("|")]

    assert sorted(below) == sorted(f"millstream.{name}" for name in BELOW_THE_GATE)


def broken(*_: object, **__: object) -> Any:
    raise AssertionError("a record twice")


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[Service, "asyncio.Task[None]"]]:
    service = Service(CONFIG, real_ports(CONFIG))
    life = asyncio.create_task(service.run())
    await service.opened.wait()
    await service.node.topics.create(Session(), "orders")
    try:
        yield service, life
    finally:
        while CLIENTS:
            CLIENTS.pop().writer.transport.abort()
        service.stop()
        await asyncio.wait({life})
        await asyncio.sleep(0)


class Flux:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, service: Service) -> "Flux":
        CLIENTS.append(cls(*await asyncio.open_connection(*service.addresses["flux"])))
        return CLIENTS[-1]

    async def say(self, *lines: bytes) -> bytes:
        self.writer.write(b"".join(line + b"\r\n" for line in lines))
        return await self.reader.readline()


@pytest.mark.parametrize("loop", LOOPS)
def test_an_assertion_below_the_gate_stops_the_node(
    loop: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with serving() as (service, life):
            client = await Flux.connect(service)
            monkeypatch.setattr(Log, "append", broken)

            await client.say(b"PUB orders 5", b"hello")
            await asyncio.wait({life})

            problem = life.exception()
            assert problem is not None
            assert isinstance(first_of(problem), AssertionError)
            assert service.node.phase is Phase.FAILED

    run_on(loop, main())
    assert "stopping the node after an error below the gate" in caplog.text


def test_an_error_in_a_callback_of_the_loop_stops_the_node_if_it_is_the_nodes() -> None:
    async def main() -> None:
        async with serving() as (service, life):
            loop = asyncio.get_running_loop()
            loop.call_soon(service.node.hub.commits.apply_effects, None, None)  # type: ignore[arg-type]
            await asyncio.wait({life})

            assert service.node.phase is Phase.FAILED

    run_on("asyncio", main())


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("name", ["send", "decode"])
def test_an_error_of_one_clients_gateway_ends_its_connection_only(
    loop: str, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(real: Callable[..., Any]) -> Callable[..., Any]:
        def fail(*arguments: Any, **more: Any) -> Any:
            if is_broken:
                raise ZeroDivisionError("a bug")
            return real(*arguments, **more)

        return fail

    is_broken = False
    place = {"send": (Messages, "encode"), "decode": (gateway, "publish")}[name]

    async def main() -> None:
        nonlocal is_broken
        async with serving() as (service, life):
            monkeypatch.setattr(*place, failing(getattr(*place)))
            bad, good = await Flux.connect(service), await Flux.connect(service)
            assert await bad.say(b"SUB orders 1") == b"+OK\r\n"

            is_broken = True
            good.writer.write(b"PUB orders 5\r\nhello\r\n")
            victim = bad if name == "send" else good
            assert await victim.reader.read() == b""
            is_broken = False

            another = await Flux.connect(service)
            assert await another.say(b"PUB orders 5", b"again") != b""
            assert not life.done()
            assert service.node.phase is Phase.READY

    run_on(loop, main())
    assert "closed a connection after an unexpected error" in caplog.text
