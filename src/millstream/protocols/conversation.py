"""What a connection offers the gateway of any protocol.

Declares what a gateway may call; `server.net` implements it. A gateway never sees a socket.
"""

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Protocol

from millstream.model import Buffer

# The id of the request that is being handled, for log lines that it causes. Tasks and threads that
# a handler starts inherit it.
REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")


class Pace(Protocol):
    """How fast a connection goes: nothing more is read from it before `resume_at`."""

    resume_at: float  # By the loop's clock. It may move on at any time, and never back.
    has_ended: bool  # The client has closed its side: it sends nothing more.
    ends_with_client: bool  # What is being answered is for a client that goes on sending.
    on_stop: Callable[[], None] | None  # Called when the connection is to end after its replies.

    @property
    def recount(self) -> Callable[[], None]:
        """Counts the memory that the gateway holds, which changed while a request is answered."""

    @property
    def end(self) -> Callable[[], None]:
        """Closes the connection behind the replies that are pending."""

    def hold_reading(self, is_held: bool, /) -> None:
        """Read nothing more from the client, or read on."""


class PushChannel(Protocol):
    """Server pushes: frames sent between replies, without a request."""

    is_awaited: bool  # The client waits for pushes: the idle timeout does not apply.
    on_room: Callable[[], None] | None  # Called when there is room again after a refusal.

    def send(self, buffers: Iterable[Buffer], /) -> bool:
        """Take all of it, or return False and take nothing."""

    def fail(self, problem: Exception, /) -> None:
        """End the connection after an error in what is pushed to it."""
