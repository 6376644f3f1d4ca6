"""The command `millstream`: the table of commands, and the modules that have them.

Owns the names and aliases, and the exit codes: 0 done, 1 refused or failed, 2 misuse. A command's
module is imported when the command is named, and its dependencies when it runs, so that `--help`
answers at once. Every expected error ends as one sentence on standard error.
"""

import importlib
import os
import select
import sys

import click

from millstream import __version__
from millstream.cli.render import CommandGroup, Refused
from millstream.errors import MillstreamError

# In the order of `--help`: the name, and the module below `commands` that has an attribute of it.
_MODULES = {
    "demo": "demo",
    "serve": "operate/node",
    "topic": "topics/topic",
    "view": "topics/view",
    "produce": "data/produce",
    "consume": "data/consume",
    "subscribe": "data/consume",
    "group": "topics/group",
    "dlq": "data/dlq",
    "delayed": "data/delayed",
    "schema": "data/schema",
    "explore": "data/explore",
    "txn": "topics/txn",
    "pipeline": "pipeline",
    "classic": "classic",
    "user": "security/user",
    "whoami": "security/user",
    "role": "security/acl",
    "acl": "security/acl",
    "quota": "security/quota",
    "audit": "security/audit",
    "certs": "security/certs",
    "encryption": "security/encryption",
    "cluster": "operate/cluster",
    "health": "operate/health",
    "top": "operate/metrics",
    "metrics": "operate/metrics",
    "doctor": "operate/doctor",
    "bench": "operate/bench",
    "verify": "operate/verify",
    "config": "operate/node",
    "context": "operate/context",
    "log": "operate/log",
    "install": "operate/install",
    "backup": "operate/backup",
    "restore": "operate/backup",
    "inspect": "operate/inspect",
    "repair": "operate/repair",
    "support-bundle": "operate/support_bundle",
    "completion": "operate/completion",
}
# The verbs that users of FlyMQ know. Those of the classic broker stand under `classic` only: they
# speak another protocol to another port.
ALIASES = {
    "create": "topic create",
    "delete": "topic delete",
    "topics": "topic list",
    "info": "topic describe",
    "groups": "group",
}


class Commands(CommandGroup):
    """Finds commands by table, and lets no problem out but as a sentence."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name, _, verb = ALIASES.get(cmd_name, cmd_name).partition(" ")
        if name not in _MODULES:
            return None
        path = _MODULES[name].replace("/", ".")
        module = importlib.import_module(f"millstream.cli.commands.{path}")
        command: click.Command = getattr(module, name.replace("-", "_"))
        if verb:
            assert isinstance(command, click.Group)
            return command.commands[verb]
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as problem:
            from difflib import get_close_matches

            near = get_close_matches(args[0], [*_MODULES, *ALIASES], n=1)
            if not near:
                raise
            raise click.UsageError(f"{problem.message} Did you mean {near[0]!r}?", ctx) from None

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except click.ClickException:
            raise
        except BrokenPipeError as problem:
            if not _is_output_closed():
                raise Refused(f"the connection broke: {problem}") from problem
            # Python flushes standard output at its end, which would fail and set the exit code.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise click.exceptions.Exit(0) from problem
        except Exception as problem:
            if not _is_expected(problem):
                raise
            raise Refused(" ".join(str(problem).split())) from problem


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Also: " + ", ".join(f"{k} ({v})" for k, v in ALIASES.items()) + ".",
)
@click.version_option(__version__, prog_name="millstream")
def commands() -> None:
    """Millstream: Kafka in a pip install, with Spark built in."""


def main() -> None:
    commands()


def _is_output_closed() -> bool:
    """Whether the reader of standard output left, as `head` does when it has enough."""
    # Not told by another flush: it succeeds when the failed write has left nothing to send.
    output = select.poll()
    output.register(sys.stdout.fileno(), 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in output.poll(0))


def _is_expected(problem: Exception) -> bool:
    """Whether it was raised on purpose; any other error is a bug, and keeps its traceback."""
    return isinstance(problem, OSError | MillstreamError) or _is_client_error(problem)


def _is_client_error(problem: Exception) -> bool:
    from millstream.client.errors import ClientError

    return isinstance(problem, ClientError)
