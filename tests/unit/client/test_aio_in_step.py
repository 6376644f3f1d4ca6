"""The client for asyncio has what the blocking one has, by the same names, with types."""

import inspect
import typing
from collections.abc import Callable

import pytest

from millstream.client import Admin, Client, Consumer, DeadLetters, DelayedRecords, Views, models
from millstream.client.aio.admin import (
    AsyncAdmin,
    AsyncDeadLetters,
    AsyncDelayed,
    AsyncUsers,
    AsyncViews,
)
from millstream.client.aio.client import AsyncClient, AsyncConsumer
from millstream.client.aio.rights import AsyncAcls, AsyncRoles
from millstream.client.extensions.rights import Acls, Roles
from millstream.client.extensions.users import Users

PAIRS = [
    (Admin, AsyncAdmin),
    (Views, AsyncViews),
    (DeadLetters, AsyncDeadLetters),
    (DelayedRecords, AsyncDelayed),
    (Users, AsyncUsers),
    (Acls, AsyncAcls),
    (Roles, AsyncRoles),
]
CALLS = [
    (sync, aio, name)
    for sync, aio in PAIRS
    for name, call in vars(sync).items()
    if inspect.isfunction(call) and not name.startswith("_") and name != "close"
]
# What a program of asyncio does by other means: it cancels the task, and steps are the consumer's.
NOT_AWAITED = {
    Client: {
        "stop",
        "forget_failure",
        "single_producer",
        "dead_letter_writer",
        "subscribers",
        "explain_stall",
    },
    Consumer: {
        *("fetch", "pop", "stay", "finish", "mark", "progress", "settle", "rewind"),
        *("drop_in_hand", "in_hand", "has_fetched", "is_stay_due"),
    },
}


def spelt(annotation: object) -> str:
    return str(annotation).strip("'\"")


def parameters(call: Callable[..., object]) -> list[tuple[str, object, object, str]]:
    declared = inspect.signature(call).parameters.values()
    return [(p.name, p.kind, p.default, spelt(p.annotation)) for p in declared]


@pytest.mark.parametrize(
    ("sync", "aio", "name"), CALLS, ids=lambda value: getattr(value, "__name__", value)
)
def test_every_call_of_administration_is_there_with_the_same_parameters(
    sync: type, aio: type, name: str
) -> None:
    call, awaited = getattr(sync, name), getattr(aio, name)

    assert inspect.iscoroutinefunction(awaited)
    assert [parameter[:3] for parameter in parameters(awaited)] == [
        parameter[:3] for parameter in parameters(call)
    ]
    assert None not in [parameter[3] for parameter in parameters(awaited)]


@pytest.mark.parametrize(("sync", "aio"), PAIRS)
def test_nothing_is_there_that_the_blocking_client_has_not(sync: type, aio: type) -> None:
    names = {name for name in vars(aio) if not name.startswith("_")}

    assert names == {name for _, other, name in CALLS if other is aio}


@pytest.mark.parametrize(("sync", "aio"), [(Client, AsyncClient), (Consumer, AsyncConsumer)])
def test_client_and_consumer_have_all_calls(sync: type, aio: type) -> None:
    names = {name for name in dir(sync) if not name.startswith("_")}

    assert names - set(dir(aio)) <= NOT_AWAITED[sync]  # type: ignore[index]


def test_a_message_may_say_what_its_key_and_value_are() -> None:
    assert typing.get_args(models.Message[str, int]) == (str, int)
