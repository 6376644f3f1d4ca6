"""Requests about delayed records, and a broker that knows none."""

import pytest

from millstream.client import (
    Delayed,
    DelayedPage,
    DelayedRecords,
    NotFound,
    NotSupported,
    Refused,
)
from millstream.client.extensions.delayed import LISTED_MAX
from millstream.client.extensions.requests import BrokerRequests
from millstream.kafka_wire.apis.millstream import (
    CancelDelayedRequest,
    CancelDelayedResponse,
    ListDelayedRequest,
    ListDelayedResponse,
)
from tests.support.fake_broker import FakeBroker
from tests.unit.client.extensions.own_requests import in_turn, seen, serves_kafka_only

DELAYED = Delayed(id="orders~7", topic="orders", partition=1, due_ms=5_000)
ON_THE_WIRE = ListDelayedResponse.Delayed(id="orders~7", topic="orders", partition=1, due_ms=5_000)


def test_a_broker_without_delays_is_named(broker: FakeBroker, requests: BrokerRequests) -> None:
    serves_kafka_only(broker)
    delayed = DelayedRecords(requests)

    for call in (delayed.list, lambda: delayed.describe("a~1"), lambda: delayed.cancel("a~1")):
        with pytest.raises(NotSupported, match="delayed records are not supported by the broker"):
            call()

    assert seen(broker) == []


def test_a_page_knows_where_the_next_one_begins(
    broker: FakeBroker,
    requests: BrokerRequests,
) -> None:
    broker.answers[ListDelayedRequest] = in_turn(
        ListDelayedResponse(delayed=[ON_THE_WIRE], next_after="orders~7"),
        ListDelayedResponse(delayed=[ON_THE_WIRE]),
    )
    delayed = DelayedRecords(requests)

    assert delayed.list("orders", limit=1) == DelayedPage((DELAYED,), "orders~7")
    assert delayed.list(after="orders~7", limit=5_000) == DelayedPage((DELAYED,), None)

    assert seen(broker) == [
        ListDelayedRequest(topic="orders", after=None, count_max=1),
        ListDelayedRequest(topic=None, after="orders~7", count_max=LISTED_MAX),
    ]


def test_a_record_that_does_not_wait_is_not_found(
    broker: FakeBroker,
    requests: BrokerRequests,
) -> None:
    broker.answers[CancelDelayedRequest] = lambda request: CancelDelayedResponse(
        error_code=91, error_message="gone"
    )

    with pytest.raises(NotFound, match=r"cannot cancel the delayed record 'orders~7': gone\."):
        DelayedRecords(requests).cancel("orders~7")


def test_a_limit_of_nothing_is_refused(broker: FakeBroker, requests: BrokerRequests) -> None:
    with pytest.raises(Refused, match="at least 1"):
        DelayedRecords(requests).list(limit=0)

    assert broker.seen == []


def test_a_text_that_is_not_utf8_is_refused_by_name(requests: BrokerRequests) -> None:
    with pytest.raises(Refused, match=r"orders.udcff.*UTF-8"):
        DelayedRecords(requests).cancel("orders\udcff")
