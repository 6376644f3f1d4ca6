"""`millstream acl` and `millstream role`: who may do what."""

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import IO, TYPE_CHECKING, Any, TypeVar

import click

from millstream.cli.connection import connected
from millstream.cli.render import Answer, CommandGroup, Refused, answered, confirm, rows, yes_option
from millstream.security.acl_words import CLUSTER, OPERATIONS

if TYPE_CHECKING:
    from millstream.client import Client
    from millstream.client.models import AclEntry

_IMPORTED_MAX = 50_000
_F = TypeVar("_F", bound=Callable[..., Any])

_principal = click.option(
    "--principal", required=True, metavar="TYPE:NAME", help="Such as User:ann or Role:ops."
)
_operation = click.option(
    "--operation",
    "operations",
    required=True,
    multiple=True,
    type=click.Choice(list(OPERATIONS)),
    help="What is meant; may be repeated.",
)


def _resource(command: _F) -> _F:
    """The options that name one resource."""
    for option in (
        click.option("--transactional-id", metavar="ID", help="A transactional id."),
        click.option("--cluster", is_flag=True, help="The cluster itself."),
        click.option("--group", metavar="NAME", help="A consumer group."),
        click.option("--topic", metavar="NAME", help="A topic; * is every one."),
    ):
        command = option(command)
    return command


def _rule(command: _F) -> _F:
    """The options that say one rule."""
    for option in (
        click.option("--deny", is_flag=True, help="Forbid it, whatever else allows it."),
        click.option("--host", default="*", metavar="ADDRESS", help="An address or CIDR range."),
        click.option("--prefixed", is_flag=True, help="Every name that begins so."),
    ):
        command = option(command)
    return _principal(_operation(_resource(command)))


def _named(
    topic: str | None, group: str | None, cluster: bool, transactional_id: str | None
) -> tuple[str, str]:
    names = {"topic": topic, "group": group, "transactional-id": transactional_id}
    named = [(kind, name) for kind, name in names.items() if name is not None]
    if cluster:
        named.append(("cluster", CLUSTER))
    if len(named) != 1:
        raise click.UsageError("name one of --topic, --group, --transactional-id and --cluster")
    return named[0]


def _entries(
    principal: str, operations: tuple[str, ...], prefixed: bool, host: str, deny: bool, **names: Any
) -> "list[AclEntry]":
    from millstream.client.models import AclEntry

    resource, name = _named(**names)
    return [
        AclEntry(
            principal=principal,
            permission="deny" if deny else "allow",
            operation=operation,
            resource=resource,
            name=name,
            pattern="prefixed" if prefixed else "literal",
            host=host,
        )
        for operation in operations
    ]


# -- ACLs ------------------------------------------------------------------------------------------


@click.group(cls=CommandGroup)
def acl() -> None:
    """Give rights, take them away, and ask why something is allowed or not."""


@acl.command()
@_rule
@answered
@connected
def create(client: "Client", **options: Any) -> Answer:
    """Allow a principal something, or deny it."""
    entries = _entries(**options)
    client.acls.create(entries)
    return Answer([asdict(entry) for entry in entries], f"made {len(entries)} ACLs")


@acl.command("list")
@click.option("--principal", metavar="TYPE:NAME", help="Only those of this principal.")
@click.option("--topic", metavar="NAME", help="Only those that name this topic.")
@answered
@connected
def list_acls(client: "Client", principal: str | None, topic: str | None) -> Answer:
    """List ACLs."""
    resource = None if topic is None else "topic"
    entries = client.acls.list(principal=principal, resource=resource, name=topic)
    return rows(
        [asdict(entry) for entry in entries],
        nothing="there are no ACLs; `millstream acl create` makes one",
    )


@acl.command()
@_rule
@answered
@connected
def delete(client: "Client", **options: Any) -> Answer:
    """Remove what `create` with the same options has made."""
    count = client.acls.delete(_entries(**options))
    if not count:
        raise Refused("there is no such ACL; `millstream acl list` shows those that there are")
    return Answer({"deleted": count}, f"removed {count} ACLs")


@acl.command("test")
@_principal
@_operation
@_resource
@click.option("--host", default="", metavar="ADDRESS", help="Where the client comes from.")
@answered
@connected
def explain(
    client: "Client", principal: str, operations: tuple[str, ...], host: str, **names: Any
) -> Answer:
    """Say whether a principal may do something, and the rule that decides it."""
    resource, name = _named(**names)
    answers = []
    for operation in operations:
        decision = client.acls.explain(principal, operation, resource, name, host=host)
        answers.append(
            {"operation": operation, "allowed": decision.is_allowed, "rule": decision.rule}
        )
    return rows(answers, nothing="nothing was asked")


@acl.command("export")
@answered
@connected
def export_acls(client: "Client") -> Answer:
    """Write all ACLs as JSON, one in a line, for `import`."""
    entries = [asdict(entry) for entry in client.acls.list()]
    return Answer(entries, "\n".join(json.dumps(entry) for entry in entries))


@acl.command("import")
@click.argument("file", type=click.File("r", encoding="utf-8"))
@answered
@connected
def import_acls(client: "Client", file: IO[str]) -> Answer:
    """Make the ACLs of a file that `export` has written; those that are there already stay."""
    from millstream.client.models import AclEntry

    entries = []
    for number, line in enumerate(file, start=1):
        if not line.strip():
            continue
        try:
            entries.append(AclEntry(**json.loads(line)))
        except (TypeError, ValueError) as problem:
            raise Refused(f"line {number} is no ACL: {problem}") from None
        if len(entries) > _IMPORTED_MAX:
            raise Refused(f"more than {_IMPORTED_MAX} ACLs in one file")
    client.acls.create(entries)
    return Answer({"imported": len(entries)}, f"made {len(entries)} ACLs")


# -- roles -----------------------------------------------------------------------------------------


@click.group(cls=CommandGroup)
def role() -> None:
    """Make and delete roles, and give them to users. Their rights are ACLs of Role:NAME."""


@role.command("create")
@click.argument("name")
@click.option("--description", default="", help="What it is for.")
@answered
@connected
def create_role(client: "Client", name: str, description: str) -> Answer:
    """Make a role."""
    client.roles.create(name, description=description)
    return Answer({"created": name}, f"made role {name}")


@role.command("list")
@answered
@connected
def list_roles(client: "Client") -> Answer:
    """List all roles, those that are built in first."""
    return rows([asdict(each) for each in client.roles.list()], nothing="there are no roles")


@role.command("delete")
@click.argument("name")
@yes_option
@answered
@connected
def delete_role(client: "Client", name: str, is_yes: bool) -> Answer:
    """Delete a role with its ACLs; its users keep their other roles."""
    confirm(f"Delete role {name} and its ACLs?", is_yes=is_yes)
    client.roles.delete(name)
    return Answer({"deleted": name}, f"deleted role {name}")


@role.command()
@click.argument("name")
@click.argument("user")
@answered
@connected
def grant(client: "Client", name: str, user: str) -> Answer:
    """Give a role to a user."""
    roles = tuple(dict.fromkeys((*client.users.describe(user).roles, name)))
    client.users.alter(user, roles=roles)
    return Answer({"user": user, "roles": list(roles)}, f"user {user} has role {name}")


@role.command()
@click.argument("name")
@click.argument("user")
@answered
@connected
def revoke(client: "Client", name: str, user: str) -> Answer:
    """Take a role from a user."""
    held = client.users.describe(user).roles
    if name not in held:
        raise Refused(f"user {user} does not have role {name}")
    roles = tuple(each for each in held if each != name)
    client.users.alter(user, roles=roles)
    return Answer({"user": user, "roles": list(roles)}, f"user {user} no longer has role {name}")
