"""Every Kafka API asks for the rights that its rule names, and for no others.

Requests are made from the schema tables with sample names, run once with all rights to record what
is asked, and then with exactly these rights and with each of them missing.
"""

import asyncio
import inspect
from collections.abc import Iterator
from typing import NamedTuple
from uuid import UUID

import pytest

from millstream.errors import ProtocolError
from millstream.kafka_wire.apis.table import APIS, Api
from millstream.kafka_wire.headers import RequestHeader
from millstream.kafka_wire.schema import NO_ID, Field, Kind, Message, plain_fields
from millstream.model import Session
from millstream.protocols.kafka.access import RULES
from millstream.protocols.kafka.router import HANDLERS, SERVED
from millstream.server.node import Node
from tests.support.access_sweep import Recording, digest, is_left, prepare, rule_of
from tests.support.nodes import batch, running_node
from tests.support.rights import ANN, ROOT, secured_node
from tests.support.virtual_loop import run
from tests.unit.protocols.kafka.asking import context_of

DENIED = {29: "T", 30: "G", 31: "C", 53: "X"}

# Values that a request needs to come as far as its rights, by API and field.
SAMPLES: dict[int, dict[str, object]] = {
    0: {"acks": 1, "transactional_id": None},
    1: {"session_id": 0, "session_epoch": -1},
    8: {"generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None},
    19: {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []},
    24: {"verify_only": False},
    30: {
        "resource_type": 2,
        "resource_pattern_type": 3,
        "principal": "User:bob",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    },
    29: {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1},
    31: {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1},
    32: {"resource_type": 2},
    33: {"resource_type": 2, "configs": []},
    37: {"count": 2, "assignments": None},
    44: {"resource_type": 2, "configs": []},
    48: {"components": []},
    49: {"entity_type": "user", "entity_name": "x", "key": "producer_byte_rate", "value": 1.0},
    68: {"member_id": "m", "subscribed_topic_regex": None},
    74: {"resource_types": []},
    10_009: {"id": "orders~0", "delivery_id": "orders~0"},
    10_010: {"id": "orders~0", "delivery_id": "orders~0"},
    10_002: {"count_max": 1},
    10_008: {"count_max": 1, "after": None},
    10_013: {},
    10_014: {"action": 0, "name": "ops"},
    10_016: {"principal": "User:bob", "operation": 3, "resource_type": 2},
}
# Where the last version names topics by their ids only, a name is asked for in an older one.
VERSIONS = {1: 12, 8: 9, 9: 9, 20: 5}
# Not here: logins, users and tokens have tests of their own; these samples would close or wait.
APART = {17, 18, 36, 50, 51, 10_011, 10_012, 10_015, 10_017}


# Versions without a place for the refusal: the answer is empty, as Kafka's is.
UNTOLD = {(35, 1), (35, 2)}


def version_of(key: int) -> int:
    return VERSIONS.get(key, APIS[key].last)


class Named(NamedTuple):
    """The topic of a sample request; the id is that of one that exists."""

    topic_id: UUID
    name: str


def value_of(api: Api, field: Field, version: int, named: Named) -> object:
    sample = SAMPLES.get(api.key, {})
    if field.name in sample:
        return sample[field.name]
    if field.is_array:
        return [element(api, field, version, named)]
    return element(api, field, version, named)


def element(api: Api, field: Field, version: int, named: Named) -> object:
    match field.kind:
        case Kind.BOOLEAN:
            return False
        case Kind.FLOAT64:
            return 1.0
        case Kind.UUID:
            return named.topic_id
        case Kind.STRING:
            return text(api, field, named)
        case Kind.BYTES:
            return b""
        case Kind.RECORDS:
            return batch(b"a")
        case Kind.MESSAGE:
            assert field.message is not None
            return sample(api, field.message, version, named)
        case _:
            return 60_000 if field.name.endswith("_ms") else 0


def text(api: Api, field: Field, named: Named) -> str:
    name = field.name
    if "transactional" in name or api.key in {65, 10_000, 10_001, 10_022}:
        return "billing"
    if "group" in name or api.key in {10, 15, 42, 69}:
        return "readers"
    if "member" in name or "instance" in name:
        return "m"
    if name == "type" or "protocol" in name:
        return "consumer"
    return named.name


def sample(api: Api, message: type[Message], version: int, named: Named) -> Message:
    fields = plain_fields(message, version)
    values = {field.name: value_of(api, field, version, named) for field in fields}
    if {"name", "topic_id"} <= values.keys():
        values["topic_id"] = NO_ID  # By its name.
    return message(**values)


def codes_in(message: object) -> Iterator[int]:
    if isinstance(message, list):
        for part in message:
            yield from codes_in(part)
    elif isinstance(message, Message):
        for name in message.__struct_fields__:
            value = getattr(message, name)
            if name.endswith("error_code"):
                yield value
            else:
                yield from codes_in(value)


async def answer(
    node: Node, api: Api, version: int, session: Session, name: str = "orders"
) -> Message | None:
    """The answer to a sample request; None if the connection would be closed."""
    named = Named(node.topics.describe(ROOT, "orders").topic_id, name)
    request = sample(api, api.request, version, named)
    header = RequestHeader(api.key, version, 7)
    try:
        async with asyncio.timeout(30):
            outcome = HANDLERS[api.key](context_of(node, header, session), request)
            response = await outcome if inspect.isawaitable(outcome) else outcome
    except (ProtocolError, TimeoutError):
        return None
    return response


async def recorded(key: int) -> set[str]:
    policy = Recording()
    async with running_node(policy=policy) as node:
        await prepare(node)
        await answer(node, APIS[key], version_of(key), ANN)
        return policy.asked


SWEPT = [key for key in SERVED if key not in APART]


def test_every_api_has_a_rule() -> None:
    assert set(RULES) == set(SERVED)


@pytest.mark.parametrize("key", SWEPT)
def test_an_api_asks_for_what_its_rule_says(key: int) -> None:
    rule, asked = RULES[key], run(recorded(key))

    assert set(rule.needs) <= asked <= {*rule.needs, *rule.also}


async def denied_with(key: int, rights: set[str]) -> tuple[set[str], bool]:
    """The kinds of resources that are denied, and whether the node is as it was."""
    async with secured_node(*(rule_of(right) for right in sorted(rights))) as node:
        await prepare(node)
        before = digest(node)
        response = await answer(node, APIS[key], version_of(key), ANN)
        codes = {code for code in codes_in(response) if code in DENIED}
        return {DENIED[code] for code in codes}, digest(node) == before


@pytest.mark.parametrize("key", SWEPT)
def test_exactly_these_rights_are_enough_and_each_is_needed(key: int) -> None:
    async def story() -> None:
        asked = await recorded(key)
        assert (await denied_with(key, asked))[0] == set()
        for missing in RULES[key].needs:
            granted = asked - {missing}
            if is_left(missing, granted):
                continue
            kinds, is_unchanged = await denied_with(key, granted)
            assert missing[-1] in kinds, missing
            assert is_unchanged, missing

    run(story())


@pytest.mark.parametrize("key", SWEPT)
def test_a_hidden_name_is_answered_as_one_that_does_not_exist(key: int) -> None:
    async def story() -> None:
        async with secured_node() as node:
            await prepare(node)
            there = await answer(node, APIS[key], version_of(key), ANN)
            not_there = await answer(node, APIS[key], version_of(key), ANN, "hidden")
            texts = [repr(answered).replace("orders", "hidden") for answered in (there, not_there)]
            assert texts[0] == texts[1]

    run(story())


def versions_of(key: int) -> range:
    return range(APIS[key].first, APIS[key].last + 1)


@pytest.mark.parametrize("key", SWEPT)
def test_every_version_asks_for_what_the_rule_says(key: int) -> None:
    async def story() -> None:
        rule = RULES[key]
        for version in versions_of(key):
            policy = Recording()
            async with running_node(policy=policy) as node:
                await prepare(node)
                await answer(node, APIS[key], version, ANN)
            assert set(rule.needs) <= policy.asked <= {*rule.needs, *rule.also}, version

    run(story())


@pytest.mark.parametrize("key", [key for key in SWEPT if RULES[key].needs])
def test_without_rights_every_version_refuses_and_changes_nothing(key: int) -> None:
    async def story() -> None:
        kinds = {right[-1] for right in RULES[key].needs}
        async with secured_node() as node:
            await prepare(node)
            before = digest(node)
            for version in versions_of(key):
                response = await answer(node, APIS[key], version, ANN)
                refused = {DENIED[code] for code in codes_in(response) if code in DENIED}
                is_told = bool(refused & kinds) or (key, version) in UNTOLD
                assert is_told, (version, response)
            assert digest(node) == before

    run(story())
