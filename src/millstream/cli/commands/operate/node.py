"""`millstream serve` and `millstream config`: a node on this machine, and its settings.

Both take the flags of a node: `config show` shows the settings that `serve` with the same flags
would run with, and where each value comes from.
"""

import sys
from collections.abc import Callable
from enum import Enum
from typing import Any, TypeVar

import click

from millstream.cli.render import Answer, CommandGroup, Refused, answered, rows

LOG_FORMATS = ("auto", "human", "json")

_F = TypeVar("_F", bound=Callable[..., object])


def node_flags(command: _F) -> _F:
    """The settings that have flags; all others stand in a file or in the environment."""
    for option in reversed(
        (
            click.option("--config", "path", metavar="FILE", help="TOML or JSON file."),
            click.option("--data-dir", metavar="DIR", help="Where records are kept.  [data]"),
            click.option("--node-id", type=int, metavar="N", help="This node's number.  [1]"),
            click.option("--host", metavar="ADDRESS", help="Where to listen.  [127.0.0.1]"),
            click.option("--port", type=int, metavar="N", help="For Kafka clients.  [9092]"),
            click.option("--flux-port", type=int, metavar="N", help="Flux protocol.  [4222]"),
            click.option("--classic-port", type=int, metavar="N", help="Classic.  [9999]"),
            click.option(
                "--http-port", type=int, metavar="N", help="Console, REST, metrics.  [9094]"
            ),
            click.option("--storage", metavar="KIND", help="disk or memory.  [disk]"),
            click.option(
                "--durability",
                metavar="KIND",
                help="sync: acks=all waits for the disk; write: for the system only.  [sync]",
            ),
        )
    ):
        command = option(command)
    return command


@click.command()
@node_flags
@click.option(
    "--log-format",
    type=click.Choice(LOG_FORMATS),
    default="auto",
    help="auto: human on a terminal, JSON lines otherwise.  [auto]",
)
@click.option(
    "--log-file",
    metavar="FILE",
    help="Log there, not to standard error; 100 MiB each, the last 10 are kept.",
)
@click.option("--verbose", is_flag=True, help="Log what happens in detail.")
@click.option(
    "--secure",
    "is_secure",
    is_flag=True,
    help="TLS and logins: makes a CA, a certificate and the first user if there are none.",
)
@click.option(
    "--join",
    "token",
    metavar="TOKEN",
    help="Join a cluster first, unless the data directory belongs to one already.",
)
def serve(
    path: str | None,
    verbose: bool,
    log_format: str,
    log_file: str | None,
    is_secure: bool,
    token: str | None,
    **flags: object,
) -> None:
    """Run a node until Ctrl-C or SIGTERM.

    A port of 0 means any free one. Every setting can also stand in a file or in an environment
    variable, such as MILLSTREAM_DATA_DIR; flags win over variables, variables over the file.
    """
    from millstream.cli.serving import run

    if token is not None:
        from millstream.cli.cluster.joining import has_joined, join
        from millstream.config_sources import load

        config = load(path=path, flags=flags)
        if not has_joined(config):
            if is_secure:
                from millstream.cli.securing import secured

                config = secured(config)
            join(token, config, {})
    sys.exit(
        run(
            path=path,
            flags=flags,
            verbose=verbose,
            log_format=log_format,
            log_file=log_file,
            is_secure=is_secure,
        )
    )


@click.group(cls=CommandGroup)
def config() -> None:
    """Show a node's settings, and where each value comes from."""


@config.command()
@click.argument("keys", nargs=-1, metavar="[KEY]...")
@node_flags
@click.option("--changed", "is_changed", is_flag=True, help="Only what is not at its default.")
@answered
def show(keys: tuple[str, ...], path: str | None, is_changed: bool, **flags: object) -> Answer:
    """Show the effective settings, each with its origin: default, file, environment or flag.

    With KEYs, only those settings or tables of settings, such as port or limits.
    """
    from millstream.config_sources import load_with_origins

    config, origins = load_with_origins(path=path, flags=flags)
    shown = [
        {"key": key, "value": value, "origin": origins.get(key, "default")}
        for key, value in flatten(config).items()
        if (not is_changed or key in origins) and (not keys or _is_among(key, keys))
    ]
    for name in keys:
        if not any(_is_among(key, (name,)) for key in flatten(config)):
            raise Refused(f"there is no key {name!r}; `millstream config keys` lists them")
    return rows(shown, nothing="everything is at its default")


@config.command("keys")
@answered
def list_keys() -> Answer:
    """List every key with what it takes, its default and its environment variable."""
    from millstream.cli.reference import setting_rows

    return rows(setting_rows(), nothing="")


def flatten(settings: object, prefix: str = "") -> dict[str, Any]:  # Whatever a setting holds.
    """Dotted keys and plain values of a configuration, in the order of the code."""
    from collections.abc import Mapping
    from dataclasses import fields, is_dataclass

    from millstream.security.secrets import Secret

    values: dict[str, Any] = {}
    assert is_dataclass(settings)
    for field in fields(settings):
        value = getattr(settings, field.name)
        if isinstance(value, Secret):
            values[prefix + field.name] = value.reference
        elif isinstance(value, Mapping):
            for name, table in value.items():
                values |= flatten(table, f"{prefix}{field.name}.{name}.")
        elif is_dataclass(value):
            values |= flatten(value, f"{prefix}{field.name}.")
        else:
            values[prefix + field.name] = _plain(value)
    return values


def _plain(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    return list(value) if isinstance(value, tuple) else value


def _is_among(key: str, names: tuple[str, ...]) -> bool:
    return any(key == name or key.startswith(f"{name}.") for name in names)
