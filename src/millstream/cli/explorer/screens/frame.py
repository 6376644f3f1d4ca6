"""The frame around every screen: a title, a status line, a bar for what went wrong, the keys.

Owns reporting. Whatever a call raises ends in the bar as a sentence, under the name of what was
being done; it goes when the same thing works again, or with Escape.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar, TypeVar

import click
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Footer, HelpPanel, Static

from millstream.cli.explorer.core.decoding import visible
from millstream.cli.explorer.session import Session
from millstream.client import ClientError

# How often what is on the screen is asked for again.
REFRESH_S = 5.0

log = logging.getLogger("millstream.explore")
log.addHandler(logging.NullHandler())  # The terminal belongs to the explorer.

T = TypeVar("T")


class Frame(Screen[None]):
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]  # noqa: RUF012 - as Textual has it
    BINDINGS: ClassVar[list[BindingType]] = [Binding("r", "reload", "Reload", show=False)]

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.session = session
        self._problems: dict[str, str] = {}
        self._doing: dict[str, str] = {}
        self._title_bar = Static(id="title", markup=False)
        self._problem_bar = Static(id="problem", markup=False)
        self._status_bar = Static(id="status", markup=False)

    def compose(self) -> ComposeResult:
        yield self._title_bar
        yield from self.body()
        yield self._problem_bar
        yield self._status_bar
        yield Footer()

    # -- for screens to fill in ----------------------------------------------------------------

    def body(self) -> ComposeResult:
        """The widgets between the title and the bars."""
        yield from ()

    def title_text(self) -> str:
        return self.session.client.address

    def status_text(self) -> str:
        return ""

    def is_left(self) -> bool:
        """Whether Escape, with nothing left to dismiss, closes the screen."""
        return True

    # -- calls and what comes of them ----------------------------------------------------------

    async def call(self, work: Callable[[], T]) -> T:
        return await self.session.calls.run(work)

    @contextmanager
    def reporting(self, name: str, doing: str = "") -> Iterator[None]:
        """Report what goes wrong inside under `name`; while it lasts the status says `doing`."""
        self._doing[name] = doing
        self.update_bars()
        problem = ""
        try:
            yield
        except (ClientError, ValueError) as error:
            problem = str(error)
        except click.ClickException as error:
            problem = error.message
        except Exception as error:
            # The screen stays: what was seen so far is worth more than a trace.
            log.exception("unexpected name=%s", name)
            problem = f"unexpected {type(error).__name__}: {error}"
        finally:
            self._doing.pop(name, None)
            self._problems.pop(name, None)
            if problem:
                self._problems[name] = visible(" ".join(problem.split()))
            self.update_bars()

    @property
    def problem(self) -> str:
        """The latest thing that went wrong and still does, or nothing."""
        return next(reversed(self._problems.values()), "")

    def update_bars(self) -> None:
        self._title_bar.update(self.title_text())
        doing = [text for text in self._doing.values() if text]
        parts = [*doing, self.status_text()]
        self._status_bar.update(" · ".join(part for part in parts if part))
        self._problem_bar.update(self.problem)
        self._problem_bar.display = bool(self.problem)

    def action_back(self) -> None:
        if self._problems:
            self._problems.clear()
            self.update_bars()
        elif self.is_left() and len(self.app.screen_stack) > 2:
            self.app.pop_screen()

    def action_toggle_keys(self) -> None:
        if self.query(HelpPanel):
            self.app.action_hide_help_panel()
        else:
            self.app.action_show_help_panel()
