"""Consumers as observables: bounded, paused when the subscriber is slow, closed when disposed."""

import threading
import time
from typing import Any

import pytest
from reactivex import operators

from millstream.client import BadData, Client, Message, Refused, observe
from millstream.client.reactive import Flow
from tests.client.conftest import MEMBER, TIMEOUT_S


def fill(client: Client, topic: str, count: int) -> None:
    with client.producer() as producer:
        for n in range(count):
            producer.send(topic, str(n), partition=0)


def test_records_flow_through_operators(client: Client, topic: str, group: str) -> None:
    fill(client, topic, 20)
    stream = observe(lambda: client.consumer(topic, group=group, **MEMBER)).pipe(
        operators.map(lambda message: int(message.value)),  # type: ignore[attr-defined]
        operators.filter(lambda n: n % 2 == 0),  # type: ignore[operator]
        operators.take(5),
        operators.to_list(),
    )

    assert stream.run() == [0, 2, 4, 6, 8]


class Slow:
    """An observer that takes one record at a time, when it is allowed to."""

    def __init__(self) -> None:
        self.allowed = threading.Semaphore(0)
        self.seen: list[int] = []
        self.problem: BaseException | None = None
        self.ended = threading.Event()

    def on_next(self, message: Message) -> None:
        self.allowed.acquire()
        self.seen.append(int(message.value))

    def on_error(self, problem: BaseException) -> None:
        self.problem = problem
        self.ended.set()

    def on_completed(self) -> None:
        self.ended.set()


def wait_for(condition: Any) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)


def test_an_observer_that_is_slow_pauses_the_partitions(client: Client, topic: str) -> None:
    fill(client, topic, 500)
    observer = Slow()
    flow = Flow(client.consumer(topic), observer, 10)
    flow.start()

    wait_for(lambda: flow.is_paused)
    held_count = flow.buffered_count
    observer.allowed.release(500)
    wait_for(lambda: len(observer.seen) == 500)
    flow.stop()

    assert held_count <= 10
    assert observer.seen == list(range(500))


def test_what_was_not_observed_is_not_committed(client: Client, topic: str, group: str) -> None:
    fill(client, topic, 50)
    observer = Slow()
    flow = Flow(client.consumer(topic, group=group, **MEMBER), observer, 10)
    flow.start()
    observer.allowed.release(4)
    wait_for(lambda: len(observer.seen) == 4)

    stopping = threading.Thread(target=flow.stop)
    stopping.start()
    wait_for(lambda: flow.is_stopped)
    observer.allowed.release()  # The one that it was about to take.
    stopping.join()

    assert list(client.admin.committed(group).values()) == [5]


def test_a_problem_of_reading_comes_after_what_was_read(client: Client, topic: str) -> None:
    client.set_serde("json")
    fill_json = client.producer(value_serde="bytes")
    for value in (b"1", b"2", b"{"):
        fill_json.send(topic, value, partition=0)
    fill_json.close()
    observer = Slow()
    observer.allowed.release(10)

    observe(lambda: client.consumer(topic)).subscribe(
        on_next=observer.on_next, on_error=observer.on_error
    )

    assert observer.ended.wait(TIMEOUT_S)
    assert isinstance(observer.problem, BadData)
    assert observer.seen == [1, 2]


def test_a_buffer_for_nothing_is_refused(client: Client, topic: str) -> None:
    with pytest.raises(Refused):
        observe(lambda: client.consumer(topic), buffer_records_max=0)
