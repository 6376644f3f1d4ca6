"""Commits and seeks in librdkafka, retried until they can be done.

Waits out errors that pass, a rebalance or a fetcher that has not begun; raises all others.
"""

from collections.abc import Callable, Container
from time import monotonic, sleep
from typing import TYPE_CHECKING

from millstream.client._librdkafka import shapes
from millstream.client._librdkafka.link import Link
from millstream.client.errors import Busy, Fenced, Refused
from millstream.client.models import TopicPartition

if TYPE_CHECKING:
    from confluent_kafka import Consumer as Handle
    from confluent_kafka import TopicPartition as KafkaPartition

RETRY_S = 0.1

Goals = dict[TopicPartition, int]


def to_kafka(goals: Goals) -> "list[KafkaPartition]":
    from confluent_kafka import TopicPartition as KafkaPartition

    return [KafkaPartition(at.topic, at.partition, offset) for at, offset in goals.items()]


def commit(handle: "Handle", link: Link, goals: Goals, *, group: str | None) -> None:
    from confluent_kafka import KafkaException

    deadline = monotonic() + link.timeout_s
    while True:
        try:
            handle.commit(offsets=to_kafka(goals), asynchronous=False)
            return
        except KafkaException as problem:
            typed = link.failure(problem, f"commit for group {group!r}")
            is_final = isinstance(typed, Fenced | Busy) or not typed.retriable
            if is_final or monotonic() > deadline:
                raise typed from problem
            sleep(RETRY_S)


def seek(
    handle: "Handle",
    link: Link,
    goals: Goals,
    *,
    assigned: Callable[[], Container[TopicPartition]],
    is_stored: bool,
) -> None:
    """Go to each goal. With `is_stored` it is also what the next automatic commit says."""
    from confluent_kafka import KafkaException

    deadline = monotonic() + link.timeout_s
    for target in to_kafka(goals):
        while True:
            try:
                handle.seek(target)
                if is_stored:  # Going back must not leave a commit ahead of it.
                    handle.store_offsets(offsets=[target])
                break
            except KafkaException as problem:
                at = shapes.place(target)
                if at not in assigned() or monotonic() > deadline:
                    raise Refused(f"cannot seek in {at}: it is not assigned") from problem
                # Assigned, but its fetcher has not begun: that takes a round trip.
                sleep(RETRY_S)
