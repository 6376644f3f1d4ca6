"""`millstream user` and `millstream whoami`: users of a cluster, and who this client is."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from millstream.cli.connection import connected
from millstream.cli.render import (
    Answer,
    CommandGroup,
    Refused,
    answered,
    confirm,
    fields,
    rows,
    yes_option,
)

if TYPE_CHECKING:
    from millstream.client import Client

PASSWORD_BYTES_MAX = 255

_password_file = click.option(
    "--password-file",
    metavar="FILE",
    help="Where the password is; - reads a line of standard input. Without, it is asked for.",
)


@click.group(cls=CommandGroup)
def user() -> None:
    """Make, change and delete users. Passwords are asked for, never arguments."""


@user.command()
@click.argument("name")
@click.option("--role", "roles", multiple=True, metavar="ROLE", help="A role; may be repeated.")
@click.option("--no-password", is_flag=True, help="For certificates and tokens of that name.")
@_password_file
@answered
@connected
def create(
    client: "Client",
    name: str,
    roles: tuple[str, ...],
    no_password: bool,
    password_file: str | None,
) -> Answer:
    """Make a user."""
    if no_password and password_file:
        raise click.UsageError("--no-password and --password-file exclude each other")
    password = None if no_password else read_password(password_file, f"password of {name}")
    client.users.create(name, password, roles=roles)
    return Answer({"created": name, "roles": list(roles)}, f"made user {name}")


@user.command("list")
@answered
@connected
def list_users(client: "Client") -> Answer:
    """List all users."""
    return rows(
        [
            {
                "name": each.name,
                "roles": list(each.roles),
                "enabled": each.is_enabled,
                "mechanisms": list(each.mechanisms),
            }
            for each in client.users.list()
        ],
        nothing="there are no users; `millstream user create NAME` makes one",
    )


@user.command()
@click.argument("name")
@answered
@connected
def describe(client: "Client", name: str) -> Answer:
    """Show one user: roles, whether it is enabled, which credentials it has."""
    return fields(asdict(client.users.describe(name)))


@user.command()
@click.argument("name")
@click.option("--role", "roles", multiple=True, metavar="ROLE", help="Its roles, all of them.")
@click.option("--no-roles", is_flag=True, help="Take all roles away.")
@click.option("--enable/--disable", "is_enabled", default=None, help="Let it log in, or not.")
@answered
@connected
def alter(
    client: "Client", name: str, roles: tuple[str, ...], no_roles: bool, is_enabled: bool | None
) -> Answer:
    """Change the roles of a user, disable it or enable it again.

    The connections of a disabled user are closed within a second.
    """
    if not roles and not no_roles and is_enabled is None:
        raise click.UsageError("say what to change: --role, --no-roles, --enable or --disable")
    client.users.alter(name, roles=roles if roles or no_roles else None, is_enabled=is_enabled)
    return Answer({"altered": name}, f"changed user {name}")


@user.command()
@click.argument("name")
@click.option("--own", is_flag=True, help="With the old password, which is asked for first.")
@click.option("--disconnect", is_flag=True, help="Close the connections of the user as well.")
@_password_file
@answered
@connected
def password(
    client: "Client", name: str, own: bool, disconnect: bool, password_file: str | None
) -> Answer:
    """Give a user another password. Its connections stay, unless they are to be closed."""
    old = click.prompt("old password", hide_input=True, err=True) if own else None
    new = read_password(password_file, f"new password of {name}")
    client.users.set_password(name, new, old=old, disconnect=disconnect)
    return Answer({"altered": name}, f"user {name} has another password")


@user.command()
@click.argument("name")
@yes_option
@answered
@connected
def delete(client: "Client", name: str, is_yes: bool) -> Answer:
    """Delete a user; its connections are closed within a second."""
    confirm(f"Delete user {name}?", is_yes=is_yes)
    client.users.delete(name)
    return Answer({"deleted": name}, f"deleted user {name}")


@click.command()
@answered
@connected
def whoami(client: "Client") -> Answer:
    """Show who the broker takes this client for, and by which proof."""
    return fields(asdict(client.users.who_am_i()))


def read_password(file: str | None, asked: str) -> str:
    """From a file, a line of standard input, or a prompt that shows nothing."""
    if file is None:
        text: str = click.prompt(asked, hide_input=True, confirmation_prompt=True, err=True)
    elif file == "-":
        text = sys.stdin.readline().rstrip("\r\n")
    else:
        try:
            text = Path(file).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as problem:
            raise Refused(f"cannot read the password from {file}: {problem}") from None
    if not 1 <= len(text.encode()) <= PASSWORD_BYTES_MAX:
        raise Refused(f"a password has 1 to {PASSWORD_BYTES_MAX} bytes")
    return text
