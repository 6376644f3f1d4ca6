"""One record in full: where it is, its key, its headers and its value."""

from rich.highlighter import JSONHighlighter
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Static

from millstream.cli.explorer.core.decoding import (
    Form,
    moment_text,
    show,
    size_text,
    summary,
    visible,
)
from millstream.cli.explorer.core.search import Query
from millstream.client import Message

# Records may have any number of headers.
HEADERS_SHOWN_MAX = 50
HIT = "black on yellow"


class Detail(VerticalScroll):
    def __init__(self) -> None:
        super().__init__()
        self._text = Static(markup=False)

    def compose(self) -> ComposeResult:
        yield self._text

    def show(self, record: Message | None, form: Form, query: Query | None) -> None:
        self._text.update(Text() if record is None else describe(record, form, query))
        self.scroll_home(animate=False)


def describe(record: Message, form: Form, query: Query | None = None) -> Text:
    """The record as text, with what is searched for highlighted."""

    def marked(text: Text, part: str) -> Text:
        if query is not None and query.covers(part):
            text.highlight_regex(query.pattern, HIT)
        return text

    text = Text()
    text.append(f"{record.at} @ {record.offset:,}", "bold")
    text.append(f"   {moment_text(record.timestamp_ms)}   {record.timestamp_ms} ms\n", "dim")
    key = "none" if record.key is None else summary(record.key, form)
    text.append("key     ", "dim").append_text(marked(Text(key), "key")).append("\n")
    for name, value in record.headers[:HEADERS_SHOWN_MAX]:
        header = Text(f"{visible(name)} = {summary(value, form)}")
        text.append("header  ", "dim").append_text(marked(header, "header")).append("\n")
    more = len(record.headers) - HEADERS_SHOWN_MAX
    if more > 0:
        text.append(f"        … and {more:,} more headers\n", "dim")
    shown = show(record.value, form)
    size = "" if record.value is None else size_text(len(record.value))
    parts = [part for part in (shown.kind, size, shown.note) if part]
    text.append("value   ", "dim").append(", ".join(parts) + "\n\n", "dim")
    body = Text(shown.text)
    if shown.kind.endswith("json"):
        JSONHighlighter().highlight(body)
    return text.append_text(marked(body, "value"))
