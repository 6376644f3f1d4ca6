"""`millstream quota`: what users, client ids and addresses may use a second."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

import click

from millstream.cli.connection import connected
from millstream.cli.render import Answer, CommandGroup, answered, rows

if TYPE_CHECKING:
    from millstream.client import Client

_F = TypeVar("_F", bound=Callable[..., object])

# The flag of each limit, and Kafka's name of it.
LIMITS = {
    "producer_byte_rate": "Bytes a second that it may produce.",
    "consumer_byte_rate": "Bytes a second that it may fetch.",
    "controller_mutation_rate": "Partitions a second that it may create and delete.",
    "connection_creation_rate": "Connections a second that an address may open.",
}


def _holder(command: _F) -> _F:
    for option in (
        click.option("--ip", metavar="ADDRESS", help="An address, or <default>."),
        click.option("--client-id", metavar="ID", help="A client id, or <default>."),
        click.option("--user", metavar="NAME", help="A user, or <default>."),
    ):
        command = option(command)
    return command


def _limits(command: _F) -> _F:
    for name, meaning in reversed(LIMITS.items()):
        flag = "--" + name.replace("_", "-")
        command = click.option(flag, name, type=float, metavar="N", help=meaning)(command)
    return command


@click.group(cls=CommandGroup)
def quota() -> None:
    """Limit what users, client ids and addresses may use a second.

    <default> stands for all that have no quota of their own.
    """


@quota.command("set")
@_holder
@_limits
@answered
@connected
def set_quota(
    client: "Client",
    user: str | None,
    client_id: str | None,
    ip: str | None,
    **limits: float | None,
) -> Answer:
    """Set limits of a user, a client id, both together, or an address; others stay."""
    set_limits = {name: limit for name, limit in limits.items() if limit is not None}
    _check_holder(user, client_id, ip)
    if not set_limits:
        raise click.UsageError("say what to limit, such as --producer-byte-rate 1000000")
    client.quotas.set(set_limits, user=user, client_id=client_id, ip=ip)
    return Answer({"limits": set_limits}, "set " + _words(set_limits))


@quota.command("list")
@answered
@connected
def list_quotas(client: "Client") -> Answer:
    """List all quotas."""
    quotas = client.quotas.list()
    listed = rows(
        [
            {
                "user": each.user,
                "client_id": each.client_id,
                "ip": each.ip,
                "limits": _words(each.limits),
            }
            for each in quotas
        ],
        nothing="no quotas; `millstream quota set --user NAME --producer-byte-rate N` makes one",
    )
    data = [
        {"user": q.user, "client_id": q.client_id, "ip": q.ip, "limits": dict(q.limits)}
        for q in quotas
    ]
    return Answer(data, listed.text)


@quota.command("delete")
@_holder
@click.option("--limit", "names", multiple=True, type=click.Choice(list(LIMITS)))
@answered
@connected
def delete_quota(
    client: "Client",
    user: str | None,
    client_id: str | None,
    ip: str | None,
    names: tuple[str, ...],
) -> Answer:
    """Take limits away: those of --limit, or all of the holder."""
    _check_holder(user, client_id, ip)
    client.quotas.delete(*names, user=user, client_id=client_id, ip=ip)
    return Answer({"deleted": list(names) or "all"}, "deleted")


def _check_holder(user: str | None, client_id: str | None, ip: str | None) -> None:
    if user is None and client_id is None and ip is None:
        raise click.UsageError("say whose quota it is: --user, --client-id, both, or --ip")


def _words(limits: Mapping[str, float]) -> str:
    return ", ".join(f"{name}={limit:g}" for name, limit in limits.items())
