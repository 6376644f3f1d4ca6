"""The first screen: the topics and the groups of the cluster."""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import DataTable, Input, TabbedContent, TabPane

from millstream.cli.explorer.core.decoding import counted
from millstream.cli.explorer.screens.dialogs import Prompt, Question
from millstream.cli.explorer.screens.frame import REFRESH_S, Frame
from millstream.cli.explorer.screens.group import GroupScreen
from millstream.cli.explorer.screens.listing import ROWS_SHOWN_MAX, Column, Listing, Row
from millstream.cli.explorer.screens.topic import TopicScreen
from millstream.cli.explorer.session import Session
from millstream.client import ClientError, Cluster, Group, Topic, TopicPartition

# Counting asks for two offsets of each partition, and for the lag of each group: not without end.
PARTITIONS_COUNTED_MAX = 5_000
GROUPS_COUNTED_MAX = 50
NAME_CHARACTERS_MAX = 249  # Kafka's own bound.

TOPIC_COLUMNS = (
    Column("topic"),
    Column("partitions", is_number=True),
    Column("replicas", is_number=True),
    Column("records ≤", is_number=True),
)
GROUP_COLUMNS = (Column("group"), Column("state"), Column("kind"), Column("lag", is_number=True))


@dataclass(frozen=True, slots=True)
class NewTopic:
    name: str
    partitions: int | None


def read_new_topic(text: str) -> NewTopic:
    """`NAME [PARTITIONS]`."""
    name, *more = text.split() or [""]
    if not name or len(name) > NAME_CHARACTERS_MAX or len(more) > 1:
        raise ValueError("Type a name, and if you like a number of partitions: orders 3")
    if more and (not more[0].isdecimal() or int(more[0]) < 1):
        raise ValueError(f"{more[0]!r} is not a number of partitions.")
    return NewTopic(name, int(more[0]) if more else None)


class Home(Frame):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("t", "tab('topics')", "Topics"),
        Binding("g", "tab('groups')", "Groups"),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("n", "create", "New"),
        Binding("D", "delete", "Delete", key_display="D"),
        Binding("i", "internal", "Internal topics", show=False),
    ]

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._filter = Input(
            placeholder="part of a name; Escape shows all", id="filter", select_on_focus=False
        )
        self._tabs = TabbedContent(initial="topics")
        self._topic_list = Listing(TOPIC_COLUMNS, id="topic-list")
        self._group_list = Listing(GROUP_COLUMNS, id="group-list")
        self._cluster: Cluster | None = None
        self._topics: tuple[Topic, ...] = ()
        self._counts: dict[str, int] = {}
        self._groups: tuple[Group, ...] = ()
        self._lags: dict[str, int] = {}
        self._name_part = ""
        self._has_internal = False

    def body(self) -> ComposeResult:
        yield self._filter
        with self._tabs:
            with TabPane("Topics", id="topics"):
                yield self._topic_list
            with TabPane("Groups", id="groups"):
                yield self._group_list

    def on_mount(self) -> None:
        self._filter.display = False
        self._topic_list.table.focus()
        self.action_reload()
        self.set_interval(REFRESH_S, self._tick)

    def on_screen_resume(self) -> None:
        self.action_reload()

    def title_text(self) -> str:
        size = f" · {counted(len(self._cluster.nodes), 'node')}" if self._cluster else ""
        return f"millstream explore · {self.session.client.address}{size}"

    def status_text(self) -> str:
        matching = self._found_topics() if self._tab == "topics" else self._found_groups()
        cut = (
            f", the first {ROWS_SHOWN_MAX:,} shown: / narrows"
            if len(matching) > ROWS_SHOWN_MAX
            else ""
        )
        condition = f" with {self._name_part!r}" if self._name_part else ""
        return f"{counted(len(matching), self._tab.removesuffix('s'))}{condition}{cut}"

    def is_left(self) -> bool:
        if self._name_part or self._filter.display:
            self._close_filter()
        return False

    # -- looking -------------------------------------------------------------------------------

    def action_reload(self) -> None:
        if self._tab == "groups":
            self._look_at_groups()
        else:
            self._look_at_topics()

    def _tick(self) -> None:
        """Refresh, unless the screen is hidden or the last refresh is still running."""
        is_idle = all(worker.is_finished for worker in self.workers if worker.node is self)
        if self.is_current and is_idle:
            self.action_reload()

    @work(exclusive=True, group="look")
    async def _look_at_topics(self) -> None:
        admin = self.session.client.admin
        with self.reporting("topics", "" if self._topics else "asking for the topics…"):
            self._cluster = await self.call(admin.describe_cluster)
            self._topics = await self.call(partial(admin.list_topics, with_internal=True))
            self._show_topics()
            places = [
                TopicPartition(topic.name, partition)
                for topic in self._topics
                for partition in range(topic.partition_count)
            ]
            if len(places) <= PARTITIONS_COUNTED_MAX:
                self._counts = await self.call(partial(self._count, places))
                self._show_topics()

    def _count(self, places: list[TopicPartition]) -> dict[str, int]:
        admin = self.session.client.admin
        begins, ends = admin.offsets(places, "earliest"), admin.offsets(places, "latest")
        counts: dict[str, int] = {}
        for at in places:
            counts[at.topic] = counts.get(at.topic, 0) + ends[at] - begins[at]
        return counts

    @work(exclusive=True, group="look")
    async def _look_at_groups(self) -> None:
        admin = self.session.client.admin
        with self.reporting("groups", "" if self._groups else "asking for the groups…"):
            self._groups = await self.call(admin.list_groups)
            there = {group.group_id for group in self._groups}
            self._lags = {name: lag for name, lag in self._lags.items() if name in there}
            self._show_groups()
            for group in self._found_groups()[:GROUPS_COUNTED_MAX]:
                try:
                    lags = await self.call(partial(admin.group_lag, group.group_id))
                    self._lags[group.group_id] = sum(part.records for part in lags)
                except ClientError:  # It went meanwhile, or is of a kind that has no offsets.
                    self._lags.pop(group.group_id, None)
                self._show_groups()

    def _show_topics(self) -> None:
        rows = [
            Row(
                topic.name,
                (
                    topic.name,
                    str(topic.partition_count),
                    str(topic.replication_factor),
                    _number(self._counts.get(topic.name)),
                ),
            )
            for topic in self._found_topics()
        ]
        nothing = "No topics yet: press n to make one."
        if self._name_part:
            nothing = f"No topic has {self._name_part!r} in its name: Escape shows all."
        self._topic_list.show(rows, nothing=nothing)
        self.update_bars()

    def _show_groups(self) -> None:
        rows = [
            Row(
                group.group_id,
                (group.group_id, group.state, group.kind, _number(self._lags.get(group.group_id))),
            )
            for group in self._found_groups()
        ]
        nothing = (
            "No groups yet: one is there when a consumer reads with a group,\n"
            "as `millstream consume TOPIC --group NAME` does."
        )
        if self._name_part:
            nothing = f"No group has {self._name_part!r} in its name: Escape shows all."
        self._group_list.show(rows, nothing=nothing)
        self.update_bars()

    def _found_topics(self) -> list[Topic]:
        shown = (topic for topic in self._topics if self._has_internal or not topic.is_internal)
        return [topic for topic in shown if self._name_part.lower() in topic.name.lower()]

    def _found_groups(self) -> list[Group]:
        return [
            group for group in self._groups if self._name_part.lower() in group.group_id.lower()
        ]

    # -- keys ----------------------------------------------------------------------------------

    def action_tab(self, name: str) -> None:
        self._tabs.active = name
        self._focus_table()
        self.action_reload()
        self.update_bars()

    def action_internal(self) -> None:
        self._has_internal = not self._has_internal
        self._show_topics()

    def action_filter(self) -> None:
        self._filter.display = True
        self.set_focus(self._filter)  # At once: what is typed next is for it.

    @on(Input.Changed, "#filter")
    def _filtered(self, event: Input.Changed) -> None:
        self._name_part = event.value.strip()
        self._show_topics()
        self._show_groups()

    @on(Input.Submitted, "#filter")
    def _filter_done(self) -> None:
        self._focus_table()

    def _close_filter(self) -> None:
        self._filter.value = ""
        self._filter.display = False
        self._focus_table()

    @on(DataTable.RowSelected)
    def _opened(self, event: DataTable.RowSelected) -> None:
        name = str(event.row_key.value)
        if self._tab == "topics":
            self.app.push_screen(TopicScreen(self.session, name))
        else:
            self.app.push_screen(GroupScreen(self.session, name))

    @work(group="act")
    async def action_create(self) -> None:
        choice = await self.app.push_screen_wait(
            Prompt("A new topic", "NAME [PARTITIONS], such as: orders 3", read_new_topic)
        )
        if choice is None:
            return
        admin = self.session.client.admin
        with self.reporting("create", f"creating {choice.name}…"):
            create = partial(admin.create_topic, choice.name, partitions=choice.partitions)
            await self.call(create)
            self.notify(f"created topic {choice.name}", markup=False)
        self.action_tab("topics")

    @work(group="act")
    async def action_delete(self) -> None:
        is_topic = self._tab == "topics"
        name = (self._topic_list if is_topic else self._group_list).chosen
        if name is None:
            return
        admin = self.session.client.admin
        lost = "All its records are lost." if is_topic else "The offsets it has committed are lost."
        question = f"Delete {'topic' if is_topic else 'group'} {name}?"
        if not await self.app.push_screen_wait(Question(question, lost)):
            return
        with self.reporting("delete", f"deleting {name}…"):
            await self.call(partial(admin.delete_topic if is_topic else admin.delete_group, name))
            self.notify(f"deleted {name}", markup=False)
        self.action_reload()

    # -- private parts -------------------------------------------------------------------------

    @property
    def _tab(self) -> str:
        return self._tabs.active or "topics"

    def _focus_table(self) -> None:
        (self._topic_list if self._tab == "topics" else self._group_list).table.focus()


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"
