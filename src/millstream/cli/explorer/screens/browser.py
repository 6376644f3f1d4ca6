"""The records of a topic, and moving about in them: pages, jumps, the search and the live tail.

Owns the window and what is under way in it, of which there is one thing at a time. However long
one scrolls, searches or tails, what is held is bounded by the window.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from textual import on, work
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from millstream.cli.explorer.core import paging
from millstream.cli.explorer.core.decoding import Form, counted, size_text
from millstream.cli.explorer.core.search import Query, find
from millstream.cli.explorer.core.window import Window
from millstream.cli.explorer.reader import Reader
from millstream.cli.explorer.screens.detail import Detail
from millstream.cli.explorer.screens.frame import Frame
from millstream.cli.explorer.screens.message_list import MessageList
from millstream.client import Message, StartPoint

# How often a live tail is drawn, and how far it may fall behind before it skips to the end.
LIVE_WAIT_S = 0.25
LIVE_BEHIND_MAX = 5_000

NO_RECORDS = "No records here yet: press p to send one, or l to wait for what comes."


class Browser(Vertical):
    def __init__(self, frame: Frame, reader: Reader, partition: int | None) -> None:
        super().__init__(classes="-empty")
        self.list = MessageList()
        self.window = Window()
        self.partition = partition
        self.sought: Query | None = None
        self._frame = frame
        self._reader = reader
        self._heading = Static(id="columns", markup=False)
        self._nothing = Static("reading…", classes="nothing", markup=False)
        self._detail = Detail()
        self._is_reading = False
        self._current = 0  # The current turn, and the turn of the live tail.
        self._live = 0
        self._said = ""  # What came of the last search, or was skipped.
        self._direction = -1  # Where a search goes: from the newest towards the older.

    def compose(self) -> ComposeResult:
        yield self._heading
        yield self.list
        yield self._nothing
        yield self._detail

    @property
    def is_live(self) -> bool:
        return self._is_reading and self._live == self._current

    @property
    def chosen(self) -> Message | None:
        return self.list.chosen if self.window.records else None

    @property
    def form(self) -> Form:
        return self.list.form

    def status_text(self) -> str:
        parts = ["● live: l ends it" if self.is_live else ""]
        parts.append("" if self.partition is None else f"partition {self.partition} only")
        parts.append(f"{counted(len(self.window.records), 'record')} held")
        parts.append(size_text(self.window.size_bytes))
        parts.append(f"decoded as {self.form.value}")
        if self.sought is not None:
            parts.append(f"search {self.sought.text!r}: n next, N back")
        return " · ".join(part for part in (*parts, self._said) if part)

    def stop(self) -> bool:
        """End what is under way, and say whether anything was."""
        was_busy = self._is_reading
        self.workers.cancel_group(self, "read")
        self._reader.turn()
        return was_busy

    def decode_as(self, form: Form) -> None:
        self.list.form = form
        self.list.refresh()
        self._show_detail()
        self._frame.update_bars()

    # -- pages ---------------------------------------------------------------------------------

    @work(exclusive=True, group="read")
    async def go(self, place: StartPoint) -> None:
        self._direction = -1 if place == "latest" else 1
        with self._reading("reading…") as turn:
            await self._begin(turn, place)

    @on(MessageList.PastEnd)
    def _past_end(self, event: MessageList.PastEnd) -> None:
        # One page at a time: a key that is held down must not begin again what is under way.
        if not self._is_reading:
            self._more(event.step)

    @work(exclusive=True, group="read")
    async def _more(self, step: int) -> None:
        with self._reading("reading…") as turn:
            if await self._extend(turn, step) == 0:
                self._said = "this is the newest record" if step > 0 else "this is the oldest"

    async def _begin(self, turn: int, place: StartPoint) -> None:
        chunk = await self._frame.call(partial(self._reader.begin, turn, place, self.partition))
        self.window.replace(chunk)
        self._draw(cursor=len(self.window.records) - 1 if place == "latest" else 0)

    async def _extend(self, turn: int, step: int, *, is_search: bool = False) -> int:
        """Take in the next page on one side; returns how many records it has."""
        read = self._reader.newer if step > 0 else self._reader.older
        spans = dict(self.window.spans)
        chunk = await self._frame.call(partial(read, turn, spans, is_search=is_search))
        if step > 0:
            moved = -self.window.add_newer(chunk)
        else:
            moved = self.window.add_older(chunk)
        self._draw(cursor=self.list.cursor + moved)
        return len(chunk.records)

    # -- the live tail -------------------------------------------------------------------------

    def toggle_live(self) -> None:
        if self.is_live:
            self.stop()
        else:
            self._follow()

    @work(exclusive=True, group="read")
    async def _follow(self) -> None:
        self._direction = -1
        with self._reading("") as turn:
            self._live = turn
            await self._begin(turn, "latest")
            while True:
                await self._follow_once(turn)

    async def _follow_once(self, turn: int) -> None:
        follow = partial(self._reader.follow, turn, dict(self.window.spans), LIVE_WAIT_S)
        chunk = await self._frame.call(follow)
        if not chunk.records:
            return
        was_at_end = self.list.cursor >= len(self.window.records) - 1
        gone = self.window.add_newer(chunk)
        last = len(self.window.records) - 1
        # The cursor stays where it is if the user has moved up.
        self._draw(cursor=last if was_at_end else self.list.cursor - gone)
        if len(chunk.records) >= paging.quota(len(self.window.spans)):
            bounds = await self._frame.call(partial(self._reader.bounds, self.partition))
            missed = paging.behind(self.window.spans, bounds)
            if missed > LIVE_BEHIND_MAX:
                await self._begin(turn, "latest")
                self._said = f"skipped about {missed:,} records to keep up"

    # -- searching -----------------------------------------------------------------------------

    def seek_for(self, query: Query | None) -> None:
        """Look for this from here on, or for nothing any more."""
        self.sought = self.list.query_shown = query
        self._said = ""
        self.list.refresh()
        self._show_detail()
        self._frame.update_bars()

    @work(exclusive=True, group="read")
    async def find(self, way: int, *, is_first: bool = False) -> None:
        """Go to the next match, through what is held and then page by page through the log."""
        query = self.sought
        if query is None:
            return
        step = self._direction * way
        start = self.list.cursor if is_first else self.list.cursor + step
        searched = 0
        with self._reading("searching…") as turn:
            while True:
                records = list(self.window.records)
                look = partial(find, records, query, start=start, step=step)
                index = await self._frame.call(look)
                if index is not None:
                    self._draw(cursor=index)
                    return
                searched += max(0, len(records) - start if step > 0 else start + 1)
                self._said = f"{counted(searched, 'record')} searched"
                count = await self._extend(turn, step, is_search=True)
                if not count:
                    where = "newer" if step > 0 else "older"
                    self._said = f"no match in {searched:,} {where} records"
                    return
                start = len(self.window.records) - count if step > 0 else count - 1

    # -- private parts -------------------------------------------------------------------------

    @contextmanager
    def _reading(self, doing: str) -> Iterator[int]:
        """Take the reader's turn, and report how it goes."""
        turn = self._current = self._reader.turn()
        self._said = ""
        self._is_reading = True
        try:
            with self._frame.reporting("read", doing):
                yield turn
        finally:
            if self._current == turn:  # Else another has begun, which says itself how it goes.
                self._is_reading = False
                self._say_if_empty()
                self._frame.update_bars()

    def _draw(self, *, cursor: int) -> None:
        self.list.show(self.window.records, cursor=cursor)
        self._heading.update(self.list.heading())
        self._say_if_empty()
        self._frame.update_bars()

    def _say_if_empty(self) -> None:
        self.set_class(not self.window.records, "-empty")
        self._nothing.display = not self.window.records
        is_new = self._is_reading and not self.is_live
        self._nothing.update("reading…" if is_new else NO_RECORDS)

    @on(MessageList.Chosen)
    def _show_detail(self) -> None:
        self._detail.show(self.chosen, self.form, self.sought)
