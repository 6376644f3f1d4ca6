"""The live part after the tour: sends orders and yields figures until it is stopped.

Owns the pace. One loop does it all in turns: sends the orders that are due, reads as a member of a
group, and asks the broker once a second for the ends and the lags, as an operator would.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from millstream.client import Client, Consumer, NotFound, Producer, TopicPartition
from millstream.demo import orders
from millstream.demo.events import Figures, GoesOn, GroupFigures, TopicFigures
from millstream.demo.pipeline import FLOWS, Pipeline

GROUP = "billing"
ORDERS_PER_SECOND = 100
TICK_SECONDS = 0.1
LOOK_SECONDS = 1.0
LOOKS_KEPT = 10  # A rate is that of so many looks: Spark writes in bursts.
READ_RECORDS_MAX = 1_000  # In one turn.


def go_on(
    client: Client,
    first_number: int,
    is_enough: Callable[[], bool],
    *,
    console: str,
    pipeline: Pipeline | None,
) -> Iterator[GoesOn | Figures]:
    yield GoesOn(
        address=client.address,
        console=console,
        orders_per_second=ORDERS_PER_SECOND,
        has_spark=pipeline is not None,
    )
    watch = _Watch(client, has_spark=pipeline is not None)
    started = look_at = time.monotonic()
    sent = 0
    with (
        client.producer() as producer,
        client.consumer(orders.ORDERS, group=GROUP, auto_commit_interval_ms=500) as reader,
    ):
        while not is_enough():
            now = time.monotonic()
            due = int((now - started) * ORDERS_PER_SECOND)
            _send(producer, range(first_number + sent, first_number + due))
            sent = due
            _read(reader)
            if now >= look_at:
                look_at = now + LOOK_SECONDS
                yield watch.look(now - started)
                if pipeline is not None and not pipeline.is_running:
                    pipeline.summary()  # Raises the reason: by itself it never ends well.
            time.sleep(TICK_SECONDS)


def _send(producer: Producer, numbers: range) -> None:
    now = datetime.now(UTC)
    for number in numbers:
        producer.send(orders.ORDERS, orders.order(number, now), key=str(number))


def _read(reader: Consumer) -> None:
    for _ in range(READ_RECORDS_MAX):
        if reader.poll() is None:
            return


class _Watch:
    """Reads figures from the broker; keeps the last ones to compute rates."""

    def __init__(self, client: Client, *, has_spark: bool) -> None:
        self._client = client
        self._groups = {GROUP: orders.ORDERS, **(FLOWS if has_spark else {})}
        topics = [orders.ORDERS]
        if has_spark:
            topics += [orders.VALID, orders.PUT_ASIDE, orders.BY_MINUTE]
        self._places = {
            topic: [
                TopicPartition(topic, partition.partition)
                for partition in client.admin.partitions(topic)
            ]
            for topic in topics
        }
        self._looks: deque[tuple[float, dict[str, int]]] = deque(maxlen=LOOKS_KEPT)

    def look(self, seconds: float) -> Figures:
        ends = self._client.admin.offsets(
            [at for some in self._places.values() for at in some], "latest"
        )
        totals = {
            topic: sum(ends[place] for place in places) for topic, places in self._places.items()
        }
        self._looks.append((seconds, totals))
        earlier, then = self._looks[0]
        passed = max(seconds - earlier, TICK_SECONDS)
        return Figures(
            seconds=seconds,
            topics=tuple(
                TopicFigures(topic=topic, offsets=total, per_second=(total - then[topic]) / passed)
                for topic, total in totals.items()
            ),
            groups=tuple(
                GroupFigures(group=group, topic=topic, lag=self._lag(group))
                for group, topic in self._groups.items()
            ),
        )

    def _lag(self, group: str) -> int | None:
        try:
            return sum(lag.records for lag in self._client.admin.group_lag(group))
        except NotFound:
            return None
