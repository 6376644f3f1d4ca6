"""The FlyMQ listener of a node on virtual time: connections without sockets, frames both ways."""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any, TypeVar

from millstream.config import Config
from millstream.protocols.flymq.gateway import FlymqGateway
from millstream.protocols.flymq.wire import bodies
from millstream.protocols.flymq.wire.frames import Body, Opcode
from millstream.server.gateway_factories import flymq_gateway_factory
from millstream.server.net.connection import Address, NewClient, Pace
from millstream.server.net.push_channel import PushChannel
from millstream.server.node import Node
from tests.support.flymq import asking, reply_in
from tests.support.nodes import running_node
from tests.support.virtual_loop import run

B = TypeVar("B", bound=Body)


class Connection:
    """One client's conversation."""

    def __init__(self, gateway: FlymqGateway, pace: Pace) -> None:
        self.gateway = gateway
        self.pace = pace

    async def ask(self, opcode: Opcode, request: Body, answer: type[B]) -> B:
        """The reply after a way over the wire; raises `Refused` with the broker's sentence."""
        (frame,) = self.gateway.receive(asking(opcode, request))
        outcome = self.gateway.begin(frame)
        (reply,) = outcome if isinstance(outcome, list) else await outcome
        body = reply_in(bytes(reply), opcode)
        assert isinstance(body, answer)
        return body

    async def ask_all(self, frames: bytes) -> list[bytes]:
        """The frames that answer requests which came in one piece."""
        outcomes = [self.gateway.begin(frame) for frame in self.gateway.receive(frames)]
        replies = [outcome if isinstance(outcome, list) else await outcome for outcome in outcomes]
        return [b"".join(bytes(part) for part in reply) for reply in replies]

    async def produce(
        self, topic: str, value: bytes, *, key: bytes = b"", partition: int = -1
    ) -> bodies.RecordMetadata:
        request = bodies.Produce(topic, key, value, partition)
        return await self.ask(Opcode.PRODUCE, request, bodies.RecordMetadata)

    async def fetch(
        self, topic: str, offset: int = 0, *, partition: int = 0, count: int = 100, where: str = ""
    ) -> bodies.Fetched:
        request = bodies.Fetch(topic, partition, offset, count, where)
        return await self.ask(Opcode.FETCH, request, bodies.Fetched)

    async def values(self, topic: str, *, partition: int = 0) -> list[bytes]:
        return [record.value for record in (await self.fetch(topic, partition=partition)).records]

    async def create(self, topic: str, partitions: int = 1) -> None:
        await self.ask(Opcode.CREATE_TOPIC, bodies.CreateTopic(topic, partitions), bodies.Done)

    def close(self) -> None:
        self.gateway.close()


class FlymqListener:
    def __init__(self, node: Node) -> None:
        self.node = node
        self._make_gateway = flymq_gateway_factory(node)

    def connect(self) -> Connection:
        pace = Pace()
        gateway = self._make_gateway(
            NewClient(Address("localhost", 9092), "10.0.0.7", pace, PushChannel())
        )
        assert isinstance(gateway, FlymqGateway)
        return Connection(gateway, pace)


@asynccontextmanager
async def open_listener(config: Config | None = None) -> AsyncIterator[FlymqListener]:
    async with running_node(config) as node:
        yield FlymqListener(node)


def with_listener(
    config: Config | None = None,
) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., None]]:
    """Run a test on virtual time, with a listener of its own and the fixtures it names."""

    def decorate(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
        @wraps(test)
        def with_node(**others: Any) -> None:
            async def main() -> None:
                async with open_listener(config) as listener:
                    await test(listener, **others)

            run(main())

        signature = inspect.signature(test)
        fixtures = [
            parameter for name, parameter in signature.parameters.items() if name != "listener"
        ]
        with_node.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
        return with_node

    return decorate
