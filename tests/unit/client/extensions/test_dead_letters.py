"""Requests about dead letters, the steps of a redrive, and a broker that knows none."""

from typing import Any

import pytest

from millstream.client import (
    Busy,
    ClientError,
    DeadLetters,
    NotFound,
    NotSupported,
    Redriven,
    Refused,
)
from millstream.client.extensions import dead_letters as module
from millstream.client.extensions import requests as broker_requests
from millstream.client.extensions.requests import BrokerRequests
from millstream.kafka_wire.apis.discovery import ApiVersionsRequest, ApiVersionsResponse
from millstream.kafka_wire.apis.millstream import (
    PurgeDeadLettersRequest,
    PurgeDeadLettersResponse,
    RedriveDeadLettersRequest,
    RedriveDeadLettersResponse,
    ReplayDeadLetterRequest,
    ReplayDeadLetterResponse,
)
from tests.support.fake_broker import FakeBroker
from tests.unit.client.extensions.own_requests import in_turn, seen, serves_kafka_only


@pytest.fixture
def letters(requests: BrokerRequests) -> DeadLetters:
    return DeadLetters(requests)


def step(sent: int, skipped: int = 0) -> RedriveDeadLettersResponse:
    return RedriveDeadLettersResponse(sent=sent, skipped=skipped)


def test_a_broker_without_dead_letters_is_named(broker: FakeBroker, letters: DeadLetters) -> None:
    serves_kafka_only(broker)

    with pytest.raises(NotSupported, match=f"at {broker.address[0]}:{broker.address[1]}"):
        letters.purge("orders")

    assert seen(broker) == []


def test_a_broker_that_knows_no_version_of_ours_is_named(
    broker: FakeBroker, letters: DeadLetters
) -> None:
    broker.answers[ApiVersionsRequest] = lambda request: ApiVersionsResponse(
        error_code=42, api_keys=[]
    )

    with pytest.raises(NotSupported):
        letters.purge("orders")


def test_a_redrive_is_counted_first_and_sends_no_more_than_that(
    broker: FakeBroker, letters: DeadLetters
) -> None:
    reported: list[tuple[int, int]] = []
    broker.answers[RedriveDeadLettersRequest] = in_turn(
        step(2_500, 7), *map(step, (1_000, 1_000, 500, 1_000))
    )

    done = letters.redrive("orders", progress=lambda *figures: reported.append(figures))

    assert done == Redriven(sent=2_500, skipped=7)
    assert reported == [(0, 2_500), (1_000, 2_500), (2_000, 2_500), (2_500, 2_500)]
    asked = [
        (request.count_max, request.is_dry_run)
        for request in seen(broker)
        if isinstance(request, RedriveDeadLettersRequest)
    ]
    assert asked == [(2**31 - 1, True), (1_000, False), (1_000, False), (500, False)]


def test_a_redrive_ends_when_another_client_was_faster(
    broker: FakeBroker, letters: DeadLetters
) -> None:
    broker.answers[RedriveDeadLettersRequest] = in_turn(step(10), step(4), step(0))

    assert letters.redrive("orders") == Redriven(sent=4, skipped=0)


def test_a_rate_is_kept_between_the_steps(
    monkeypatch: pytest.MonkeyPatch, broker: FakeBroker, letters: DeadLetters
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(module, "sleep", waits.append)
    monkeypatch.setattr(module, "monotonic", lambda: 100.0 + sum(waits))
    broker.answers[RedriveDeadLettersRequest] = in_turn(step(25), step(10), step(10), step(5))

    letters.redrive("orders", rate=10)

    assert sum(waits) == pytest.approx(2.0)  # After the first step and after the second.


@pytest.mark.parametrize("bad", [{"rate": 0}, {"rate": -1.0}, {"count": 0}])
def test_a_redrive_that_would_send_nothing_is_refused(
    broker: FakeBroker, letters: DeadLetters, bad: dict[str, Any]
) -> None:
    with pytest.raises(Refused):
        letters.redrive("orders", **bad)

    assert broker.seen == []


@pytest.mark.parametrize(("code", "kind"), [(91, NotFound), (7, Busy), (42, Refused)])
def test_an_error_of_the_broker_is_typed_and_in_its_words(
    broker: FakeBroker, letters: DeadLetters, code: int, kind: type[ClientError]
) -> None:
    broker.answers[ReplayDeadLetterRequest] = lambda request: ReplayDeadLetterResponse(
        error_code=code, error_message="nope"
    )

    with pytest.raises(kind, match=r"cannot send back orders-0@7: nope\.") as caught:
        letters.replay("orders", 0, 7)

    assert type(caught.value) is kind


def test_numbers_beyond_their_fields_go_to_the_broker_which_refuses_them(
    broker: FakeBroker, letters: DeadLetters
) -> None:
    broker.answers[ReplayDeadLetterRequest] = lambda request: ReplayDeadLetterResponse()

    letters.replay("orders", 2**40, -(2**70))

    assert seen(broker) == [
        ReplayDeadLetterRequest(topic="orders", partition=2**31 - 1, offset=-1, to=None)
    ]


def test_an_error_that_passes_is_waited_out(
    monkeypatch: pytest.MonkeyPatch, broker: FakeBroker, letters: DeadLetters
) -> None:
    loading = PurgeDeadLettersResponse(error_code=14)
    monkeypatch.setattr(broker_requests, "sleep", lambda seconds: None)
    broker.answers[PurgeDeadLettersRequest] = in_turn(
        loading, loading, PurgeDeadLettersResponse(count=3)
    )

    assert letters.purge("orders") == 3
