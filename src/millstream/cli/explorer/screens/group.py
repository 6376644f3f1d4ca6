"""One group: its members, how far it is behind in each partition, and where it goes on."""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import DataTable

from millstream.cli.explorer.core.decoding import counted
from millstream.cli.explorer.core.moves import PLACES, Move, lines, plan, read_place, read_target
from millstream.cli.explorer.screens.dialogs import Prompt, Question
from millstream.cli.explorer.screens.frame import REFRESH_S, Frame
from millstream.cli.explorer.screens.listing import Column, Listing, Row
from millstream.cli.explorer.screens.topic import TopicScreen
from millstream.cli.explorer.session import Session
from millstream.client import GroupDescription, Lag, StartPoint, TopicPartition

LAG_COLUMNS = (
    Column("topic"),
    Column("part", is_number=True),
    Column("committed", is_number=True),
    Column("end", is_number=True),
    Column("lag", is_number=True),
    Column("member"),
)


class GroupScreen(Frame):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("o", "commit", "Commit"),
        Binding("R", "reset", "Reset", key_display="R"),
        Binding("D", "delete", "Delete", key_display="D"),
    ]

    def __init__(self, session: Session, group: str) -> None:
        super().__init__(session)
        self.group = group
        self._listing = Listing(LAG_COLUMNS, id="lags")
        self._described: GroupDescription | None = None
        self._lags: tuple[Lag, ...] = ()

    def body(self) -> ComposeResult:
        yield self._listing

    def on_mount(self) -> None:
        self._listing.table.focus()
        self.action_reload()
        self.set_interval(REFRESH_S, self._tick)

    def title_text(self) -> str:
        parts = [f"group {self.group}"]
        described = self._described
        if described is not None:
            parts += [described.state, described.kind, described.assignor]
            parts.append(counted(len(described.members), "member"))
            parts.append(f"total lag {sum(lag.records for lag in self._lags):,}")
        return " · ".join(part for part in parts if part)

    def status_text(self) -> str:
        if self._described is not None and self._described.members:
            return "its offsets can be set when it has no members"
        return ""

    # -- looking -------------------------------------------------------------------------------

    def action_reload(self) -> None:
        self._look()

    def _tick(self) -> None:
        if self.is_current:
            self._look()

    @work(exclusive=True, group="look")
    async def _look(self) -> None:
        admin = self.session.client.admin
        with self.reporting("look", "" if self._described else "asking for the group…"):
            self._described = await self.call(partial(admin.describe_group, self.group))
            self._lags = await self.call(partial(admin.group_lag, self.group))
            hosts = {
                member.member_id: f"{member.client_id} {member.host}"
                for member in self._described.members
            }
            nothing = (
                "It has committed nothing yet: R and the name of a topic sets where it begins."
            )
            self._listing.show([_lag_row(lag, hosts) for lag in self._lags], nothing=nothing)

    # -- changing ------------------------------------------------------------------------------

    @on(DataTable.RowSelected)
    def _opened(self, event: DataTable.RowSelected) -> None:
        at = _place(str(event.row_key.value))
        self.app.push_screen(TopicScreen(self.session, at.topic, at.partition))

    @work(group="act")
    async def action_commit(self) -> None:
        """Set where the partition under the cursor goes on."""
        key = self._listing.chosen
        if key is None:
            return
        at = _place(key)
        read = partial(read_place, now=datetime.now(UTC))
        place = await self.app.push_screen_wait(
            Prompt(f"Where does {self.group} go on in {at}?", PLACES, read)
        )
        if place is not None:
            await self._move(partial(self._plan_one, at, place))

    @work(group="act")
    async def action_reset(self) -> None:
        """Set where all partitions go on, of some topics or of those that it reads."""
        read = partial(read_target, now=datetime.now(UTC))
        hint = f"PLACE [TOPIC...]: {PLACES}. Without a topic, all that the group reads."
        target = await self.app.push_screen_wait(
            Prompt(f"Where does {self.group} go on?", hint, read)
        )
        if target is not None:
            await self._move(partial(self._plan_all, *target))

    async def _move(self, find_plan: Callable[[], list[Move]]) -> None:
        """Show what would be, ask, and do it."""
        moves: list[Move] = []
        with self.reporting("move", "looking up offsets…"):
            moves = await self.call(find_plan)
            if not moves:
                raise ValueError("The group has read no topic yet: name one after the place.")
        if not moves:
            return
        where = counted(len(moves), "partition")
        question = Question(f"Move group {self.group} in {where}?", lines(moves))
        if not await self.app.push_screen_wait(question):
            return
        with self.reporting("move", "committing…"):
            goals = {move.at: move.after for move in moves}
            await self.call(partial(self.session.client.admin.reset_group, self.group, goals))
            self.notify(f"{self.group} was moved in {where}", markup=False)
        self._look()

    @work(group="act")
    async def action_delete(self) -> None:
        question = Question(f"Delete group {self.group}?", "The offsets it has committed are lost.")
        if not await self.app.push_screen_wait(question):
            return
        with self.reporting("delete", "deleting…"):
            await self.call(partial(self.session.client.admin.delete_group, self.group))
            self.app.pop_screen()
            self.notify(f"deleted group {self.group}", markup=False)

    # -- private parts: these wait for the cluster ---------------------------------------------

    def _plan_one(self, at: TopicPartition, place: StartPoint) -> list[Move]:
        return self._plan(self.session.client.admin.offsets([at], place))

    def _plan_all(self, place: StartPoint, named: tuple[str, ...]) -> list[Move]:
        admin = self.session.client.admin
        topics = named or sorted({lag.topic for lag in admin.group_lag(self.group)})
        return self._plan(admin.reset_group(self.group, place, topics=topics, dry_run=True))

    def _plan(self, goals: dict[TopicPartition, int]) -> list[Move]:
        admin = self.session.client.admin
        begins, ends = admin.offsets(goals, "earliest"), admin.offsets(goals, "latest")
        return plan(goals, admin.committed(self.group), begins, ends)


def _place(key: str) -> TopicPartition:
    topic, _, partition = key.rpartition("/")
    return TopicPartition(topic, int(partition))


def _lag_row(lag: Lag, hosts: dict[str, str]) -> Row:
    member = "" if lag.member_id is None else hosts.get(lag.member_id, lag.member_id)
    committed = "none" if lag.committed_offset is None else f"{lag.committed_offset:,}"
    cells = (
        lag.topic,
        str(lag.partition),
        committed,
        f"{lag.end_offset:,}",
        f"{lag.records:,}",
        member,
    )
    return Row(f"{lag.topic}/{lag.partition}", cells)
