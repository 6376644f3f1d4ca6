"""A Flux client of a node on virtual time: it talks to a gateway, and keeps what it hears."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import cast

from millstream.model import Buffer
from millstream.server.gateway_factories import flux_gateway_factory
from millstream.server.net.connection import Address, GatewayFactory, NewClient, Pace
from millstream.server.net.push_channel import PushChannel
from millstream.server.node import Node


class FluxTalk:
    """Its own push_channel: with `has_room` off it takes no pushes."""

    def __init__(self, node: Node, make_gateway: GatewayFactory | None = None) -> None:
        self.heard = b""
        self.has_room = True
        self.is_awaited = False
        self.on_room: Callable[[], None] | None = None
        self.pace = Pace()
        # All that is asked of an push_channel is here.
        push_channel = cast(PushChannel, self)
        client = NewClient(Address("127.0.0.1", 4222), "127.0.0.1", self.pace, push_channel)
        self.gateway = (make_gateway or flux_gateway_factory(node))(client)

    def fail(self, problem: Exception, /) -> None:
        raise problem

    def send(self, buffers: Iterable[Buffer], /) -> bool:
        if self.has_room:
            self.heard += b"".join(buffers)
        return self.has_room

    async def say(self, *lines: bytes) -> bytes:
        """Say it in one breath; return what it was answered, and what else came meanwhile."""
        before = len(self.heard)
        said = b"".join(line + b"\r\n" for line in lines)
        outcomes = [self.gateway.begin(request) for request in self.gateway.receive(said)]
        for outcome in outcomes:
            reply = outcome if outcome is None or isinstance(outcome, list) else await outcome
            self.heard += b"".join(reply or [])  # type: ignore[arg-type]
        return self.heard[before:]

    async def hear(self, count: int) -> list["Message"]:
        """Wait until so many messages have come, and take them."""
        while len(arrived := messages(self.heard)) < count:
            await asyncio.sleep(0.001)
        self.heard = b""
        return arrived


@dataclass
class Message:
    subject: str
    sid: str
    sequence: int
    value: bytes
    headers: bytes = field(default=b"")


def messages(heard: bytes) -> list[Message]:
    """The messages among what a client heard; replies are left out."""
    collected = []
    while heard:
        line, _, heard = heard.partition(b"\r\n")
        words = line.decode().split()
        if words and words[0] in ("MSG", "HMSG"):
            *_, sequence = words
            size = int(words[-2])
            header_size = int(words[3]) if words[0] == "HMSG" else 0
            body, heard = heard[:size], heard[size + 2 :]
            value, headers = body[header_size:], body[:header_size]
            collected.append(Message(words[1], words[2], int(sequence), value, headers))
    return collected
