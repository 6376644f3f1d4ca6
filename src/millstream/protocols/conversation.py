"""What every door's conversation is given by its connection.

Owns the words between a gateway and the socket it never sees; `server` keeps what they promise.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from millstream.model import Buffer


class Pace(Protocol):
    """How fast a connection goes: nothing more is read from it before `resume_at`."""

    resume_at: float  # By the loop's clock. It may move on at any time, and never back.
    has_ended: bool  # The client has closed its side: it sends nothing more.
    ends_with_client: bool  # What is being answered is for a client that goes on sending.


class Outbox(Protocol):
    """The way of what nobody asked for: it leaves between the replies."""

    is_awaited: bool  # The client waits to be told something: its silence is no reason to go.
    on_room: Callable[[], None] | None  # Called when there is room again after a refusal.

    def send(self, buffers: Iterable[Buffer], /) -> bool:
        """Take all of it, or return False and take nothing."""

    def fail(self, problem: Exception, /) -> None:
        """End the connection after an error in what is pushed to it."""
