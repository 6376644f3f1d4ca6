"""Batches of transactions over the wire: told to our own clients, and answered with codes."""

import pytest

from millstream.kafka_wire.apis.discovery import ApiVersionsRequest
from millstream.kafka_wire.apis.millstream import (
    BeginBatchRequest,
    BeginBatchResponse,
    EndBatchRequest,
    EndBatchResponse,
)
from millstream.kafka_wire.apis.table import OWN_KEYS_FIRST
from millstream.kafka_wire.error_codes import ErrorCode
from millstream.kafka_wire.headers import RequestHeader
from millstream.names import BATCH_MEMBER_MARK
from millstream.protocols.kafka.handlers.discovery import api_versions_handler
from millstream.protocols.kafka.router import SERVED
from millstream.server.node import Node
from tests.support.batches import GROUP, SERIES, Driver
from tests.support.nodes import SESSION, running_node
from tests.support.transactions import Writer, committed, running_transactions, stable
from tests.support.virtual_loop import run
from tests.unit.protocols.kafka.asking import ask, context_of


def ending(
    driver: Driver, *members: Writer, commits: bool = True, term: int | None = None
) -> EndBatchRequest:
    return EndBatchRequest(
        group=GROUP,
        term=driver.term if term is None else term,
        series=SERIES,
        batch_id=0,
        committed=commits,
        members=[
            EndBatchRequest.Member(
                transactional_id=member.transactional_id,
                producer_id=member.producer.producer_id,
                producer_epoch=member.producer.epoch,
            )
            for member in members
        ],
    )


async def end(node: Node, request: EndBatchRequest) -> ErrorCode:
    response = await ask(node, request, EndBatchResponse)
    assert bool(response.error_code) is (response.error_message is not None)
    return ErrorCode(response.error_code)


def test_a_batch_is_begun_and_ended() -> None:
    async def story() -> None:
        async with running_transactions() as node:
            opened = await ask(node, BeginBatchRequest(group=GROUP), BeginBatchResponse)
            assert (opened.error_code, opened.term) == (ErrorCode.NONE, 1)
            assert (opened.series, opened.last_committed_batch) == ("", -1)
            driver = Driver(node)
            driver.term = opened.term
            task = await driver.wrote(b"a")

            for _ in range(2):
                assert await end(node, ending(driver, task)) is ErrorCode.NONE
            assert await end(node, ending(driver, commits=False)) is ErrorCode.INVALID_TXN_STATE

            await stable(node)
            assert await committed(node) == [b"a"]
            again = await ask(node, BeginBatchRequest(group=GROUP), BeginBatchResponse)
            assert (again.term, again.series, again.last_committed_batch) == (2, SERIES, 0)
            assert await end(node, ending(driver, task)) is ErrorCode.PRODUCER_FENCED

    run(story())


def test_what_makes_no_sense_is_an_invalid_request() -> None:
    async def story() -> None:
        async with running_transactions() as node:
            driver = Driver(node)
            await driver.begin()
            task = driver.task()
            stranger = Writer(node, transactional_id="billing")

            assert await end(node, ending(driver, task, task)) is ErrorCode.INVALID_REQUEST
            assert await end(node, ending(driver, stranger)) is ErrorCode.INVALID_REQUEST
            for group in ("", f"x{BATCH_MEMBER_MARK}y"):
                refused = await ask(node, BeginBatchRequest(group=group), BeginBatchResponse)
                assert refused.error_code == ErrorCode.INVALID_REQUEST

    run(story())


@pytest.mark.parametrize(
    ("name", "is_told"),
    [("millstream-spark", True), ("", False), ("apache-kafka-java", False), ("librdkafka", False)],
)
def test_only_our_own_clients_are_told_of_keys_that_are_not_kafkas(
    name: str, is_told: bool
) -> None:
    async def story() -> None:
        async with running_node() as node:
            request = ApiVersionsRequest(client_software_name=name, client_software_version="1")
            context = context_of(node, RequestHeader(18, 4, 1), SESSION)

            answers = {
                api_key.api_key
                for api_key in api_versions_handler(context, request, SERVED).api_keys
            }

            own = {key for key in SERVED if key >= OWN_KEYS_FIRST}
            assert answers == (set(SERVED) if is_told else set(SERVED) - own)
            assert own

    run(story())
