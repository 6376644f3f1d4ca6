"""Flow control of one member: its delivery window, its rate, and its pull requests.

Owns the token bucket, the number of records that a member holds, and its statistics. Pure: the time
is passed in.
"""

from millstream.internal_topics.deliveries import FlowPolicy

_S_MS = 1_000


class TokenBucket:
    """`rate` tokens a second, at most `burst` of them; full at first."""

    __slots__ = ("_at_ms", "_burst", "_rate", "_tokens")

    def __init__(self, rate: float, burst: int, now_ms: int) -> None:
        assert rate > 0
        assert burst >= 1
        self._rate = rate
        self._burst = burst
        self._tokens = float(burst)
        self._at_ms = now_ms

    def tokens(self, now_ms: int) -> float:
        passed_ms = max(0, now_ms - self._at_ms)
        self._at_ms = max(now_ms, self._at_ms)
        self._tokens = min(self._burst, self._tokens + passed_ms * self._rate / _S_MS)
        return self._tokens

    def take(self, count: int) -> None:
        """Take tokens that `tokens` reported; a negative count gives them back."""
        self._tokens -= count

    def whole_ms(self, now_ms: int) -> int:
        """Time at which the bucket has a whole token."""
        missing = 1 - self.tokens(now_ms)
        return now_ms if missing <= 0 else now_ms + int(missing * _S_MS / self._rate) + 1


class Window:
    """A member's share of the dispatcher: how much it holds and may still be sent."""

    __slots__ = (
        "acknowledged",
        "bucket",
        "dead_lettered",
        "delivered",
        "flow",
        "in_flight_count",
        "is_open",
        "left",
        "number",
        "redelivered",
        "requested",
    )

    def __init__(self, number: int, flow: FlowPolicy, now_ms: int) -> None:
        self.number = number
        self.is_open = True  # Its connection takes records.
        self.in_flight_count = 0
        self.requested = 0  # Requested and not sent yet, in pull mode.
        self.left: int | None = None  # Records that it may still be sent; None: no limit.
        self.delivered = 0
        self.redelivered = 0
        self.acknowledged = 0
        self.dead_lettered = 0
        self.set_flow(flow, now_ms)

    def set_flow(self, flow: FlowPolicy, now_ms: int) -> None:
        self.flow = flow
        has_rate = flow.rate is not None and flow.rate > 0
        self.bucket = TokenBucket(flow.rate or 1, max(1, flow.burst), now_ms) if has_rate else None

    def room(self, now_ms: int) -> int:
        """Number of records that the member may be sent now."""
        if not self.is_open:
            return 0
        room = self.flow.window - self.in_flight_count
        if self.flow.is_pull:
            room = min(room, self.requested)
        if self.left is not None:
            room = min(room, self.left)
        if self.bucket is not None:
            room = min(room, int(self.bucket.tokens(now_ms)))
        return max(0, room)

    def is_unlimited(self, count: int) -> bool:
        """Whether so many records may be sent at once, and nothing but the window bounds them."""
        return (
            self.is_open
            and self.bucket is None
            and self.left is None
            and not self.flow.is_pull
            and count <= self.flow.window
        )

    def took(self, count: int) -> None:
        """Count records sent to the member; a negative count takes an unsent share back."""
        self.in_flight_count += count
        if self.flow.is_pull:
            self.requested -= count
        if self.left is not None:
            self.left -= count
        if self.bucket is not None:
            self.bucket.take(count)

    def is_held_up_by_rate(self) -> bool:
        """Whether only the rate keeps the member from being sent more."""
        may_send_more = self.left != 0 and (not self.flow.is_pull or self.requested > 0)
        has_window = self.flow.window > self.in_flight_count
        return self.bucket is not None and self.is_open and may_send_more and has_window
