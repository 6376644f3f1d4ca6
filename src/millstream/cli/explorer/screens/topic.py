"""One topic: its partitions, its records, and what can be done with them."""

from datetime import UTC, datetime
from functools import partial
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widgets import DataTable

from millstream.cli.explorer.core.decoding import counted, show
from millstream.cli.explorer.core.moves import PLACES, read_place
from millstream.cli.explorer.core.outgoing import Outgoing
from millstream.cli.explorer.core.search import HINT, parse_query
from millstream.cli.explorer.screens.browser import Browser
from millstream.cli.explorer.screens.dialogs import ProduceForm, Prompt, Question
from millstream.cli.explorer.screens.frame import REFRESH_S, Frame
from millstream.cli.explorer.screens.listing import Column, Listing, Row
from millstream.cli.explorer.session import Session
from millstream.client import Partition, StartPoint, TopicDescription

ALL = "all"
PARTITION_COLUMNS = (
    Column("part", is_number=True),
    Column("begin", is_number=True),
    Column("end", is_number=True),
    Column("leader", is_number=True),
    Column("in sync", is_number=True),
)


class TopicScreen(Frame):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "jump", "Jump"),
        Binding("slash", "search", "Find", key_display="/"),
        Binding("n", "find(1)", "Next match", show=False),
        Binding("N", "find(-1)", "Previous match", show=False),
        Binding("l", "live", "Live"),
        Binding("d", "decode", "Decode"),
        Binding("p", "produce", "Produce"),
        Binding("o", "commit", "Commit"),
        Binding("c", "copy", "Copy the value", show=False),
        Binding("number_sign", "partition", "Part", key_display="#"),
        Binding("home", "go('earliest')", "Earliest record", show=False, priority=True),
        Binding("end", "go('latest')", "Latest record", show=False, priority=True),
    ]

    def __init__(self, session: Session, topic: str, partition: int | None = None) -> None:
        super().__init__(session)
        self.topic = topic
        self._reader = session.open_reader(topic)
        self.browser = Browser(self, self._reader, partition)
        self._partitions = Listing(PARTITION_COLUMNS, id="partitions")
        self._described: TopicDescription | None = None

    def body(self) -> ComposeResult:
        with Horizontal():
            yield self._partitions
            yield self.browser

    def on_mount(self) -> None:
        self.browser.list.focus()
        self.action_reload()
        self.set_interval(REFRESH_S, self._tick)

    def on_unmount(self) -> None:
        self._reader.turn()
        self.app.run_worker(self.call(partial(self.session.close_reader, self._reader)))

    def title_text(self) -> str:
        parts = [f"topic {self.topic}"]
        if self._described is not None:
            partitions = self._described.partitions
            records = sum(item.offset_count for item in partitions)
            parts.append(counted(len(partitions), "partition"))
            parts.append(f"at most {counted(records, 'record')}")
            changed = [item for item in self._described.settings if not item.is_default]
            parts += [f"{item.name}={item.value}" for item in changed]
        return " · ".join(parts)

    def status_text(self) -> str:
        return self.browser.status_text()

    def is_left(self) -> bool:
        """Escape ends what goes on, then the search, and only then the screen."""
        if self.browser.stop():
            return False
        if self.browser.sought is not None:
            self.browser.seek_for(None)
            return False
        return True

    # -- moving about --------------------------------------------------------------------------

    def action_reload(self) -> None:
        self._describe()
        self.browser.go("latest")

    def action_go(self, place: StartPoint) -> None:
        self.browser.go(place)

    def action_live(self) -> None:
        self.browser.toggle_live()

    @work(group="act")
    async def action_jump(self) -> None:
        read = partial(read_place, now=datetime.now(UTC))
        place = await self.app.push_screen_wait(Prompt(f"Jump in {self.topic}", PLACES, read))
        if place is not None:
            self.browser.go(place)

    @work(group="act")
    async def action_search(self) -> None:
        sought = self.browser.sought
        query = await self.app.push_screen_wait(
            Prompt(f"Search {self.topic}", HINT, parse_query, initial=sought.text if sought else "")
        )
        if query is not None:
            self.browser.seek_for(query)
            self.browser.find(1, is_first=True)

    def action_find(self, way: int) -> None:
        if self.browser.sought is None:
            self.action_search()
        else:
            self.browser.find(way)

    # -- partitions ----------------------------------------------------------------------------

    def _tick(self) -> None:
        if self.is_current:
            self._describe()

    @work(exclusive=True, group="describe")
    async def _describe(self) -> None:
        with self.reporting("describe"):
            describe = partial(self.session.client.admin.describe_topic, self.topic)
            self._described = await self.call(describe)
            rows = [Row(ALL, (ALL, "", "", "", ""))]
            rows += [_partition_row(partition) for partition in self._described.partitions]
            self._partitions.show(rows, nothing="no partitions")

    @on(DataTable.RowSelected)
    def _partition_chosen(self, event: DataTable.RowSelected) -> None:
        self._look_at(str(event.row_key.value))

    @work(group="act")
    async def action_partition(self) -> None:
        count = len(self._described.partitions) if self._described else 1
        read = partial(read_partition, count=count)
        hint = f"0 to {count - 1}, or {ALL}"
        chosen = await self.app.push_screen_wait(Prompt("Which partition?", hint, read))
        if chosen is not None:
            self._look_at(chosen)

    def _look_at(self, partition: str) -> None:
        self.browser.partition = None if partition == ALL else int(partition)
        self.browser.list.focus()
        self.browser.go("latest")

    # -- the record under the cursor -----------------------------------------------------------

    def action_decode(self) -> None:
        self.browser.decode_as(self.browser.form.next)

    def action_copy(self) -> None:
        record = self.browser.chosen
        if record is not None:
            self.app.copy_to_clipboard(show(record.value, self.browser.form).text)
            self.notify("copied the value, if this terminal lets programs copy")

    @work(group="act")
    async def action_commit(self) -> None:
        record = self.browser.chosen
        if record is None:
            return
        where = f"{record.at} at offset {record.offset:,}"
        group = await self.app.push_screen_wait(
            Prompt(f"Which group goes on with {where}?", "a group without members", _read_name)
        )
        if group is None:
            return
        details = "It reads this record next; what it had committed there is forgotten."
        question = Question(f"Let group {group} go on with {where}?", details)
        if not await self.app.push_screen_wait(question):
            return
        with self.reporting("commit", f"committing for {group}…"):
            admin = self.session.client.admin
            await self.call(partial(admin.reset_group, group, {record.at: record.offset}))
            self.notify(f"{group} goes on with {where}", markup=False)

    # -- producing -----------------------------------------------------------------------------

    @work(group="act")
    async def action_produce(self) -> None:
        sent = await self.app.push_screen_wait(ProduceForm(self.topic, self._send))
        if sent is None:
            return
        self.notify(f"sent {sent}", markup=False)
        self._describe()
        if not self.browser.is_live:
            self.browser.go("latest")

    async def _send(self, record: Outgoing) -> str:
        send = partial(
            self.session.client.produce,
            self.topic,
            record.value,
            key=record.key,
            headers=record.headers,
            partition=record.partition,
        )
        placed = await self.call(send)
        return f"{placed.topic}/{placed.partition}@{placed.offset}"


def read_partition(text: str, *, count: int) -> str:
    """The number of a partition, or `all`; `ValueError` if there is none such."""
    chosen = text.strip()
    if chosen != ALL and not (chosen.isdecimal() and int(chosen) < count):
        raise ValueError(f"{chosen!r} is not 0 to {count - 1}, nor {ALL}.")
    return chosen


def _read_name(text: str) -> str:
    if not text.strip():
        raise ValueError("A group has a name.")
    return text.strip()


def _partition_row(partition: Partition) -> Row:
    leader = "none" if partition.leader_id is None else str(partition.leader_id)
    in_sync = f"{len(partition.in_sync_ids)}/{len(partition.replica_ids)}"
    number = str(partition.partition)
    return Row(
        number, (number, str(partition.begin_offset), str(partition.end_offset), leader, in_sync)
    )
