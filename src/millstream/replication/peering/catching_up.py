"""Replicas that come with a move or a grown cluster catch up no faster than a limit.

Owns which replicas those are and their fetches that are held back. A fetch may wait at its receiver
until it is thrown away with its link, or when its replica says `Left` (docs/consensus.md). Voters
are never held back.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from millstream.model import LogId, NodeId, ReplicaId, node_of
from millstream.raft.link_messages import GroupMessage
from millstream.raft.messages import FetchReply

BURST_MS = 100  # What was not used for longer is lost.
WAIT_S_MIN = 0.005


class Throttle:
    """Lets so many bytes pass a second, on average. The time is passed in."""

    def __init__(self, bytes_per_second: int) -> None:
        """0: no limit."""
        self._bytes_per_second = bytes_per_second
        self._free_ms = 0.0  # When all that has passed is paid for.

    def wait_ms(self, now_ms: float) -> float:
        """How long the next bytes have to wait; 0 if they may pass now."""
        return max(0.0, self._free_ms - now_ms)

    def spend(self, count: int, now_ms: float) -> None:
        """So many bytes have passed. Never refused: the next ones wait the longer."""
        if self._bytes_per_second:
            cost_ms = count * 1000 / self._bytes_per_second
            self._free_ms = max(self._free_ms, now_ms - BURST_MS) + cost_ms


class CatchingUp:
    def __init__(
        self, bytes_per_second: int, serve: Callable[[NodeId, GroupMessage], None]
    ) -> None:
        """`serve` gets a fetch that was held back, when there is room for its records."""
        self.newcomers: set[tuple[LogId, ReplicaId]] = set()
        self._throttle = Throttle(bytes_per_second)
        self._serve = serve
        # At most one for each replica: the latest.
        self._held: OrderedDict[tuple[LogId, ReplicaId], tuple[NodeId, GroupMessage]]
        self._held = OrderedDict()

    def holds_back(self, node: NodeId, fetch: GroupMessage, *, is_voter: bool) -> bool:
        """Whether a fetch has to wait."""
        key = fetch.log, fetch.sender
        if is_voter:
            self.newcomers.discard(key)
            return False
        self.newcomers.add(key)
        if not self._throttle.wait_ms(_now_ms()):
            return False
        if not self._held:
            self._wait()
        self._held[key] = node, fetch
        return True

    def count(self, message: object) -> None:
        """Count the records of a message that is sent, if they are for a newcomer."""
        if isinstance(message, GroupMessage) and isinstance(message.message, FetchReply):
            records = message.message.records
            if isinstance(records, bytes) and (message.log, message.receiver) in self.newcomers:
                self._throttle.spend(len(records), _now_ms())

    def forget(self, log: LogId, replica: ReplicaId) -> None:
        """The replica has left its epoch: a fetch of it must not be counted."""
        self._held.pop((log, replica), None)

    def forget_node(self, node: NodeId) -> None:
        """The link has ended, and with it all that came over it."""
        for key in [key for key, (peer, _) in self._held.items() if peer == node]:
            del self._held[key]
        self.newcomers = {key for key in self.newcomers if node_of(key[1]) != node}

    def _wait(self) -> None:
        wait_s = max(WAIT_S_MIN, self._throttle.wait_ms(_now_ms()) / 1000)
        asyncio.get_running_loop().call_later(wait_s, self._serve_some)

    def _serve_some(self) -> None:
        while self._held and not self._throttle.wait_ms(_now_ms()):
            _, (node, fetch) = self._held.popitem(last=False)
            self._serve(node, fetch)
        if self._held:
            self._wait()


def _now_ms() -> float:
    return asyncio.get_running_loop().time() * 1000
