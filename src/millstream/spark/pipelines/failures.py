"""Reduces the failure of a pipeline to one sentence.

Pure. Spark wraps an error of a Python worker into Java exceptions, with the tracebacks of both. The
part that a user can act on is nearly always the last line of the innermost Python traceback, or the
message behind Spark's error class.
"""

import re

from millstream.errors import MillstreamError

SENTENCE_LENGTH_MAX = 600

_TRACEBACK = "Traceback (most recent call last):"
# `package.module.Class: message`, at the start of the line that ends a Python traceback.
_RAISED = re.compile(r"^(?P<name>[A-Za-z_][\w.]*): (?P<message>.+)$", re.MULTILINE)
_ERROR_CLASS = re.compile(r"\[(?P<name>[A-Z][A-Z0-9_.]+)\]\s*(?P<message>.+)", re.DOTALL)
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w+")
# Spark's advice on dropping and qualifying names, which does not help here.
_ADVICE = "\nSearch path: "
_OURS = "millstream."
# Where the explanation ends and plans and stacks begin.
_NOISE = re.compile(r"\n\s*(?:at |===? |'?[A-Z]\w+ \[|\+- |JVM stacktrace|Caused by)|;\n'?")
_QUERY = "\n=== Streaming Query ==="
_OPAQUE = "Task not serializable"  # Says nothing without the exception below it.


class InvalidPipeline(MillstreamError, ValueError):
    """The description of a pipeline is invalid."""


class PipelineFailed(MillstreamError):
    """A pipeline, or one of its queries, ended before it was done."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"{where}: {why}")
        self.where = where
        self.why = why


def short_reason(text: str) -> str:
    """Return the sentence of a report of Spark's that a user can act on."""
    text = text.partition(_QUERY)[0]
    raised = _innermost(text)
    return _short(raised if raised is not None else _explained(text))


def reason_of(problem: BaseException) -> str:
    """As `short_reason`; where Spark's sentence says nothing, with the exception that caused it."""
    sentence = short_reason(str(problem))
    cause = problem
    while (inner := getattr(cause, "_cause", None)) is not None:  # Spark's, not Python's.
        cause = inner
    origin = getattr(cause, "_origin", None)
    if origin is None or not sentence.endswith(_OPAQUE):
        return sentence
    return _short(f"{sentence} ({origin.toString()})")


def _innermost(text: str) -> str | None:
    """The last line of the last Python traceback; an error of ours wins over those around it."""
    if _TRACEBACK not in text:
        return None
    raised = list(_RAISED.finditer(text, text.index(_TRACEBACK)))
    ours = [match for match in raised if match["name"].startswith(_OURS)]
    if ours:
        return ours[-1]["message"]
    plain = [match for match in raised if not match["name"].startswith(("org.", "java.", "File"))]
    return f"{plain[-1]['name'].rpartition('.')[2]}: {plain[-1]['message']}" if plain else None


def _explained(text: str) -> str:
    """The message of the innermost error class, or else the first line."""
    classes = list(re.finditer(r"\[[A-Z][A-Z0-9_.]+\] ", text))
    start = classes[-1].start() if classes else 0
    match = _ERROR_CLASS.match(text, start)
    message = text if match is None else match["message"]
    cut = _NOISE.search(message)
    return (message if cut is None else message[: cut.start()]).split(_ADVICE)[0]


def _short(text: str) -> str:
    line = " ".join(_SQLSTATE.sub("", text).replace(".;", ";").split())
    if len(line) <= SENTENCE_LENGTH_MAX:
        return line.rstrip(";")
    return line[:SENTENCE_LENGTH_MAX].rstrip() + " ..."
