"""Dialogs in front of a screen: a question, a line of text, a record to send.

Owns the dialogs; what is done with an answer is up to the screen that asked. Escape is always no.
"""

from collections.abc import Awaitable, Callable
from typing import ClassVar, Generic, TypeVar

import click
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Button, Checkbox, Footer, Input, Label, Select, Static, TextArea

from millstream.cli.explorer.core.decoding import visible
from millstream.cli.explorer.core.outgoing import Fields, Outgoing, read_fields
from millstream.cli.records import CODINGS
from millstream.client import ClientError

T = TypeVar("T")


class Question(ModalScreen[bool]):
    """Asks before what cannot be undone. Enter alone does nothing: the answer is a Y."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes"),
        Binding("n,escape", "answer(False)", "No"),
    ]

    def __init__(self, question: str, details: str = "") -> None:
        super().__init__()
        self._question = question
        self._details = details

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog danger"):
            yield Label(self._question, classes="heading", markup=False)
            yield Static(self._details, markup=False)
            with Horizontal(classes="buttons"):
                yield Button("No (n)", id="no")
                yield Button("Yes (y)", id="yes", variant="error")

    def on_mount(self) -> None:
        self.query_one("#no").focus()

    @on(Button.Pressed)
    def _pressed(self, event: Button.Pressed) -> None:
        self.dismiss(event.button.id == "yes")

    def action_answer(self, is_yes: bool) -> None:
        self.dismiss(is_yes)


class Prompt(ModalScreen[T | None], Generic[T]):
    """A line of text, read by `read`; what that refuses with a `ValueError` can be corrected."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "Cancel")]

    def __init__(
        self, title: str, hint: str, read: Callable[[str], T], *, initial: str = ""
    ) -> None:
        super().__init__()
        self._title = title
        self._hint = hint
        self._read = read
        self._initial = initial

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Label(self._title, classes="heading", markup=False)
            yield Input(self._initial)
            yield Static(self._hint, classes="hint", markup=False)
            yield Static(id="complaint", markup=False)
        yield Footer()

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        try:
            self.dismiss(self._read(event.value))
        except ValueError as problem:
            self.query_one("#complaint", Static).update(visible(str(problem)))

    def action_leave(self) -> None:
        self.dismiss(None)


class ProduceForm(ModalScreen[str | None]):
    """A record for one topic. It stays open, with all that was typed, until the record is sent."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s", "send", "Send", priority=True),
        Binding("escape", "leave", "Cancel"),
    ]

    def __init__(self, topic: str, send: Callable[[Outgoing], Awaitable[str]]) -> None:
        super().__init__()
        self._topic = topic
        self._send = send

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog wide"):
            yield Label(f"A record for {self._topic}", classes="heading", markup=False)
            yield Input(placeholder="key (empty: none)", id="key")
            yield TextArea(id="value")
            with Horizontal(classes="fields"):
                yield Select(
                    [(f"value is {coding}", coding) for coding in CODINGS],
                    value=CODINGS[0],
                    allow_blank=False,
                    id="coding",
                )
                yield Input(placeholder="partition (by key)", id="partition")
                yield Checkbox("tombstone", id="tombstone")
            yield TextArea(id="headers")
            yield Static("headers: NAME=VALUE, one a line", classes="hint", markup=False)
            yield Static(id="complaint", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        self.query_one("#value", TextArea).border_title = "value"
        self.query_one("#headers", TextArea).border_title = "headers"

    @work(exclusive=True)
    async def action_send(self) -> None:
        complaint = self.query_one("#complaint", Static)
        try:
            record = read_fields(self._fields())
            complaint.update("sending…")
            self.dismiss(await self._send(record))
        except click.ClickException as problem:
            complaint.update(visible(problem.message))
        except (ClientError, ValueError) as problem:
            complaint.update(visible(str(problem)))

    def action_leave(self) -> None:
        self.dismiss(None)

    def _fields(self) -> Fields:
        return Fields(
            key=self.query_one("#key", Input).value,
            value=self.query_one("#value", TextArea).text,
            headers=self.query_one("#headers", TextArea).text,
            partition=self.query_one("#partition", Input).value,
            coding=str(self.query_one("#coding", Select).value),
            is_tombstone=self.query_one("#tombstone", Checkbox).value,
        )
