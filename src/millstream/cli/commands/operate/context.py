"""`millstream context`: named connections, kept under the user's configuration directory."""

from dataclasses import replace

import click

from millstream.cli.connection import (
    SECRET_SETTINGS,
    Profile,
    contexts_path,
    read_contexts,
    write_contexts,
)
from millstream.cli.options import pairs
from millstream.cli.render import Answer, CommandGroup, Refused, answered, confirm, rows, yes_option


@click.group(cls=CommandGroup)
def context() -> None:
    """Name connections, and choose the one that commands use."""


@context.command()
@click.argument("name")
@click.argument("bootstrap", metavar="HOST:PORT")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="A client setting, such as security.protocol=SSL; may be repeated.",
)
@click.option("--use", "is_used", is_flag=True, help="Use it from here on.")
@answered
def add(name: str, bootstrap: str, settings: tuple[str, ...], is_used: bool) -> Answer:
    """Add a connection, or change the one of that name. The first one is used at once."""
    contexts = read_contexts()
    profile = Profile(bootstrap, pairs(settings, "--set"))
    for key in SECRET_SETTINGS & profile.settings.keys():
        if not profile.settings[key].startswith(("file:", "env:")):
            raise Refused(f"{key} must be file:PATH or env:NAME: contexts keep no secrets")
    current = name if is_used or contexts.current is None else contexts.current
    write_contexts(
        replace(contexts, current=current, profiles={**contexts.profiles, name: profile})
    )
    data = {"name": name, "bootstrap": bootstrap, "current": current}
    in_use = "in use" if current == name else f"`millstream context use {name}` uses it"
    return Answer(data, f"context {name} is {bootstrap}; {in_use}")


@context.command()
@click.argument("name")
@answered
def use(name: str) -> Answer:
    """Use a connection from here on."""
    contexts = read_contexts()
    profile = contexts.get(name)
    write_contexts(replace(contexts, current=name))
    data = {"name": name, "bootstrap": profile.bootstrap}
    return Answer(data, f"using context {name}: {profile.bootstrap}")


@context.command("list")
@answered
def list_contexts() -> Answer:
    """List the connections. Values of settings are not shown: they may be secret."""
    contexts = read_contexts()
    return rows(
        [
            {
                "name": name,
                "bootstrap": profile.bootstrap,
                "settings": sorted(profile.settings),
                "current": name == contexts.current,
            }
            for name, profile in sorted(contexts.profiles.items())
        ],
        nothing=f"no contexts in {contexts_path()}; `millstream context add NAME HOST:PORT`",
    )


@context.command()
@click.argument("name")
@yes_option
@answered
def delete(name: str, is_yes: bool) -> Answer:
    """Forget a connection."""
    contexts = read_contexts()
    contexts.get(name)
    confirm(f"Forget context {name}?", is_yes=is_yes)
    left = {key: profile for key, profile in contexts.profiles.items() if key != name}
    current = None if contexts.current == name else contexts.current
    write_contexts(replace(contexts, current=current, profiles=left))
    return Answer({"deleted": name}, f"forgot context {name}")
