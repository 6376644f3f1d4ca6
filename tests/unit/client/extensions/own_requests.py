"""Answers to requests of Millstream's own, for the broker of `conftest`."""

from collections.abc import Callable
from typing import Any

from millstream.kafka_wire.apis.discovery import ApiVersionsRequest, ApiVersionsResponse
from millstream.kafka_wire.apis.table import APIS, OWN_KEYS_FIRST, advertised
from millstream.kafka_wire.schema import Message
from tests.support.fake_broker import FakeBroker


def in_turn(*answers: Message) -> Callable[[Any], Message]:
    left = list(answers)
    return lambda request: left.pop(0)


def serves_kafka_only(broker: FakeBroker) -> None:
    keys = [key for key in APIS if key < OWN_KEYS_FIRST]
    broker.answers[ApiVersionsRequest] = lambda request: ApiVersionsResponse(
        api_keys=advertised(keys)
    )


def seen(broker: FakeBroker) -> list[Message]:
    """The requests that followed the agreement on versions."""
    return [request for _, request in broker.seen if not isinstance(request, ApiVersionsRequest)]
