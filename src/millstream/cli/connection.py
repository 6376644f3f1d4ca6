"""Chooses the broker of a command: flags, environment, contexts, or this machine.

Owns `--bootstrap`, `--context`, `-X` and the file of contexts (named connection profiles) under the
user's configuration directory. A flag wins over a variable, a variable over the context in
use. Settings of a context and of `-X` are passed to the client unchanged, so TLS and credentials
have the names of librdkafka.
"""

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click
from click.core import ParameterSource

from millstream.cli.options import pairs
from millstream.cli.render import Refused

if TYPE_CHECKING:
    from millstream.client import Client

BOOTSTRAP_DEFAULT = "localhost:9092"
TIMEOUT_S = 15.0  # A person waits at the terminal.

# Settings whose values a context refers to and does not keep.
SECRET_SETTINGS = frozenset({"sasl.password", "ssl.key.password", "ssl.keystore.password"})
_PARAMETERS_OF_CONNECT = {"address", "timeout_s", "delivery_timeout_s", "wait_s"}

_T = TypeVar("_T")
_F = TypeVar("_F", bound=Callable[..., object])


@dataclass(frozen=True, slots=True)
class Profile:
    """One named connection."""

    bootstrap: str
    settings: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Contexts:
    """All of them, and the name of the one in use."""

    current: str | None = None
    profiles: dict[str, Profile] = field(default_factory=dict)

    def get(self, name: str) -> Profile:
        if name not in self.profiles:
            known = ", ".join(sorted(self.profiles)) or "none yet"
            raise Refused(
                f"there is no context {name!r} (there are: {known}); "
                f"add it with `millstream context add {name} HOST:PORT`"
            )
        return self.profiles[name]


class Target(NamedTuple):
    """Where to connect, and which flag, variable or context says so."""

    bootstrap: str
    settings: dict[str, str]
    origin: str


def contexts_path() -> Path:
    return Path(click.get_app_dir("millstream")) / "contexts.json"


def read_contexts() -> Contexts:
    path = contexts_path()
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        profiles = {name: Profile(**values) for name, values in content["profiles"].items()}
        return Contexts(content["current"], profiles)
    except FileNotFoundError:
        return Contexts()
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Refused(f"{path} is damaged: correct it or remove it") from None


def write_contexts(contexts: Contexts) -> None:
    """Replace the file; only its owner may read it, because settings may hold a password."""
    path = contexts_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".tmp")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(asdict(contexts), file, indent=2)
    fresh.replace(path)


def connection_flags(default: str) -> Callable[[_F], _F]:
    """Give a command `--bootstrap`, `--context` and `-X`; `default` is for the help."""

    def decorate(command: _F) -> _F:
        for option in reversed(
            (
                click.option(
                    "-b",
                    "--bootstrap",
                    envvar="MILLSTREAM_BOOTSTRAP",
                    metavar="HOST:PORT",
                    help=f"Brokers to ask first.  [env: MILLSTREAM_BOOTSTRAP; default: {default}]",
                ),
                click.option(
                    "--context",
                    "context_name",
                    envvar="MILLSTREAM_CONTEXT",
                    metavar="NAME",
                    help="Connection profile, see `millstream context`.  [env: MILLSTREAM_CONTEXT]",
                ),
                click.option(
                    "-X",
                    "client_settings",
                    multiple=True,
                    metavar="KEY=VALUE",
                    help="A librdkafka setting, such as sasl.username=ann; repeatable, wins over "
                    "the context.",
                ),
            )
        ):
            command = option(command)
        return command

    return decorate


def connection_options(command: Callable[..., _T]) -> Callable[..., _T]:
    """Give a command the connection flags, and pass it the `Target` they name."""

    @connection_flags(BOOTSTRAP_DEFAULT)
    @wraps(command)
    def run(
        *args: Any,
        bootstrap: str | None,
        context_name: str | None,
        client_settings: tuple[str, ...],
        **options: Any,
    ) -> _T:
        target = choose_target(bootstrap, context_name)
        target = target._replace(settings=target.settings | pairs(client_settings, "-X"))
        return command(target, *args, **options)

    return run


def connected(command: Callable[..., _T]) -> Callable[..., _T]:
    """Connect before the command and close behind it; the client is its first argument."""

    @connection_options
    @wraps(command)
    def run(target: Target, *args: Any, **options: Any) -> _T:  # Whatever click passes on.
        with open_client(target) as client:
            return command(client, *args, **options)

    return run


def open_client(target: Target, *, timeout_s: float = TIMEOUT_S) -> "Client":
    from millstream.client import connect

    settings: dict[str, Any] = with_secrets(target.settings)
    if clashing := settings.keys() & _PARAMETERS_OF_CONNECT:
        raise Refused(f"{min(clashing)} is not a librdkafka setting; sasl.username is one")
    # A person waits here: a record has the time of any other request.
    return connect(target.bootstrap, timeout_s=timeout_s, delivery_timeout_s=timeout_s, **settings)


def with_secrets(settings: dict[str, str]) -> dict[str, str]:
    """The settings with the values of secrets in the place of `file:PATH` and `env:NAME`."""
    from millstream.security.secrets import Secret
    from millstream.server.system.secrets import SystemSecrets

    read = dict(settings)
    for name in SECRET_SETTINGS & settings.keys():
        if settings[name].startswith(("file:", "env:")):
            read[name] = SystemSecrets().read(Secret.parse(settings[name])).decode()
    return read


def choose_target(
    bootstrap: str | None, context_name: str | None, ctx: click.Context | None = None
) -> Target:
    """Decide by directness: flags first, then variables, then the context in use."""
    target = explicit_target(bootstrap, context_name, ctx) or target_in_use()
    return target or Target(BOOTSTRAP_DEFAULT, {}, "the default")


def explicit_target(
    bootstrap: str | None, context_name: str | None, ctx: click.Context | None = None
) -> Target | None:
    """The target that flags or variables name, if they do."""
    source = (ctx or click.get_current_context()).get_parameter_source
    said_context = source("context_name") is ParameterSource.COMMANDLINE
    said_bootstrap = source("bootstrap") is ParameterSource.COMMANDLINE
    if bootstrap and (said_bootstrap or not said_context):
        return Target(bootstrap, {}, "--bootstrap" if said_bootstrap else "MILLSTREAM_BOOTSTRAP")
    return _target_of(read_contexts(), context_name) if context_name else None


def target_in_use() -> Target | None:
    """The target of the context that `millstream context use` chose, if there is one."""
    contexts = read_contexts()
    return _target_of(contexts, contexts.current) if contexts.current else None


def _target_of(contexts: Contexts, name: str) -> Target:
    profile = contexts.get(name)
    return Target(profile.bootstrap, profile.settings, f"context {name}")
