"""The list of records: one line each, drawn only where it is seen.

Owns the cursor. However many records are held, only the lines on the screen are made; the records
are the window's. Going past either end asks for more.
"""

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from millstream.cli.explorer.core.decoding import Form, moment_text, summary
from millstream.cli.explorer.core.search import Query
from millstream.client import Message as Record

PARTITION_COLUMNS, OFFSET_COLUMNS, KEY_COLUMNS = 4, 10, 16
TIME_COLUMNS = len("2026-05-01 12:00:00.000")
# With less room than this, the date is left to the detail.
DATE_COLUMNS_MIN = 90
_DATE_COLUMNS = len("2026-05-01 ")


class MessageList(ScrollView, can_focus=True):
    COMPONENT_CLASSES: ClassVar[set[str]] = {"records--cursor", "records--hit"}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", "Older", show=False),
        Binding("down", "move(1)", "Newer", show=False),
        Binding("pageup", "page(-1)", "Page of older", show=False),
        Binding("pagedown", "page(1)", "Page of newer", show=False),
    ]

    class Chosen(Message):
        """The cursor is on another record."""

    class PastEnd(Message):
        """The cursor is at an end and should go on."""

        def __init__(self, step: int) -> None:
            super().__init__()
            self.step = step

    def __init__(self) -> None:
        super().__init__(id="records")
        self.records: Sequence[Record] = ()
        self.cursor = 0
        self.form = Form.AUTO
        self.query_shown: Query | None = None

    @property
    def chosen(self) -> Record | None:
        return self.records[self.cursor] if self.cursor < len(self.records) else None

    def show(self, records: Sequence[Record], *, cursor: int) -> None:
        """The records changed: draw them, with the cursor there or as near as there is one."""
        self.records = records
        self.virtual_size = Size(self.size.width, len(records))
        self.cursor = max(0, min(cursor, len(records) - 1))
        self._follow_cursor()
        self.refresh()
        self.post_message(self.Chosen())

    def action_move(self, step: int) -> None:
        cursor = self.cursor + step
        if not 0 <= cursor < len(self.records):
            self.post_message(self.PastEnd(1 if step > 0 else -1))
        self.show(self.records, cursor=cursor)

    def action_page(self, step: int) -> None:
        self.action_move(step * max(1, self.size.height - 1))

    def on_click(self, event: events.Click) -> None:
        row = event.y + self.scroll_offset.y
        if row < len(self.records):
            self.show(self.records, cursor=row)

    def on_resize(self) -> None:
        self.show(self.records, cursor=self.cursor)

    def render_line(self, y: int) -> Strip:
        index = y + self.scroll_offset.y
        width = self.size.width
        if index >= len(self.records):
            return Strip.blank(width, self.rich_style)
        style = self.rich_style
        if index == self.cursor:
            style += self.get_component_rich_style("records--cursor", partial=True)
        text = self._line(self.records[index])
        text.truncate(width, overflow="ellipsis", pad=True)
        text.stylize_before(style)
        return Strip(text.render(self.app.console), width).crop(0, width)

    def heading(self) -> Text:
        """The names of the columns, as wide as they are."""
        return self._columns("part", "offset", "time", Text("key"), Text("value"))

    def _line(self, record: Record) -> Text:
        when = moment_text(record.timestamp_ms)
        return self._columns(
            str(record.partition),
            str(record.offset),
            when if self._has_date else when[_DATE_COLUMNS:] or when,
            self._marked("-" if record.key is None else summary(record.key, self.form), "key"),
            self._marked(summary(record.value, self.form), "value"),
        )

    def _marked(self, text: str, part: str) -> Text:
        """With what is searched for highlighted."""
        marked = Text(text, end="")
        if self.query_shown is not None and self.query_shown.covers(part):
            hit = self.get_component_rich_style("records--hit", partial=True)
            marked.highlight_regex(self.query_shown.pattern, hit)
        return marked

    def _columns(self, partition: str, offset: str, when: str, key: Text, value: Text) -> Text:
        time_columns = TIME_COLUMNS if self._has_date else TIME_COLUMNS - _DATE_COLUMNS
        text = Text(no_wrap=True, end="")
        text.append(f" {partition:>{PARTITION_COLUMNS}} {offset:>{OFFSET_COLUMNS}}  ")
        text.append(f"{when[:time_columns]:<{time_columns}}  ")
        # By columns, not by characters: those of East Asia take two.
        key.truncate(KEY_COLUMNS, overflow="ellipsis", pad=True)
        return text.append_text(key).append("  ").append_text(value)

    @property
    def _has_date(self) -> bool:
        return self.size.width >= DATE_COLUMNS_MIN

    def _follow_cursor(self) -> None:
        if self.size.height:
            self.scroll_to_region(Region(0, self.cursor, 1, 1), animate=False, force=True)
