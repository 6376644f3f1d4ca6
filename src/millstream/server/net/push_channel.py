"""Sends server pushes to a client: frames between replies, without a request.

Holds no queue: while the client takes no more, pushes stay with their sender, which has a bound and
a policy for them. Invariant: a push is taken as a whole or not at all, so no reply cuts a message.
"""

from collections.abc import Callable, Iterable

from millstream.model import Buffer
from millstream.server.net.writer import Writer


class PushChannel:
    """Part of one connection. It may be used as long as the gateway has not been closed."""

    __slots__ = ("_fail", "_writer", "is_awaited", "on_room")

    def __init__(self) -> None:
        # The client waits for pushes: the idle timeout does not apply.
        self.is_awaited = False
        # Called once there is room again after a push was refused.
        self.on_room: Callable[[], None] | None = None
        self._writer: Writer | None = None
        self._fail: Callable[[Exception], None] | None = None

    @property
    def has_room(self) -> bool:
        return self._writer is not None and self._writer.has_room

    def send(self, buffers: Iterable[Buffer]) -> bool:
        """Take all buffers; or none, and return False: the client has not read the ones before."""
        writer = self._writer
        if writer is None or not writer.has_room:
            return False
        writer.put(buffers)
        writer.flush_soon()
        return True

    def fail(self, problem: Exception) -> None:
        """End the connection after an error in a push."""
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
