"""Kafka's errors become types that say what to do."""

import pytest
from confluent_kafka import KafkaError

from millstream.client import errors
from millstream.client._librdkafka.link import Link
from millstream.client.errors import (
    AlreadyExists,
    Busy,
    ClientError,
    Denied,
    Fenced,
    NotFound,
    NotSupported,
    Refused,
    TimedOut,
    Unreachable,
    from_kafka,
)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.UNKNOWN_TOPIC_OR_PART, NotFound),
        (KafkaError.GROUP_ID_NOT_FOUND, NotFound),
        (KafkaError.TOPIC_ALREADY_EXISTS, AlreadyExists),
        (KafkaError._ALL_BROKERS_DOWN, Unreachable),
        (KafkaError._TRANSPORT, Unreachable),
        (KafkaError._MSG_TIMED_OUT, TimedOut),
        (KafkaError.REQUEST_TIMED_OUT, TimedOut),
        (KafkaError.PRODUCER_FENCED, Fenced),
        (KafkaError._FENCED, Fenced),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, Denied),
        (KafkaError.SASL_AUTHENTICATION_FAILED, Denied),
        (KafkaError.NON_EMPTY_GROUP, Busy),
        (KafkaError.UNSUPPORTED_VERSION, NotSupported),
        (KafkaError.INVALID_CONFIG, Refused),
        (KafkaError.MSG_SIZE_TOO_LARGE, Refused),
    ],
)
def test_a_kafka_error_has_its_type(code: int, kind: type[ClientError]) -> None:
    problem = from_kafka(KafkaError(code), "do it")

    assert type(problem) is kind
    assert str(problem).startswith("cannot do it: ")
    assert problem.code == KafkaError(code).name()


def test_every_name_in_the_table_is_kafkas() -> None:
    # librdkafka has no constant for this one; brokers send it all the same.
    names = set(errors.KIND_OF) - {"TRANSACTIONAL_ID_NOT_FOUND"}

    assert {name for name in names if not hasattr(KafkaError, name)} == set()


def test_a_timeout_while_no_broker_is_there_says_where_none_is() -> None:
    link = Link("mill:9092", {}, timeout_s=1)
    link.down_reason = "Connection refused"

    problem = link.error(KafkaError(KafkaError._TIMED_OUT), "list topics")

    assert isinstance(problem, Unreachable)
    assert "mill:9092 (Connection refused)" in str(problem)
    assert "millstream serve" in str(problem)
    assert problem.retriable


def test_a_timeout_of_a_broker_that_is_there_stays_one() -> None:
    problem = Link("mill:9092", {}).error(KafkaError(KafkaError._TIMED_OUT), "list topics")

    assert type(problem) is TimedOut
    assert "look before you repeat" in str(problem)


def test_settings_are_spelt_as_librdkafka_does_and_the_nearest_wins() -> None:
    link = Link("mill:9092", {"linger_ms": 7, "client.id": "me", "log_level": 3})

    config = link.config({"linger.ms": 5, "acks": "all"}, {"acks": 1})

    assert config["linger.ms"] == 7
    assert config["acks"] == 1
    assert config["client.id"] == "me"
    assert config["log_level"] == 3
    assert config["bootstrap.servers"] == "mill:9092"


def test_no_time_at_all_is_refused() -> None:
    with pytest.raises(Refused, match="more than 0"):
        Link("mill:9092", {}, timeout_s=0)
