"""A table that keeps its place when its rows change, and says what to do when it has none."""

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import DataTable, Static

from millstream.cli.explorer.core.decoding import visible

ROWS_SHOWN_MAX = 1_000


class Column(NamedTuple):
    title: str
    is_number: bool = False


class Row(NamedTuple):
    """`key` says which thing it is; the cursor stays on it."""

    key: str
    cells: tuple[str, ...]


class Table(DataTable[Text]):
    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "select_cursor", "Open")]


class Listing(Vertical):
    def __init__(self, columns: Sequence[Column], *, id: str) -> None:  # noqa: A002 - Textual's
        super().__init__(id=id, classes="-empty")
        self._columns = columns
        self._rows: list[Row] | None = None
        self.table = Table(cursor_type="row", zebra_stripes=True)
        self._nothing = Static("loading…", classes="nothing", markup=False)

    def compose(self) -> ComposeResult:
        yield self.table
        yield self._nothing

    def on_mount(self) -> None:
        for column in self._columns:
            self.table.add_column(self._cell(column.title, column))

    @property
    def chosen(self) -> str | None:
        """The key of the row that the cursor is on."""
        rows = self._rows or []
        return rows[self.table.cursor_row].key if self.table.cursor_row < len(rows) else None

    def show(self, rows: Sequence[Row], *, nothing: str) -> None:
        """Replace the rows; without any, say `nothing`, which says how there will be some."""
        shown = list(rows[:ROWS_SHOWN_MAX])
        self._nothing.update(nothing)
        if shown == self._rows:
            return
        key = self.chosen
        self._rows = shown
        self.table.clear()
        for row in shown:
            cells = zip(row.cells, self._columns, strict=True)
            self.table.add_row(*(self._cell(text, column) for text, column in cells), key=row.key)
        keys = [row.key for row in shown]
        if key in keys:
            self.table.move_cursor(row=keys.index(key))
        # A table without rows stays, so that the focus does; it shows its head and nothing else.
        self.set_class(not shown, "-empty")
        self._nothing.display = not shown

    def _cell(self, text: str, column: Column) -> Text:
        return Text(visible(text), justify="right" if column.is_number else "left")
