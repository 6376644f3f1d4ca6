"""Client quotas over the wire: described, altered, and felt by those who produce and fetch."""

import asyncio
import inspect
from typing import Any

import pytest

from millstream.config import Config, Limits
from millstream.control.quotas import DEFAULT, Entity
from millstream.engine.gate import Everyone, Operation
from millstream.errors import ProtocolError
from millstream.kafka_wire.apis.configs import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    QuotaEntity,
)
from millstream.kafka_wire.apis.data import (
    FetchRequest,
    FetchResponse,
    ProduceRequest,
    ProduceResponse,
)
from millstream.kafka_wire.error_codes import ErrorCode
from millstream.kafka_wire.headers import RequestHeader
from millstream.model import Acks, Session
from millstream.protocols.kafka.context import Context
from millstream.protocols.kafka.fetch_sessions import FINAL_EPOCH, OPENING_EPOCH
from millstream.protocols.kafka.handlers.data import produce
from millstream.protocols.kafka.handlers.fetch import fetch
from millstream.protocols.kafka.handlers.quotas import Match
from millstream.server.node import Node
from tests.support.nodes import ORDERS, SESSION, batch, running_node
from tests.support.virtual_loop import run
from tests.unit.protocols.kafka.asking import STRANGER, ask, context_of

PRODUCER, CONSUMER = "producer_byte_rate", "consumer_byte_rate"
INVALID = ErrorCode.INVALID_REQUEST
USER, CLIENT = "user", "client-id"

Parts = list[tuple[str, str | None]]


class OnlyTests(Everyone):
    def allows(self, session: Session, operation: Operation, resource: str) -> bool:
        return session == SESSION


def entry(parts: Parts, **changes: float | None) -> AlterClientQuotasRequest.Entry:
    return AlterClientQuotasRequest.Entry(
        entity=[QuotaEntity(entity_type=kind, entity_name=name) for kind, name in parts],
        ops=[
            AlterClientQuotasRequest.Entry.Operation(
                key=key, value=value or 0.0, remove=value is None
            )
            for key, value in changes.items()
        ],
    )


async def alter(
    node: Node,
    *entries: AlterClientQuotasRequest.Entry,
    validate_only: bool = False,
    session: Session = SESSION,
    version: int = 1,
) -> list[int]:
    request = AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)
    answer = await ask(node, request, AlterClientQuotasResponse, version=version, session=session)
    assert [entry.entity for entry in answer.entries] == [entry.entity for entry in entries]
    assert all(bool(entry.error_code) == bool(entry.error_message) for entry in answer.entries)
    return [entry.error_code for entry in answer.entries]


async def describe(
    node: Node,
    *components: tuple[str, int, str | None],
    strict: bool = False,
    session: Session = SESSION,
    version: int = 1,
) -> DescribeClientQuotasResponse:
    request = DescribeClientQuotasRequest(
        components=[
            DescribeClientQuotasRequest.Component(entity_type=kind, match_type=how, match=name)
            for kind, how, name in components
        ],
        strict=strict,
    )
    return await ask(node, request, DescribeClientQuotasResponse, version=version, session=session)


def quotas_of(
    answer: DescribeClientQuotasResponse,
) -> dict[tuple[tuple[str, str | None], ...], float]:
    """The producer's rate of each entity."""
    assert answer.error_code == 0
    assert answer.entries is not None
    return {
        tuple((part.entity_type, part.entity_name) for part in entry.entity): value.value
        for entry in answer.entries
        for value in entry.values
        if value.key == PRODUCER
    }


# -- describe and alter ------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1])
def test_what_was_altered_is_described(version: int) -> None:
    async def story() -> None:
        async with running_node() as node:
            codes = await alter(
                node,
                entry([(USER, "alice"), (CLIENT, None)], producer_byte_rate=5.0),
                entry([(CLIENT, "app")], producer_byte_rate=6.0, consumer_byte_rate=7.0),
                entry([("ip", "10.0.0.1")], connection_creation_rate=8.0),
                version=version,
            )
            assert codes == [0, 0, 0]
            assert quotas_of(await describe(node, version=version)) == {
                ((USER, "alice"), (CLIENT, None)): 5.0,
                ((CLIENT, "app"),): 6.0,
            }
            addresses = await describe(node, ("ip", Match.ANY, None), version=version)
            values = [each.value for row in addresses.entries or () for each in row.values]
            assert values == [8.0]

            removal = entry([(CLIENT, "app")], producer_byte_rate=None)
            gone = entry([("ip", "10.0.0.1")], connection_creation_rate=None)
            assert await alter(node, removal, gone, version=version) == [0, 0]

            assert node.client_quotas.describe(SESSION) == {
                Entity("alice", DEFAULT): {PRODUCER: 5.0},
                Entity(None, "app"): {CONSUMER: 7.0},
            }

    run(story())


ALICE, ALICES, BOB, ANYBODY, APP = (
    ((USER, "alice"),),
    ((USER, "alice"), (CLIENT, "app")),
    ((USER, "bob"),),
    ((USER, None),),
    ((CLIENT, "app"),),
)


@pytest.mark.parametrize(
    ("components", "strict", "expected"),
    [
        ([], False, {ALICE, ALICES, BOB, ANYBODY, APP}),
        ([], True, set()),
        ([(USER, Match.EXACT, "alice")], False, {ALICE, ALICES}),
        ([(USER, Match.EXACT, "alice")], True, {ALICE}),
        ([(USER, Match.DEFAULT, None)], False, {ANYBODY}),
        ([(USER, Match.ANY, None)], False, {ALICE, ALICES, BOB, ANYBODY}),
        ([(USER, Match.ANY, None)], True, {ALICE, BOB, ANYBODY}),
        ([(USER, Match.ANY, None), (CLIENT, Match.ANY, None)], True, {ALICES}),
        ([(CLIENT, Match.EXACT, "app")], False, {ALICES, APP}),
        ([(CLIENT, Match.DEFAULT, None)], False, set()),
    ],
)
def test_a_filter_matches_by_name_by_default_or_by_kind(
    components: list[tuple[str, int, str | None]], strict: bool, expected: set[object]
) -> None:
    async def story() -> None:
        async with running_node() as node:
            entities = (ALICE, ALICES, BOB, ANYBODY, APP)
            await alter(node, *(entry(list(entity), producer_byte_rate=1.0) for entity in entities))

            assert set(quotas_of(await describe(node, *components, strict=strict))) == expected

    run(story())


@pytest.mark.parametrize(
    "components",
    [
        [("group", Match.ANY, None)],
        [("", Match.ANY, None)],
        [(USER, Match.EXACT, None)],
        [(USER, Match.DEFAULT, "alice")],
        [(USER, Match.ANY, "alice")],
        [(USER, 3, None)],
        [(USER, Match.ANY, None), (USER, Match.EXACT, "alice")],
    ],
)
def test_a_filter_that_makes_no_sense_is_refused(
    components: list[tuple[str, int, str | None]],
) -> None:
    async def story() -> None:
        async with running_node() as node:
            answer = await describe(node, *components)

            assert (answer.error_code, answer.entries) == (INVALID, None)
            assert answer.error_message

    run(story())


@pytest.mark.parametrize(
    "bad",
    [
        entry([(USER, "a")], request_percentage=50.0),
        entry([(USER, "a")], controller_mutation_rate=-5.0),
        entry([("ip", "10.0.0")], connection_creation_rate=5.0),
        entry([("ip", "10.0.0.1"), (USER, "a")], connection_creation_rate=5.0),
        entry([("ip", "10.0.0.1")], producer_byte_rate=5.0),
        entry([(USER, "a")], producer_byte_rate=0.5),
        entry([(USER, "a"), (USER, "b")], producer_byte_rate=5.0),
        entry([(USER, "")], producer_byte_rate=5.0),
        entry([(USER, DEFAULT)], producer_byte_rate=5.0),
        entry([], producer_byte_rate=5.0),
    ],
)
def test_one_that_is_refused_does_not_keep_others_from_being_done(
    bad: AlterClientQuotasRequest.Entry,
) -> None:
    async def story() -> None:
        async with running_node() as node:
            good = entry([(CLIENT, "good")], producer_byte_rate=1.0)

            assert await alter(node, bad, good) == [INVALID, 0]
            assert quotas_of(await describe(node)) == {((CLIENT, "good"),): 1.0}

    run(story())


def test_naming_anything_twice_is_refused() -> None:
    async def story() -> None:
        async with running_node() as node:
            twice = entry([(USER, "a")], producer_byte_rate=1.0)
            twice.ops.append(twice.ops[0])
            pair: Parts = [(USER, "b"), (CLIENT, "c")]

            assert await alter(
                node,
                twice,
                entry(pair, producer_byte_rate=1.0),
                entry(pair[::-1], producer_byte_rate=2.0),
            ) == [INVALID, INVALID, INVALID]
            assert quotas_of(await describe(node)) == {}

    run(story())


def test_asking_only_whether_it_would_work_changes_nothing() -> None:
    async def story() -> None:
        async with running_node() as node:
            good = entry([(USER, "a")], producer_byte_rate=1.0)
            bad = entry([(USER, "b")], producer_byte_rate=-1.0)

            assert await alter(node, good, bad, validate_only=True) == [0, INVALID]
            assert quotas_of(await describe(node)) == {}

    run(story())


def test_strangers_neither_see_nor_alter_quotas() -> None:
    async def story() -> None:
        async with running_node(policy=OnlyTests()) as node:
            denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            change = entry([(USER, "a")], producer_byte_rate=1.0)

            assert (await describe(node, session=STRANGER)).error_code == denied
            assert await alter(node, change, session=STRANGER) == [denied]

    run(story())


# -- produce -----------------------------------------------------------------------------------


def producing(node: Node, request_bytes: int) -> Context:
    return context_of(node, RequestHeader(0, 9, 7), SESSION, request_bytes=request_bytes)


def records(acks: int, partition: int = 0) -> ProduceRequest:
    part = ProduceRequest.Topic.Partition(index=partition, records=batch(b"a"))
    topic = ProduceRequest.Topic(name="orders", partition_data=[part])
    return ProduceRequest(acks=acks, timeout_ms=1_000, topic_data=[topic])


async def limited(node: Node, rate: float) -> None:
    await node.topics.create(SESSION, "orders")
    change = entry(
        [(USER, SESSION.principal.name)], producer_byte_rate=rate, consumer_byte_rate=rate
    )
    assert await alter(node, change) == [0]


@pytest.mark.parametrize("acks", [1, -1])
def test_a_producer_over_its_quota_is_answered_as_ever_told_to_wait_and_not_read(acks: int) -> None:
    async def story() -> None:
        async with running_node() as node:
            await limited(node, 1_000)
            first, second = producing(node, 1_000), producing(node, 500)

            answers = []
            for context in (first, second):
                outcome = produce(context, records(acks))
                answers.append(await outcome if inspect.isawaitable(outcome) else outcome)

            now = asyncio.get_running_loop().time()
            assert all(isinstance(answer, ProduceResponse) for answer in answers)
            codes = [part.responses[0].partition_responses[0].error_code for part in answers]  # type: ignore[union-attr]
            assert codes == [0, 0]
            assert first.pace.resume_at == 0.0
            assert 0.45 < second.pace.resume_at - now <= 0.5
            assert answers[0].throttle_time_ms == 0  # type: ignore[union-attr]
            assert 450 < answers[1].throttle_time_ms <= 500  # type: ignore[union-attr]

    run(story())


def test_a_producer_that_wants_no_answer_has_to_wait_all_the_same() -> None:
    async def story() -> None:
        async with running_node() as node:
            await limited(node, 1_000)
            context = producing(node, 3_000)

            assert produce(context, records(0)) is None

            assert context.pace.resume_at - asyncio.get_running_loop().time() == pytest.approx(2)
            with pytest.raises(ProtocolError):
                produce(context, records(0, partition=9))

    run(story())


def test_a_producer_without_a_quota_is_not_even_counted() -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders")
            context = producing(node, 10**9)

            produce(context, records(1))
            assert (len(node.usage), context.pace.resume_at) == (0, 0.0)

            await alter(node, entry([(USER, "somebody else")], producer_byte_rate=1.0))
            produce(context, records(1))
            assert (len(node.usage), context.pace.resume_at) == (0, 0.0)

    run(story())


# -- fetch -------------------------------------------------------------------------------------


def fetching(epoch: int, session_id: int = 0, **fields: Any) -> FetchRequest:
    part = FetchRequest.Topic.Partition(
        partition=0, fetch_offset=0, partition_max_bytes=2**20, **fields
    )
    topic = FetchRequest.Topic(topic="orders", partitions=[part])
    return FetchRequest(
        max_wait_ms=0, min_bytes=1, topics=[topic], session_id=session_id, session_epoch=epoch
    )


def is_empty(answer: FetchResponse) -> bool:
    return answer.error_code == 0 and not answer.responses


async def overdrawn(node: Node) -> Context:
    """A context whose client has read more than it may, by two batches that are its burst."""
    await limited(node, len(batch(b"a")))
    for _ in range(3):
        await node.partitions.append(SESSION, ORDERS, batch(b"a"), Acks.ALL)
    context = context_of(node, RequestHeader(1, 12, 7), SESSION)
    for _ in range(2):
        answer = await fetch(context, fetching(FINAL_EPOCH))
        assert answer.throttle_time_ms == 0
        assert not is_empty(answer)
    return context


def test_a_consumer_over_its_quota_is_told_to_wait_and_gets_nothing_until_it_has() -> None:
    async def story() -> None:
        async with running_node() as node:
            context = await overdrawn(node)

            answer = await fetch(context, fetching(FINAL_EPOCH))

            now = asyncio.get_running_loop().time()
            assert is_empty(answer)
            assert 900 < answer.throttle_time_ms <= 1_000
            assert context.pace.resume_at == pytest.approx(now + answer.throttle_time_ms / 1000)
            await asyncio.sleep(answer.throttle_time_ms / 1000)
            assert not is_empty(await fetch(context, fetching(FINAL_EPOCH)))

    run(story())


def test_a_consumer_gets_no_more_at_once_than_a_burst_but_always_a_batch() -> None:
    async def story() -> None:
        limits = Limits(quota_burst_ms_max=2_000)
        async with running_node(Config(limits=limits)) as node:
            await limited(node, len(batch(b"a")))
            for _ in range(5):
                await node.partitions.append(SESSION, ORDERS, batch(b"a"), Acks.ALL)
            context = context_of(node, RequestHeader(1, 12, 7), SESSION)

            answer = await fetch(context, fetching(FINAL_EPOCH))

            (part,) = answer.responses[0].partitions
            assert part.records is not None
            assert sum(record.size for record in part.records) == 2 * len(batch(b"a"))  # type: ignore[misc, union-attr]

    run(story())


def test_a_session_is_not_opened_by_an_answer_that_tells_nothing() -> None:
    async def story() -> None:
        async with running_node() as node:
            context = await overdrawn(node)

            answer = await fetch(context, fetching(OPENING_EPOCH))

            assert is_empty(answer)
            assert answer.throttle_time_ms > 0
            assert answer.session_id == 0
            assert len(context.broker.fetch_sessions) == 0

    run(story())


def test_a_session_goes_on_after_a_wait_as_if_nothing_had_been_asked() -> None:
    async def story() -> None:
        async with running_node() as node:
            context = await overdrawn(node)
            await asyncio.sleep(2)
            opened = await fetch(context, fetching(OPENING_EPOCH))
            await fetch(context, fetching(FINAL_EPOCH))

            throttled = await fetch(context, fetching(1, opened.session_id))
            assert is_empty(throttled)
            assert throttled.throttle_time_ms > 0
            assert throttled.session_id == opened.session_id

            await asyncio.sleep(2)
            served = await fetch(context, fetching(2, opened.session_id))
            assert served.session_id == opened.session_id
            assert not is_empty(served)

    run(story())


def test_an_unknown_session_is_told_of_even_while_the_client_must_wait() -> None:
    async def story() -> None:
        async with running_node() as node:
            context = await overdrawn(node)

            answer = await fetch(context, fetching(3, 12345))

            assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            assert answer.throttle_time_ms > 0

    run(story())
