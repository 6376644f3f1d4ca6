"""Appends to logs that rested and are being opened: they wait, and keep their order.

Owns the queues of such appends. Their number is bounded like that of all requests that are not
answered yet. Belongs to the event loop; nothing here awaits.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial

from millstream.engine.runtime.futures import AppendFuture, copy_outcome, ignore_outcome
from millstream.errors import RequestError
from millstream.model import LogId, TopicPartition
from millstream.replication.hub import Hub

Append = Callable[[], AppendFuture]


class HeldAppends:
    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        # While a partition has a queue, later appends go there too: none overtakes another.
        self.queues: dict[TopicPartition, deque[tuple[Append, AppendFuture]]] = {}

    def takes(self, target: TopicPartition, log_id: LogId) -> bool:
        """Whether an append to this partition has to wait, and will not wait for ever."""
        return target in self.queues or log_id in self._hub.resting.waking

    def hold(self, target: TopicPartition, log_id: LogId, append: Append) -> AppendFuture:
        """Call `append` once the log is led, or cannot be opened."""
        loop = asyncio.get_running_loop()
        done: AppendFuture = loop.create_future()
        done.add_done_callback(ignore_outcome)
        if target not in self.queues:
            self.queues[target] = deque()
            self._hub.resting.waking[log_id].append(partial(loop.call_soon, self._release, target))
        self.queues[target].append((append, done))
        return done

    def _release(self, target: TopicPartition) -> None:
        for append, done in self.queues.pop(target):
            if done.done():
                continue  # The request was cancelled, and nothing is written yet.
            try:
                append().add_done_callback(partial(copy_outcome, done))
            except RequestError as problem:
                done.set_exception(problem)
