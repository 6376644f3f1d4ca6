"""A consumer as an observable of `reactivex`, with back-pressure down to the broker.

Owns the bounded buffer between reading and observing. When it is full the partitions are paused,
so librdkafka stops fetching; the consumer is still polled, so it stays a member of its group. When
half of it is free they are resumed. An observer that takes longer than `max.poll.interval.ms` for
one record hangs: the polling ends, and with it the membership. Needs `millstream[reactive]`.
"""

import threading
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any

from millstream.client.consumer import POLL_S, Consumer
from millstream.client.errors import NotSupported, Refused
from millstream.client.models import Message

if TYPE_CHECKING:
    from reactivex import Observable
    from reactivex.abc import DisposableBase, ObserverBase, SchedulerBase

BUFFER_RECORDS_MAX = 1_000


def observe(
    open_consumer: Callable[[], Consumer], *, buffer_records_max: int = BUFFER_RECORDS_MAX
) -> "Observable[Message]":
    """A cold observable: each subscription opens a consumer of its own, and closes it.

    `on_next` runs in a thread of the subscription, one record at a time; a record is done, and may
    be committed, when it returns. An observer that hands on to another thread bounds
    its own queue.
    """
    try:
        import reactivex
        from reactivex.disposable import Disposable
    except ImportError as problem:
        raise NotSupported(
            "reactive streams need reactivex: pip install millstream[reactive]"
        ) from problem
    if buffer_records_max < 1:
        raise Refused("the buffer of an observable holds at least 1 record")

    def subscribe(
        observer: "ObserverBase[Message]", scheduler: "SchedulerBase | None" = None
    ) -> "DisposableBase":
        flow = Flow(open_consumer(), observer, buffer_records_max)
        flow.start()
        return Disposable(flow.stop)

    return reactivex.create(subscribe)


class Flow:
    """One subscription: a thread that reads, a thread that observes, a buffer between them."""

    # Any: an observer has on_next, on_error and on_completed.
    def __init__(self, consumer: Consumer, observer: Any, buffer_records_max: int) -> None:
        self._consumer = consumer
        self._observer = observer
        self._buffer_records_max = buffer_records_max
        self._buffer: deque[Message] = deque()
        # A consumer belongs to one thread: what was observed goes back to the one that reads.
        self._observed: deque[Message] = deque()
        self._changed = threading.Condition()
        self.is_stopped = False
        self._is_read_out = False
        self._problem: BaseException | None = None
        self.is_paused = False
        self._observing_since: float | None = None
        self._reader = threading.Thread(target=self._read, name="millstream-reader", daemon=True)
        self._teller = threading.Thread(target=self._tell, name="millstream-teller", daemon=True)

    @property
    def buffered_count(self) -> int:
        return len(self._buffer)

    def start(self) -> None:
        self._reader.start()
        self._teller.start()

    def stop(self) -> None:
        """End both threads, and wait for them unless one of them asks."""
        with self._changed:
            self.is_stopped = True
            self._changed.notify_all()
        for thread in (self._reader, self._teller):
            if thread is not threading.current_thread():
                thread.join()

    @property
    def _has_room(self) -> bool:
        return len(self._buffer) <= self._buffer_records_max // 2

    def _read(self) -> None:
        try:
            while not self.is_stopped:
                self._mark_observed()
                self._balance()
                self._read_one()
        # The observer gets every error that ends the reading.
        except Exception as problem:
            self._problem = problem
        finally:
            with self._changed:
                self._is_read_out = True
                self._changed.notify_all()

    @property
    def _is_hanging(self) -> bool:
        """Whether the observer has had one record for longer than a member may be silent."""
        since = self._observing_since
        return since is not None and monotonic() - since > self._consumer.poll_interval_s

    def _read_one(self) -> None:
        if self._is_hanging:
            with self._changed:
                self._changed.wait(POLL_S)
            return
        if self.is_paused:
            self._consumer.fetch(0)  # Keeps the membership.
            if self._consumer.has_fetched:  # Of a partition that came meanwhile.
                self._consumer.pause()
            with self._changed:
                self._changed.wait_for(lambda: self.is_stopped or self._has_room, POLL_S)
            return
        message = self._consumer.pop(is_done_later=True)
        if message is None:
            self._consumer.fetch(POLL_S)
            return
        with self._changed:
            self._buffer.append(message)
            self._changed.notify_all()

    def _mark_observed(self) -> None:
        while self._observed:
            message = self._observed.popleft()
            self._consumer.mark(message.at, message.offset)

    def _balance(self) -> None:
        """Pause at the brim, resume at half: not at every record."""
        count = len(self._buffer)
        if not self.is_paused and count >= self._buffer_records_max:
            self._consumer.pause()
            self.is_paused = True
        elif self.is_paused and self._has_room:
            self._consumer.resume()
            self.is_paused = False

    def _tell(self) -> None:
        try:
            while (message := self._next()) is not None:
                self._observing_since = monotonic()
                self._observer.on_next(message)
                self._observing_since = None
                self._observed.append(message)
        except Exception as problem:
            self._problem = problem
        self._observing_since = None
        with self._changed:
            self.is_stopped = True
            self._changed.notify_all()
        self._reader.join()
        try:
            self._mark_observed()
            self._consumer.close()
        except Exception as problem:
            self._problem = self._problem or problem
        if self._problem is not None:
            self._observer.on_error(self._problem)

    def _next(self) -> Message | None:
        with self._changed:
            while not self._buffer and not self.is_stopped and not self._is_read_out:
                self._changed.wait()
            # Records that were read before a problem are observed before it.
            message = None if self.is_stopped or not self._buffer else self._buffer.popleft()
            self._changed.notify_all()
            return message
