"""Requests that were right before somebody changed a few bytes, some thousand of them."""

from random import Random
from typing import Any

import pytest

from millstream.kafka_wire.apis.data import FetchRequest, FetchResponse
from millstream.kafka_wire.apis.groups import JoinGroupRequest
from millstream.kafka_wire.apis.table import APIS
from millstream.kafka_wire.schema import Field, Kind, Message
from millstream.protocols.kafka.router import SERVED
from tests.hostile.broker import (
    PRODUCE,
    TOPIC,
    Broker,
    Client,
    batch,
    framed,
    produce_request,
    spell,
)
from tests.hostile.mutants import EDGES
from tests.unit.protocols.kafka import arbitrary as arbitrary_module
from tests.unit.protocols.kafka.arbitrary import arbitrary

SEED = 20
MUTANTS = 3_000
REQUESTS = 1_500
NAMES = (
    *("t1", "t2", "t3", "__consumer_offsets", "mutants", "range", "consumer"),
    *("", "1", "-1", "retention.ms", "cleanup.policy", "compact", "x" * 300),
)
SMALL_NUMBERS = (0, 0, 1, -1, -2, 2, 5, 100)
ASK_EVERY = 25
MIB = 2**20
FETCH, JOIN_GROUP = 1, 11


def fetch_request(offset: int = 0, *, max_wait_ms: int = 0) -> FetchRequest:
    part = FetchRequest.Topic.Partition(
        partition=0, fetch_offset=offset, partition_max_bytes=MIB, current_leader_epoch=-1
    )
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=MIB,
        session_epoch=-1,
        topics=[FetchRequest.Topic(topic=TOPIC, partitions=[part])],
    )


def right_request(random: Random) -> bytes:
    """A request that does something, or any request of any API."""
    if random.random() < 0.3:
        requests: list[tuple[int, int, Message]] = [
            (PRODUCE, 9, produce_request(batch(b"mutant"), acks=random.choice([-1, 0, 1]))),
            (FETCH, 11, fetch_request(max_wait_ms=100)),
            (
                JOIN_GROUP,
                3,
                JoinGroupRequest(
                    group_id="mutants",
                    session_timeout_ms=10_000,
                    rebalance_timeout_ms=10_000,
                    member_id="",
                    protocol_type="consumer",
                    protocols=[JoinGroupRequest.Protocol(name="range", metadata=b"x")],
                ),
            ),
        ]
        return spell(*random.choice(requests))[4:]
    api = APIS[random.choice(SERVED)]
    version = random.randint(api.first, api.last)
    return spell(api.key, version, arbitrary(api.request, version, random))[4:]


def mutated(body: bytes, random: Random) -> bytes:
    changed = bytearray(body)
    for _ in range(random.choice([1, 1, 1, 2, 5])):
        at = random.randrange(4, len(changed) + 1)  # The API stays; all else may change.
        match random.randrange(6):
            case 0:
                changed[at : at + 1] = bytes([random.getrandbits(8)])
            case 1:
                changed[at : at + 4] = random.choice(EDGES)
            case 2:
                del changed[at : at + random.randint(1, 8)]
            case 3:
                changed[at:at] = random.randbytes(random.randint(1, 8))
            case 4:
                changed[at:at] = changed[at : at + random.randint(1, 30)] * random.randint(1, 20)
            case _:
                changed[3] = random.randrange(14)  # The version.
    return bytes(changed)


def test_no_mutant_harms_the_broker_or_the_answers_of_others(broker: Broker) -> None:
    random = Random(SEED)
    before = broker.resident_bytes()
    with Client(broker) as good:
        for number in range(MUTANTS):
            with Client(broker) as bad:
                bad.try_send(framed(mutated(right_request(random), random)))
            if number % ASK_EVERY:
                continue
            sent = b"good %d" % number
            offset = good.produce(batch(sent)).base_offset
            answer = good.ask(FETCH, 11, fetch_request(offset))
            assert isinstance(answer, FetchResponse)
            buffers: Any = answer.responses[0].partitions[0].records
            records = b"".join(bytes(buffer) for buffer in buffers)
            assert sent in records

    assert broker.resident_bytes() - before < 100 * MIB


@pytest.mark.parametrize("seed", range(2))
def test_no_request_about_things_that_are_there_meets_a_bug(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    any_value = arbitrary_module._element
    monkeypatch.setattr(
        arbitrary_module,
        "_element",
        lambda field, version, random: _plausible(field, random, any_value(field, version, random)),
    )
    random = Random(seed)
    for _ in range(REQUESTS):
        api = APIS[random.choice(SERVED)]
        version = random.randint(api.first, api.last)
        with Client(broker) as client:
            client.try_send(spell(api.key, version, arbitrary(api.request, version, random)))


def _plausible(field: Field, random: Random, any_value: object) -> object:
    if field.kind is Kind.STRING:
        return random.choice(NAMES)
    if field.kind is Kind.RECORDS:
        return batch(b"plausible")
    if isinstance(any_value, int) and field.kind is not Kind.BOOLEAN and random.random() < 0.7:
        return random.choice(SMALL_NUMBERS)
    return any_value


def test_random_bytes_in_a_frame_do_no_harm(broker: Broker) -> None:
    random = Random(SEED)
    for _ in range(500):
        with Client(broker) as bad:
            bad.try_send(framed(random.randbytes(random.randint(4, 300))))
    for _ in range(200):
        with Client(broker) as bad:
            bad.try_send(random.randbytes(random.randint(1, 300)))
