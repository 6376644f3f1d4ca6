"""Pushes records to a classic client, and holds them back while the client would lose them.

Owns the subscriptions of one connection, and the records that are held for them. Unmodified clients
take any frame whose number is that of a request they wait for as its answer, and register a handler
only after the answer to SUBSCRIBE. So nothing is pushed while a request is unanswered, nor right
after a SUBSCRIBE; nor, while the client goes on asking, a record with a number that its next
requests may have: they count up from 1, as offsets do, and may be on their way. Records that come
meanwhile are taken all the same: a subscriber that refuses loses its turn, and one that publishes
would never get one. Invariant: a record is acknowledged once the connection has its bytes, so
records that are held when the client leaves go to other subscribers.
"""

import asyncio
from collections import deque
from collections.abc import Sequence

from millstream.engine.push import Delivered, Member, Send
from millstream.protocols.classic.context import Name, Roster
from millstream.protocols.classic.translation import data_frame
from millstream.protocols.classic.wire import encode
from millstream.protocols.conversation import PushChannel

NUMBERS_AHEAD = 8  # How many requests a client may have on their way: its threads ask on their own.


class Pusher:
    def __init__(self, push_channel: PushChannel, roster: Roster, *, pause_s: float) -> None:
        self._push_channel = push_channel
        self._roster = roster
        self._pause_s = pause_s
        self._loop = asyncio.get_running_loop()
        self._members: dict[Name, Member] = {}
        self._held: deque[tuple[Name, Sequence[Delivered]]] = deque()  # Bounded by flow windows.
        self._is_refused = False  # A push was refused for want of room.
        self._number = 0  # Of the last request.
        self._unanswered = 0
        self._push_at = 0.0  # Nothing is pushed before; by the loop's clock.
        self._quiet_at = 0.0  # Until then the client may have asked for the next thing.
        self._timer: asyncio.Handle | None = None  # Of the next try; all is held until then.
        push_channel.on_room = self._release

    @property
    def names(self) -> list[Name]:
        """The subscriptions of this connection."""
        return list(self._members)

    def heard(self, number: int) -> None:
        """A request has come."""
        self._number = number

    def asked(self) -> None:
        """It is not answered at once."""
        self._unanswered += 1

    def answered(self) -> None:
        """Its answer leaves before anything else is done."""
        self._unanswered -= 1
        now = self._loop.time()
        self._quiet_at = now + self._pause_s
        self._release_in(max(0.0, self._push_at - now))

    # -- subscriptions -----------------------------------------------------------------------------

    def send_for(self, name: Name) -> Send:
        """How a subscription sends to `name`, which is added next."""

        def send(delivered: Sequence[Delivered]) -> bool:
            if self._unanswered or self._timer is not None:
                self._held.append((name, delivered))
                return True
            if self._held:
                self._is_refused = True
                return False  # Records held before go first.
            if self._is_risky(delivered):
                self._held.append((name, delivered))
                self._release_in(self._quiet_at - self._loop.time())
                return True
            return self._push(name, delivered)

        return send

    def add(self, name: Name, member: Member) -> None:
        member.on_end = lambda: self.remove(name)
        member.on_failure = self._push_channel.fail
        self._members[name] = member
        self._push_channel.is_awaited = True
        self._push_at = self._loop.time() + self._pause_s
        self._release_in(self._pause_s)

    def remove(self, name: Name) -> None:
        """Leave, if it is here; records held for it go back."""
        member = self._members.pop(name, None)
        if member is None:
            return
        self._held = deque(held for held in self._held if held[0] != name)
        member.close()
        self._roster.leave(name)
        self._push_channel.is_awaited = bool(self._members)

    def close(self) -> None:
        for name in self.names:
            self.remove(name)
        if self._timer is not None:
            self._timer.cancel()

    # -- pushed records ----------------------------------------------------------------------------

    def _push(self, name: Name, delivered: Sequence[Delivered]) -> bool:
        frames = [encode(data_frame(delivery, name.subscription)) for delivery in delivered]
        if not self._push_channel.send(frames):
            self._is_refused = True
            return False
        member = self._members[name]
        for delivery in delivered:
            member.ack(delivery.target, delivery.record.offset)
        return True

    def _is_risky(self, delivered: Sequence[Delivered]) -> bool:
        """Whether a request may be on its way that has the number of one of these."""
        if self._loop.time() >= self._quiet_at:
            return False
        least, most = self._number + 1, self._number + NUMBERS_AHEAD
        return any(least <= delivery.record.offset <= most for delivery in delivered)

    def _release_in(self, delay_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._members:
            self._timer = self._loop.call_later(delay_s, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        self._release()

    def _release(self) -> None:
        """Push held records as far as there is room, and ask for more if that was all."""
        left_s = self._push_at - self._loop.time()
        if self._unanswered:
            return  # Its answer is followed by the next try.
        if left_s > 0:
            self._release_in(left_s)
            return
        while self._held:
            name, delivered = self._held[0]
            if self._is_risky(delivered):
                self._release_in(self._quiet_at - self._loop.time())
                return
            if not self._push(name, delivered):
                return
            self._held.popleft()
        if self._is_refused:
            self._is_refused = False
            for member in list(self._members.values()):
                member.resume()
