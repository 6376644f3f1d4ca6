"""A right that is taken away ends what is open: nothing arrives after the answer to the change."""

import asyncio

import pytest

from millstream.control.acls import Acl, AclFilter
from millstream.kafka_wire.apis.data import FetchRequest, FetchResponse
from millstream.model import Acks
from millstream.protocols.classic.wire import Frame, Frames, Kind, decode, encode
from millstream.server.gateway_factories import (
    classic_gateway_factory,
    flux_gateway_factory,
)
from millstream.server.node import Node
from tests.support.flux import FluxTalk
from tests.support.nodes import ORDERS, batch
from tests.support.rights import ANN, ROOT, acl, secured_node
from tests.support.virtual_loop import run
from tests.unit.protocols.kafka.asking import ask

READ, GROUP = acl("READ", "topic:orders"), acl("READ", "group:readers")


async def revoke(node: Node, rule: Acl) -> None:
    removed = await node.access_rules.delete(
        ROOT, [AclFilter(rule.resource_type, rule.resource_name, rule.pattern_type)]
    )
    assert removed[0]


async def publish(node: Node, value: bytes) -> None:
    await node.partitions.append(ROOT, ORDERS, batch(value), Acks.ALL)


def flux_talk(node: Node) -> FluxTalk:
    make = flux_gateway_factory(node)
    return FluxTalk(node, lambda client: make(client._replace(session=ANN)))


@pytest.mark.parametrize("rule", [READ, GROUP], ids=["topic", "group"])
@pytest.mark.parametrize("line", [b"SUB orders 1", b"SUB orders readers 1", b"SUB > readers 1"])
def test_a_flux_subscription_hears_nothing_more(line: bytes, rule: Acl) -> None:
    if rule == GROUP and b"readers" not in line:
        pytest.skip("no group is named")

    async def scenario() -> None:
        async with secured_node(READ, GROUP) as node:
            await node.topics.create(ROOT, "orders")
            talk = flux_talk(node)
            assert (await talk.say(line)).startswith(b"+OK")
            await publish(node, b"before")
            await asyncio.sleep(1)
            assert b"before" in talk.heard
            await revoke(node, rule)
            talk.heard = b""
            await publish(node, b"after")
            await asyncio.sleep(30)

            assert b"after" not in talk.heard
            talk.gateway.close()

    run(scenario())


@pytest.mark.parametrize("rule", [READ, GROUP], ids=["topic", "group"])
def test_a_classic_subscriber_gets_nothing_more(rule: Acl) -> None:
    async def scenario() -> None:
        async with secured_node(READ, GROUP) as node:
            await node.topics.create(ROOT, "orders")
            make = classic_gateway_factory(node)
            talk = FluxTalk(node, lambda client: make(client._replace(session=ANN)))
            subscription = {"subscription_id": "readers", "topic": "orders"}
            joined = {"subscription_id": "readers", "subscriber_id": "me"}
            for number, (kind, properties) in enumerate(
                [(Kind.CREATE_SUBSCRIPTION, subscription), (Kind.SUBSCRIBE, joined)], start=1
            ):
                frame = encode(Frame(kind, number, 0, properties))
                for request in talk.gateway.receive(frame):
                    outcome = talk.gateway.begin(request)
                    reply = await outcome  # type: ignore[misc]
                    assert decode(bytes(reply[0])).properties["status"] == "success"
            await publish(node, b"before")
            await asyncio.sleep(2)
            assert pushed(talk.heard) == ["before"]
            await revoke(node, rule)
            talk.heard = b""
            await publish(node, b"after")
            await asyncio.sleep(20)

            assert pushed(talk.heard) == []
            talk.gateway.close()

    run(scenario())


def pushed(data: bytes) -> list[str]:
    frames = [decode(frame) for frame in Frames(frame_bytes_max=2**20).feed(data)]
    return [frame.body.decode() for frame in frames if frame.kind == Kind.DATA]


def test_a_fetch_that_waits_is_answered_with_the_refusal() -> None:
    async def scenario() -> None:
        async with secured_node(READ) as node:
            await node.topics.create(ROOT, "orders")
            topic = FetchRequest.Topic(
                topic="orders",
                partitions=[
                    FetchRequest.Topic.Partition(
                        partition=0, fetch_offset=0, partition_max_bytes=1_000
                    )
                ],
            )
            request = FetchRequest(
                max_wait_ms=300_000, min_bytes=1, topics=[topic], session_id=0, session_epoch=-1
            )
            waiting = asyncio.ensure_future(
                ask(node, request, FetchResponse, version=12, session=ANN)
            )
            await asyncio.sleep(10)
            assert not waiting.done()
            began = asyncio.get_running_loop().time()
            await revoke(node, READ)
            answer = await waiting

            assert answer.responses[0].partitions[0].error_code == 29
            assert asyncio.get_running_loop().time() - began < 1

    run(scenario())
