"""Quotas as the cluster agrees on them: what may be limited, and which limit counts for whom."""

import pytest

from millstream.control.commands import AlterQuotas, decode, encode
from millstream.control.quotas import (
    CONSUMER_BYTE_RATE,
    DEFAULT,
    NAME_LENGTH_MAX,
    PRODUCER_BYTE_RATE,
    RATE_MAX,
    Entity,
    Quota,
    Quotas,
)
from millstream.control.state import State
from millstream.errors import InvalidRequest

# From the one that counts before all others to the one that counts when there is no other.
PRECEDENCE = [
    Entity("alice", "app"),
    Entity("alice", DEFAULT),
    Entity("alice", None),
    Entity(DEFAULT, "app"),
    Entity(DEFAULT, DEFAULT),
    Entity(DEFAULT, None),
    Entity(None, "app"),
    Entity(None, DEFAULT),
]


def alter(
    user: str | None, client_id: str | None, ip: str | None = None, **changes: float | None
) -> AlterQuotas:
    return AlterQuotas(user=user, client_id=client_id, ip=ip, changes=changes)


def with_quotas(*entities: Entity) -> Quotas:
    """Each with its number in the list as its rate."""
    quotas = Quotas()
    for number, entity in enumerate(entities, 1):
        quotas.apply(alter(*entity, producer_byte_rate=float(number)))
    return quotas


def test_the_most_special_quota_counts() -> None:
    for first in range(len(PRECEDENCE)):
        quotas = with_quotas(*PRECEDENCE[first:])

        entry = quotas.find(PRODUCER_BYTE_RATE, "alice", "app")

        assert entry is not None
        assert entry.rate == 1.0, PRECEDENCE[first]


@pytest.mark.parametrize(
    ("entity", "holder"),
    [
        (Entity("alice", None), Entity("alice", None)),
        (Entity(DEFAULT, None), Entity("alice", None)),
        (Entity(None, DEFAULT), Entity(None, "app")),
        (Entity("alice", DEFAULT), Entity("alice", "app")),
        (Entity(DEFAULT, DEFAULT), Entity("alice", "app")),
    ],
)
def test_clients_share_what_is_their_users_and_have_a_default_each_for_itself(
    entity: Entity, holder: Entity
) -> None:
    assert with_quotas(entity).find(PRODUCER_BYTE_RATE, "alice", "app") == Quota(holder, 1.0)


def test_what_somebody_else_may_use_is_no_matter() -> None:
    quotas = with_quotas(Entity("bob", None), Entity("alice", "other"), Entity(None, "other"))

    assert quotas.find(PRODUCER_BYTE_RATE, "alice", "app") is None


def test_each_kind_of_use_has_its_own_quota() -> None:
    quotas = Quotas()
    quotas.apply(alter("alice", None, producer_byte_rate=5.0))
    quotas.apply(alter(None, DEFAULT, consumer_byte_rate=7.0))

    sending = quotas.find(PRODUCER_BYTE_RATE, "alice", "app")
    reading = quotas.find(CONSUMER_BYTE_RATE, "alice", "app")

    assert (sending, reading) == (
        Quota(Entity("alice", None), 5.0),
        Quota(Entity(None, "app"), 7.0),
    )


def test_a_change_leaves_what_it_does_not_name_and_nothing_remains_of_the_last_removal() -> None:
    quotas = Quotas()
    limits = quotas.limits
    quotas.apply(alter("alice", None, producer_byte_rate=5.0, consumer_byte_rate=7.0))

    quotas.apply(alter("alice", None, producer_byte_rate=None))
    assert limits == {Entity("alice", None): {CONSUMER_BYTE_RATE: 7.0}}

    quotas.apply(alter("alice", None, producer_byte_rate=None, consumer_byte_rate=None))
    assert limits == {}


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (alter(None, None, producer_byte_rate=1.0), "a user, a client id or both"),
        (alter("", None, producer_byte_rate=1.0), "0 characters"),
        (alter("a", "x" * (NAME_LENGTH_MAX + 1), producer_byte_rate=1.0), "257 characters"),
        (alter("a", None, request_percentage=50.0), "'request_percentage' is not limited here"),
        (alter("a", None, controller_mutation_rate=float("nan")), "above 0"),
        (alter("a", None, connection_creation_rate=5.0), "is not limited here"),
        (alter("a", None, request_percentage=None), "is not limited here"),
        (alter("a", None, producer_byte_rate=0.0), "whole number of bytes"),
        (alter("a", None, producer_byte_rate=-1.0), "whole number of bytes"),
        (alter("a", None, producer_byte_rate=1.5), "whole number of bytes"),
        (alter("a", None, producer_byte_rate=float("nan")), "whole number of bytes"),
        (alter("a", None, producer_byte_rate=float("inf")), "whole number of bytes"),
        (alter("a", None, consumer_byte_rate=2.0 * RATE_MAX), "whole number of bytes"),
    ],
)
def test_what_cannot_be_limited_is_refused_before_it_is_proposed(
    command: AlterQuotas, message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message):
        State().check(command)


def test_the_control_log_carries_quotas() -> None:
    state = State()
    command = alter("alice", DEFAULT, producer_byte_rate=5.0, consumer_byte_rate=None)

    assert decode(encode(command)) == command
    assert state.apply(0, decode(encode(command))) == Entity("alice", DEFAULT)
    assert state.quotas.limits == {Entity("alice", DEFAULT): {PRODUCER_BYTE_RATE: 5.0}}
