"""A broker that is killed while it resets offsets or redrives: what was answered is there, once."""

import threading
import time
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.http import HttpClient

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

KILLS = 3
RECORDS = 400
LETTERS = 300
WAIT_S_MAX = 150.0
DEAD = {
    "ms-dlq-topic": "orders",
    "ms-dlq-partition": "0",
    "ms-dlq-offset": "0",
    "ms-dlq-group": "billing",
    "ms-dlq-attempts": "3",
    "ms-dlq-reason": "max_retries",
    "ms-dlq-error": "no such customer",
}


def started(broker: BrokerProcess) -> HttpClient:
    broker.start()
    return HttpClient(broker.config.http_port, broker.host)


def wait_until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S_MAX
    while not is_true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def produce(ask: HttpClient, topic: str, records: list[dict[str, Any]]) -> None:
    ask.post("/v1/topics", {"name": topic, "partitions": 1})
    answer = ask.post(f"/v1/topics/{topic}/records", {"records": records})
    assert answer.status == 200, answer.text


class Resetting(threading.Thread):
    """Resets a group to one offset after the other, until the broker is gone."""

    def __init__(self, ask: HttpClient, first: int) -> None:
        super().__init__()
        self._ask = ask
        self.sent = first
        self.answered = first
        self.count = 0

    def run(self) -> None:
        try:
            while True:
                offset = (self.sent + 1) % RECORDS
                place = {"to": {"offset": offset}, "topics": ["orders"]}
                token = self._ask.post("/v1/groups/readers:plan", place).json["token"]
                self.sent = offset
                if self._ask.post("/v1/groups/readers:reset", {"token": token}).status != 200:
                    return
                self.answered = offset
                self.count += 1
        except (OSError, HTTPException, ValueError):
            return


def test_a_reset_that_was_answered_holds(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, LISTENERS="kafka,http")
    ask = started(broker)
    produce(ask, "orders", [{"value": str(at)} for at in range(RECORDS)])
    committed = 0
    try:
        for _ in range(KILLS):
            resetting = Resetting(ask, committed)
            resetting.start()
            wait_until(lambda: resetting.count >= 5)  # noqa: B023
            broker.kill()
            resetting.join()
            ask = started(broker)
            (offset,) = ask.get("/v1/groups/readers/offsets").json["items"]
            committed = offset["offset"]

            assert committed in {resetting.answered, resetting.sent}
    finally:
        broker.kill()


def test_letters_are_redriven_once_however_often_the_broker_dies(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, LISTENERS="kafka,http")
    ask = started(broker)
    try:
        ask.post("/v1/topics", {"name": "orders", "partitions": 1})
        letters = [{"value": f"letter {at}", "headers": DEAD} for at in range(LETTERS)]
        produce(ask, "orders.dlq", letters)
        for _ in range(KILLS):
            before = delivered(ask)
            assert ask.post("/v1/dead-letters/orders:redrive", {"rate": 200}).status == 202
            wait_until(lambda: delivered(ask) > before)  # noqa: B023
            broker.kill()
            ask = started(broker)
        # Asking again goes on: this one has no rate, and comes to its end.
        job = ask.post("/v1/dead-letters/orders:redrive", {}).json
        wait_until(lambda: ask.get(f"/v1/jobs/{job['id']}").json["state"] == "done")

        values = [each["value"]["text"] for each in page(ask, "orders")]
        assert len(values) == len(set(values)), "a letter was sent twice"
        assert set(values) == {f"letter {at}" for at in range(LETTERS)}
        assert ask.get("/v1/dead-letters/orders/stats").json["waiting"] == 0
    finally:
        broker.kill()


def delivered(ask: HttpClient) -> int:
    count: int = ask.get("/v1/topics/orders").json["records"]
    return count


def page(ask: HttpClient, topic: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = ask.get(f"/v1/topics/{topic}/records?limit=1000").json["items"]
    return items
