"""The way to a client that has not asked: what is pushed leaves between replies, whole.

Owns nothing but the way: what waits while the client takes no more stays with whoever wants to
push it, who has a bound and a policy for it. The one thing to know: a push is taken as a whole or
not at all, so no message is ever cut by a reply.
"""

from collections.abc import Callable, Iterable

from millstream.model import Buffer
from millstream.server.net.writer import Writer


class PushChannel:
    """Part of one connection. It may be used as long as the gateway has not been closed."""

    __slots__ = ("_fail", "_writer", "is_awaited", "on_room")

    def __init__(self) -> None:
        # The client waits to be told something: its silence is no reason to drop it.
        self.is_awaited = False
        # Called once there is room again after a push was refused.
        self.on_room: Callable[[], None] | None = None
        self._writer: Writer | None = None
        self._fail: Callable[[Exception], None] | None = None

    @property
    def has_room(self) -> bool:
        return self._writer is not None and self._writer.has_room

    def send(self, buffers: Iterable[Buffer]) -> bool:
        """Take all of it; or False, and nothing: the client has not taken what it was sent."""
        writer = self._writer
        if writer is None or not writer.has_room:
            return False
        writer.put(buffers)
        writer.flush_soon()
        return True

    def fail(self, problem: Exception) -> None:
        """End the connection: what is to be pushed raised an error on its way here."""
        if self._fail is not None:
            self._fail(problem)

    def open(self, writer: Writer, fail: Callable[[Exception], None]) -> None:
        self._writer = writer
        self._fail = fail

    def resume(self) -> None:
        if self.on_room is not None:
            self.on_room()

    def close(self) -> None:
        self._writer = self._fail = None
        self.on_room = None
