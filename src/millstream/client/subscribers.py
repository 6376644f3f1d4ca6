"""Functions that were registered for topics by `client.subscriber`, and the run of all of them.

Owns the threads of a run: one for each function, with a consumer of its own.
"""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from millstream.client.consumer import Consumer
from millstream.client.errors import Refused
from millstream.client.handling import Handled, RetryPolicy
from millstream.client.models import Message

STEP_S = 0.2
SUBSCRIBERS_MAX = 100  # Each has a thread and a consumer; more of them is a mistake.


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscriber:
    # Its result is ignored; the client for asyncio awaits an awaitable.
    function: Callable[[Message], Any]
    topics: str | tuple[str, ...]
    retry: RetryPolicy
    options: dict[str, Any]  # Those of `client.consumer`, the group among them.


def subscriber(
    function: Callable[[Message], Any],
    topics: str | Iterable[str],
    *,
    group: str,
    retry: RetryPolicy,
    options: dict[str, Any],
) -> Subscriber:
    names = topics if isinstance(topics, str) else tuple(topics)
    if not options.get("auto_commit", True):
        raise Refused("a subscriber commits by itself: leave auto_commit away")
    return Subscriber(
        function=function, topics=names, retry=retry, options=options | {"group": group}
    )


def check_count(subscribers: list[Subscriber]) -> None:
    if not subscribers:
        raise Refused("there is nothing to run: register functions with @client.subscriber(...)")
    if len(subscribers) > SUBSCRIBERS_MAX:
        raise Refused(f"{len(subscribers)} subscribers, at most {SUBSCRIBERS_MAX} in one client")


def total(results: Iterable[Handled]) -> Handled:
    done = given_up = 0
    for handled in results:
        done, given_up = done + handled.done, given_up + handled.given_up
    return Handled(done=done, given_up=given_up)


class Run:
    """One run: it ends when all functions have ended, one has failed, or `stop` was called."""

    def __init__(self, handle: Callable[[Consumer, Subscriber], Handled]) -> None:
        self._handle = handle
        self._consumers: list[Consumer] = []
        self._results: list[Handled] = []
        self._problems: list[BaseException] = []

    def run(self, opened: list[tuple[Subscriber, Consumer]]) -> Handled:
        """Handle until the end; raises the first failure when all have stopped."""
        self._consumers = [consumer for _, consumer in opened]
        threads = [
            threading.Thread(target=self._work, args=pair, name="millstream-subscriber")
            for pair in opened
        ]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                while thread.is_alive():  # In steps: Ctrl-C is heard between them.
                    thread.join(STEP_S)
        finally:
            self.stop()
            for thread in threads:
                thread.join()
        for problem in self._problems:
            raise problem
        return total(self._results)

    def stop(self) -> None:
        """End after the records in hand. Any thread may say so."""
        for consumer in self._consumers:
            consumer.stop()

    def _work(self, subscribed: Subscriber, consumer: Consumer) -> None:
        try:
            with consumer:
                self._results.append(self._handle(consumer, subscribed))
        # It is raised again by the thread that waits.
        except BaseException as problem:
            self._problems.append(problem)
            self.stop()
