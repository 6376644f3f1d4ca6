"""FlyMQ opcodes, Flux verbs and classic requests ask for the rights that their tables say."""

import json
from collections.abc import Callable
from typing import cast

import pytest

from millstream.model import Session
from millstream.protocols.access_rules import Rule
from millstream.protocols.classic import access as classic_access
from millstream.protocols.classic.wire import Frame, Kind, decode, encode
from millstream.protocols.flux import access as flux_access
from millstream.protocols.flux.wire import commands as flux_commands
from millstream.protocols.flymq import access as flymq_access
from millstream.protocols.flymq.router import HANDLERS as FLYMQ_HANDLERS
from millstream.protocols.flymq.wire import bodies, user_bodies
from millstream.protocols.flymq.wire.frames import HEAD, Body, Opcode
from millstream.server.gateway_factories import (
    classic_gateway_factory,
    flux_gateway_factory,
    flymq_gateway_factory,
)
from millstream.server.net.connection import Address, GatewayFactory, NewClient, Pace
from millstream.server.net.push_channel import PushChannel
from millstream.server.node import Node
from tests.support.access_sweep import Send, check_hidden, check_rights
from tests.support.flux import FluxTalk
from tests.support.flymq import asking
from tests.support.virtual_loop import run


def client_of(session: Session, push_channel: PushChannel | None = None) -> NewClient:
    channel = push_channel or PushChannel()
    return NewClient(Address("localhost", 9092), "10.0.0.7", Pace(), channel, session)


async def tell(make: GatewayFactory, session: Session, data: bytes) -> list[bytes]:
    """What is answered to bytes, request by request."""
    gateway = make(client_of(session))
    replies = []
    for request in gateway.receive(data):
        outcome = gateway.begin(request)
        reply = outcome if outcome is None or isinstance(outcome, list) else await outcome
        replies.append(b"".join(bytes(part) for part in cast("list[bytes]", reply or [])))
    gateway.close()
    return replies


# -- FlyMQ -----------------------------------------------------------------------------------------

QUERY = user_bodies.AuditQuery(0, 0, (), "", "", "", "", 1, 0)
FLYMQ: dict[Opcode, Callable[[str], Body]] = {
    Opcode.PRODUCE: lambda topic: bodies.Produce(topic, b"k", b"v", -1),
    Opcode.PRODUCE_DELAYED: lambda topic: bodies.ProduceDelayed(topic, b"v", 1_000),
    Opcode.PRODUCE_WITH_TTL: lambda topic: bodies.ProduceWithTtl(topic, b"v", 60_000),
    Opcode.CONSUME: lambda topic: bodies.Consume(topic, 0, 0),
    Opcode.CONSUME_ZERO_COPY: lambda topic: bodies.Consume(topic, 0, 0),
    Opcode.FETCH: lambda topic: bodies.Fetch(topic, 0, 0, 1, ""),
    Opcode.FETCH_BINARY: lambda topic: bodies.Fetch(topic, 0, 0, 1, ""),
    Opcode.CREATE_TOPIC: lambda topic: bodies.CreateTopic(f"{topic}-2", 1),
    Opcode.DELETE_TOPIC: bodies.TopicOnly,
    Opcode.METADATA: bodies.TopicOnly,
    Opcode.SEEK_TO_TIMESTAMP: lambda topic: bodies.SeekToTimestamp(topic, 0, 0),
    Opcode.LIST_TOPICS: lambda topic: bodies.Nothing(),
    Opcode.SUBSCRIBE: lambda topic: bodies.Subscribe(topic, "readers", 0, "earliest"),
    Opcode.COMMIT: lambda topic: bodies.Commit(topic, "readers", 0, 1),
    Opcode.RESET_OFFSET: lambda topic: bodies.ResetOffset(topic, "readers", 0, "earliest", 0),
    Opcode.GET_OFFSET: lambda topic: bodies.GroupPartition(topic, "readers", 0),
    Opcode.GET_LAG: lambda topic: bodies.GroupPartition(topic, "readers", 0),
    Opcode.LIST_GROUPS: lambda topic: bodies.Nothing(),
    Opcode.DESCRIBE_GROUP: lambda topic: bodies.GroupOfTopic(topic, "readers"),
    Opcode.FETCH_DLQ: lambda topic: bodies.FetchDeadLetters(topic, 1),
    Opcode.REPLAY_DLQ: lambda topic: bodies.ReplayById(topic, "0-0"),
    Opcode.PURGE_DLQ: bodies.TopicOnly,
    Opcode.CANCEL_DELAYED: lambda topic: bodies.CancelDelayed(f"{topic}~0"),
    Opcode.BEGIN_TX: lambda topic: bodies.Nothing(),
    Opcode.COMMIT_TX: lambda topic: bodies.TransactionId("tx"),
    Opcode.ABORT_TX: lambda topic: bodies.TransactionId("tx"),
    Opcode.PRODUCE_TX: lambda topic: bodies.ProduceInTransaction("tx", topic, b"v"),
    Opcode.CLUSTER_JOIN: lambda topic: bodies.JoinCluster("localhost:1"),
    Opcode.CLUSTER_LEAVE: lambda topic: bodies.Nothing(),
    Opcode.CLUSTER_STATUS: lambda topic: bodies.Nothing(),
    Opcode.CLUSTER_METADATA: bodies.TopicOrAll,
    Opcode.WHOAMI: lambda topic: bodies.Nothing(),
    Opcode.REGISTER_SCHEMA: lambda topic: bodies.RegisterSchema(topic, "json", b"{}"),
    Opcode.GET_SCHEMA: lambda topic: bodies.SchemaVersion(topic, 0),
    Opcode.LIST_SCHEMAS: bodies.SchemaNameOrAll,
    Opcode.VALIDATE: lambda topic: bodies.Validate(topic, b"{}"),
    Opcode.PRODUCE_WITH_SCHEMA: lambda topic: bodies.ProduceWithSchema(topic, topic, b"{}"),
    Opcode.DELETE_SCHEMA: lambda topic: bodies.SchemaVersion(topic, 0),
    Opcode.USER_CREATE: lambda topic: user_bodies.UserRequest("eve", "secret", "", (), True),
    Opcode.USER_DELETE: lambda topic: user_bodies.UserOnly("eve"),
    Opcode.USER_UPDATE: lambda topic: user_bodies.UserRequest("eve", "", "", (), True),
    Opcode.USER_LIST: lambda topic: bodies.Nothing(),
    Opcode.ACL_GET: bodies.TopicOnly,
    Opcode.ACL_LIST: lambda topic: bodies.Nothing(),
    Opcode.ROLE_LIST: lambda topic: bodies.Nothing(),
}
# Those of the trail need a right on `__audit` itself, which `*` is not; logins, and what owners and
# users may do with their own, have tests of their own.
FLYMQ_APART = {
    *(Opcode.AUDIT_QUERY, Opcode.AUDIT_EXPORT, Opcode.AUTH, Opcode.DELETE_GROUP),
    *(Opcode.USER_GET, Opcode.PASSWORD_CHANGE, Opcode.ACL_SET, Opcode.ACL_DELETE),
}


def flymq(opcode: Opcode) -> Send:
    async def send(node: Node, session: Session, topic: str) -> str:
        data = asking(opcode, FLYMQ[opcode](topic))
        (reply,) = await tell(flymq_gateway_factory(node), session, data)
        return f"{reply[2]:02x} {reply[HEAD.size :]!r}"

    return send


def test_every_opcode_has_a_rule_and_a_sample() -> None:
    assert set(flymq_access.RULES) == set(FLYMQ_HANDLERS)
    assert set(FLYMQ) | FLYMQ_APART == set(FLYMQ_HANDLERS)


@pytest.mark.parametrize("opcode", FLYMQ, ids=lambda opcode: opcode.name)
def test_an_opcode_needs_what_its_rule_says(opcode: Opcode) -> None:
    rule = flymq_access.RULES[opcode]
    run(check_rights(flymq(opcode), rule, lambda answer: "unauthorized: User:ann" in answer))


@pytest.mark.parametrize("opcode", FLYMQ, ids=lambda opcode: opcode.name)
def test_an_opcode_hides_names(opcode: Opcode) -> None:
    run(check_hidden(flymq(opcode), flymq_access.RULES[opcode]))


# -- Flux ------------------------------------------------------------------------------------------

FLUX: dict[str, tuple[str, ...]] = {
    "PUB": ("PUB {} 1", "a"),
    "HPUB": ("HPUB {} 2 3", "", "a"),
    "SUB": ("SUB {} 1",),
    "SUB in a group": ("SUB {} readers 1",),
    "SUB durable": ("SUB {} DURABLE:mine 1",),
    "SUB of all": ("SUB > 1",),
    "PULL": ("PULL {} 1",),
    "REPLAY": ("REPLAY FIRST 1",),
    "UNSUB": ("UNSUB 1",),
    "ACK": ("ACK 1",),
    "NACK": ("NACK 1",),
    "REJECT": ("REJECT 1",),
    "FLOWCTL": ("FLOWCTL 1 PUSH",),
    "STATS": ("STATS",),
    "HEADERS": ("HEADERS ON",),
    "PING": ("PING",),
    "PONG": ("PONG",),
    "INFO": ("INFO",),
    "CONNECT": ("CONNECT {{}}",),
    "AUTH": ("AUTH ann secret",),
    "JOIN": ("JOIN 2 localhost:1",),
    "LEAVE": ("LEAVE 2",),
}
FLUX_RULES: dict[str, Rule] = {
    **{name: flux_access.RULES[name.split()[0]] for name in FLUX},
    "SUB": Rule(("R T",), flux_access.RULES["SUB"].also),
    "SUB in a group": Rule(("R T", "R G"), flux_access.RULES["SUB"].also),
    "SUB durable": Rule(("R T", "R G"), flux_access.RULES["SUB"].also),
    "PULL": Rule(("R T",), flux_access.RULES["PULL"].also),
}


def flux(name: str) -> Send:
    async def send(node: Node, session: Session, topic: str) -> str:
        make = flux_gateway_factory(node)
        talk = FluxTalk(node, lambda client: make(client._replace(session=session)))
        lines = [line.format(topic).encode() for line in FLUX[name]]
        answer = (await talk.say(*lines)).decode()
        talk.gateway.close()
        return answer

    return send


def test_every_verb_has_a_rule_and_a_sample() -> None:
    verbs = {"PUB", "HPUB", "SUB", "CONNECT", *flux_commands.READERS}

    assert set(flux_access.RULES) == verbs
    assert {name.split()[0] for name in FLUX} == verbs
    assert {verb for verb in flux_access.VERBS.values() if verb} <= verbs


@pytest.mark.parametrize("name", FLUX)
def test_a_verb_needs_what_its_rule_says(name: str) -> None:
    run(check_rights(flux(name), FLUX_RULES[name], lambda answer: "-ERR DENIED" in answer))


@pytest.mark.parametrize("name", FLUX)
def test_a_verb_hides_names(name: str) -> None:
    run(check_hidden(flux(name), FLUX_RULES[name]))


# -- classic ---------------------------------------------------------------------------------------

CLASSIC: dict[Kind, dict[str, str]] = {
    Kind.HEARTBEAT: {},
    Kind.CREATE_TOPIC: {"topic": "{}-2"},
    Kind.PUBLISH: {"topic": "{}", "payload": "x"},
    Kind.CREATE_SUBSCRIPTION: {"subscription_id": "mine", "topic": "{}"},
    Kind.DELETE_SUBSCRIPTION: {"subscription_id": "sub"},
    Kind.SUBSCRIBE: {"subscription_id": "sub", "subscriber_id": "me"},
    Kind.UNSUBSCRIBE: {"subscriber_id": "me"},
    Kind.AUTHENTICATE: {"user": "ann", "password": "secret"},
}


def classic(kind: Kind) -> Send:
    async def send(node: Node, session: Session, topic: str) -> str:
        properties = {key: text.format(topic) for key, text in CLASSIC[kind].items()}
        data = encode(Frame(kind, 1, 0, properties))
        (reply,) = await tell(classic_gateway_factory(node), session, data)
        answered = {
            key: text for key, text in decode(reply).properties.items() if key != "created_at"
        }
        return json.dumps(answered, sort_keys=True)

    return send


def test_every_classic_request_has_a_rule_and_a_sample() -> None:
    assert set(classic_access.RULES) | classic_access.PUSHED == set(Kind)
    assert set(CLASSIC) == set(classic_access.RULES)


@pytest.mark.parametrize("kind", CLASSIC, ids=lambda kind: kind.name)
def test_a_classic_request_needs_what_its_rule_says(kind: Kind) -> None:
    rule = classic_access.RULES[kind]
    run(check_rights(classic(kind), rule, lambda answer: "User:ann may not" in answer))


@pytest.mark.parametrize("kind", CLASSIC, ids=lambda kind: kind.name)
def test_a_classic_request_hides_names(kind: Kind) -> None:
    run(check_hidden(classic(kind), classic_access.RULES[kind]))
