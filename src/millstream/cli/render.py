"""Renders the answer of a command: aligned text for people, JSON for programs.

Owns `--output`, tables, questions, progress bars and the sentence on standard error. A command
returns an `Answer`; `answered` prints it and turns it into the exit code. Progress bars are for a
terminal only, so that piped output stays clean and rich is not imported for it.
"""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import wraps
from typing import IO, Any, NamedTuple, ParamSpec, TypeVar

import click

BRIEF_LENGTH_MAX = 60  # Of a text in a table; JSON has all of it.

SUMMARY_LENGTH_MAX = 1_000  # Of a command in the list of its group: never reached.

_SPAN_UNITS_MS = {"day": 86_400_000, "hour": 3_600_000, "minute": 60_000, "second": 1_000}

_P = ParamSpec("_P")
_F = TypeVar("_F", bound=Callable[..., object])


class Answer(NamedTuple):
    """`data` is what `--output json` prints; a command that found something wrong exits with 1."""

    data: object
    text: str
    is_fine: bool = True


class Refused(click.ClickException):
    """The command cannot be done: one sentence that says why, and what would help."""

    exit_code = 1

    def show(self, file: IO[Any] | None = None) -> None:  # As click declares it.
        click.echo(f"millstream: {self.format_message()}", file=file, err=file is None)


class CommandGroup(click.Group):
    """A group that lists its commands with their whole first sentences; click cuts them."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        listed = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        summaries = [
            (name, command.get_short_help_str(limit=SUMMARY_LENGTH_MAX))
            for name, command in listed
            if command is not None and not command.hidden
        ]
        if summaries:
            with formatter.section("Commands"):
                formatter.write_dl(summaries)


def output_option(command: _F) -> _F:
    return click.option(
        "--output",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="For people or for programs.",
    )(command)


def answered(command: Callable[_P, Answer]) -> Callable[..., None]:
    """Give a command `--output`, print what it returns, and exit with 1 if that is not fine."""

    @output_option
    @wraps(command)
    def run(*args: Any, output: str, **options: Any) -> None:  # Whatever click passes on.
        answer = command(*args, **options)
        text = to_json(answer.data, indent=2) if output == "json" else answer.text
        if text:
            click.echo(text)
        if not answer.is_fine:
            sys.exit(1)

    return run


def to_json(data: object, *, indent: int | None = None) -> str:
    return json.dumps(data, indent=indent, ensure_ascii=False, default=str)


def rows(values: Sequence[Mapping[str, object]], *, nothing: str) -> Answer:
    """A list of things, or the sentence that says there are none."""
    return Answer(list(values), table(values) if values else nothing)


def fields(values: Mapping[str, object]) -> Answer:
    return Answer(dict(values), card(values))


def table(rows: Sequence[Mapping[str, object]]) -> str:
    """Columns named by the first row's keys; numbers are aligned to the right."""
    columns = list(rows[0]) if rows else []
    lines = [[_heading(name) for name in columns]]
    lines += [[_cell(row[name]) for name in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    are_numbers = [all(_is_number(row[name]) for row in rows) for name in columns]
    aligned = [str.rjust if is_number else str.ljust for is_number in are_numbers]
    return "\n".join(
        "  ".join(
            align(cell, width) for align, cell, width in zip(aligned, line, widths, strict=True)
        ).rstrip()
        for line in lines
    )


def card(values: Mapping[str, object]) -> str:
    """One thing, a line for each of its fields."""
    width = max((len(name) for name in values), default=0)
    return "\n".join(
        f"{name.replace('_', ' ').ljust(width)}  {_cell(value)}".rstrip()
        for name, value in values.items()
    )


def instant(when: datetime) -> str:
    """A time of UTC, to the second."""
    return when.isoformat(sep=" ", timespec="seconds").removesuffix("+00:00") + "Z"


def span_text(milliseconds: int) -> str:
    """A span of time in its largest whole unit: `7 days`."""
    for unit, size in _SPAN_UNITS_MS.items():
        if milliseconds and milliseconds % size == 0:
            count = milliseconds // size
            return f"{count} {unit}{'' if count == 1 else 's'}"
    return f"{milliseconds} ms"


def brief(text: str) -> str:
    """A text on one line of a table."""
    line = " ".join(text.split())
    return line if len(line) <= BRIEF_LENGTH_MAX else line[: BRIEF_LENGTH_MAX - 3] + "..."


def confirm(question: str, *, is_yes: bool) -> None:
    """Ask before what cannot be undone; without a yes nothing is done."""
    if is_yes:
        return
    try:
        is_yes = click.confirm(question)
    except click.Abort:
        click.echo(err=True)
        is_yes = False
    if not is_yes:
        raise Refused("nothing was done: answer y, or pass --yes")


def yes_option(command: _F) -> _F:
    return click.option("--yes", "is_yes", is_flag=True, help="Do not ask.")(command)


@contextmanager
def progress(label: str, total: int | None) -> Iterator[Callable[[int], object]]:
    """Yield a function that advances a progress bar by an amount; the bar needs a terminal."""
    if not sys.stderr.isatty():
        yield lambda amount: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(label, total=total)
        yield lambda amount: bars.advance(task, amount)


def _heading(name: str) -> str:
    return name.replace("_", " ").upper()


def _cell(value: object) -> str:
    if value is None or value in ("", []):
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return str(value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
