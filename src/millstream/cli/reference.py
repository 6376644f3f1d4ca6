"""The reference parts of the documents, made from the code: commands, flags, settings.

Owns the Markdown between the markers in docs/cli.md, docs/configuration.md and two pages of Spark.
`python -m millstream.cli.reference docs` writes it; a test holds the documents to it.
"""

import inspect
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from millstream.cli.commands.operate.node import flatten
from millstream.cli.main import ALIASES, commands
from millstream.config import Config
from millstream.config_sources import describe_type, keys, variable
from millstream.protocols.http.operate.openapi import document
from millstream.protocols.http.router import Router
from millstream.protocols.http.routes import APIS
from millstream.security.settings import ListenerSettings, Pair, Tls
from millstream.settings import BOUNDS, NAME, meanings
from millstream.spark import reference as spark_reference

BEGIN = "<!-- generated: python -m millstream.cli.reference docs -->"
END = "<!-- end of what is generated -->"

# What many commands take, explained once.
COMMON = ("--output", "--bootstrap", "--context", "-X")


def setting_rows() -> list[dict[str, object]]:
    """Every key of a node's configuration."""
    defaults = flatten(_with_named_tables())
    texts = meanings(Config)
    return [
        {
            "key": key,
            "takes": describe_type(kind) + _bounds(key),
            "default": defaults[key],
            "variable": variable(key),
            "meaning": texts[key],
        }
        for key, kind in keys().items()
    ]


def _with_named_tables() -> Config:
    """The defaults, with one table for each whose name users choose."""
    tls = Tls(sni={NAME: Pair()})
    return Config(tls=tls, listener={NAME: ListenerSettings(tls=tls)})


def configuration() -> str:
    """All settings as Markdown tables, one for each table of the file."""
    parts = []
    rows = setting_rows()
    for name in dict.fromkeys(_table_of(row) for row in rows):
        lines = [f"### `[{name}]`\n" if name else "### At the top of the file\n"]
        lines += ["| key | takes | default | meaning |", "|---|---|---|---|"]
        for row in rows:
            if _table_of(row) == name:
                key = str(row["key"]).rpartition(".")[2]
                default = "" if row["default"] in ("", []) else f"`{_cell(row['default'])}`"
                lines.append(f"| `{key}` | {row['takes']} | {default} | {row['meaning']} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def command_pages() -> str:
    """Every command with what it does and the flags it takes."""
    context = click.Context(commands, info_name="millstream")
    pages = [page for name in commands.list_commands(context) for page in _pages(context, name)]
    aliases = [f"| `{alias}` | `{command}` |" for alias, command in ALIASES.items()]
    table = "\n".join(["| FlyMQ | here |", "|---|---|", *aliases])
    return "\n\n".join([*pages, f"### Aliases\n\n{table}"])


def rewritten(document: str, generated: str) -> str:
    """The document with what is between its markers replaced."""
    head, _, tail = document.partition(BEGIN)
    _, _, tail = tail.partition(END)
    return f"{head}{BEGIN}\n\n{generated}\n\n{END}{tail}"


DOCUMENTS = {
    "cli.md": command_pages,
    "configuration.md": configuration,
    "spark/migrating.md": spark_reference.migration,
    "spark/versions.md": spark_reference.versions,
}


def _pages(parent: click.Context, name: str) -> list[str]:
    assert isinstance(parent.command, click.Group)
    command = parent.command.get_command(parent, name)
    assert command is not None
    context = click.Context(command, info_name=name, parent=parent)
    if isinstance(command, click.Group):
        return [page for verb in command.commands for page in _pages(context, verb)]
    arguments = [p for p in command.params if isinstance(p, click.Argument)]
    usage = " ".join(["millstream", *context.command_path.split()[1:], *map(_spelled, arguments)])
    options = [p for p in command.params if isinstance(p, click.Option)]
    own = [_flag_row(p) for p in options if p.opts[-1] not in COMMON]
    common = [f"`{p.opts[-1]}`" for p in options if p.opts[-1] in COMMON]
    parts = [f"### `{usage}`", *_paragraphs(inspect.cleandoc(command.help or ""))]
    parts += ["\n".join(["| flag | |", "|---|---|", *own])] if own else []
    parts += [f"Common flags: {', '.join(common)}."] if common else []
    return ["\n\n".join(parts)]


def _paragraphs(text: str) -> Iterator[str]:
    """Join lines as click does: a paragraph is one line, unless it begins with a backspace."""
    for paragraph in text.split("\n\n"):
        if paragraph.startswith("\b"):
            yield f"```text\n{paragraph.removeprefix(chr(8)).strip()}\n```"
        else:
            yield " ".join(paragraph.split())


def _spelled(argument: click.Argument) -> str:
    if argument.metavar is not None:
        return argument.metavar
    if isinstance(argument.type, click.Choice):
        return "|".join(map(str, argument.type.choices))
    name = str(argument.name).upper()
    return name if argument.required else f"[{name}]"


def _flag_row(option: click.Option) -> str:
    spelled = ", ".join(option.opts)
    if not option.is_flag:
        takes = option.metavar or option.type.name.upper()
        if isinstance(option.type, click.Choice):
            takes = "\\|".join(map(str, option.type.choices))
        spelled = f"{spelled} {takes}"
    default = f" [default: {option.default}]" if option.show_default else ""
    meaning = f"{option.help or ''}{default}".strip().replace("|", "\\|")
    return f"| `{spelled}` | {meaning} |"


def _bounds(key: str) -> str:
    name = key.rpartition(".")[2]
    if not key.startswith("topic_defaults.") or name not in BOUNDS:
        return ""
    low, high = BOUNDS[name]
    return f", {low} to {high}"


def _cell(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _table_of(row: dict[str, object]) -> str:
    return str(row["key"]).rpartition(".")[0]


def _write(directory: Path) -> None:
    for name, make in DOCUMENTS.items():
        path = directory / name
        path.write_text(rewritten(path.read_text(encoding="utf-8"), make()), encoding="utf-8")
    text = json.dumps(document(Router(APIS)), indent=1, ensure_ascii=False)
    (directory / "openapi.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    _write(Path(sys.argv[1]))
