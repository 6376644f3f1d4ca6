"""Sending many records: batched, in order, with a future for each.

Owns a librdkafka producer, the thread that hears its reports, and the bounded buffer between the
caller and the broker. A full buffer makes `send` wait: that is the back-pressure. A record that did
not arrive is never silent: its future fails, and `flush` raises for futures not looked at.
"""

import logging
import threading
import weakref
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from time import monotonic, time
from typing import TYPE_CHECKING, Any

from millstream.client import records
from millstream.client._librdkafka import shapes
from millstream.client._librdkafka.closing import Closing
from millstream.client._librdkafka.link import Link, Settings
from millstream.client.errors import (
    ClientError,
    Closed,
    Refused,
    TimedOut,
    Undelivered,
    unreachable,
    unsent,
)
from millstream.client.extensions.stalls import Stalls
from millstream.client.models import Headers, RecordMetadata
from millstream.client.serde import Serdes

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from confluent_kafka import Message as Raw
    from confluent_kafka import Producer as Handle

BUFFER_RECORDS_MAX = 100_000
BUFFER_BYTES_MAX = 64 * 2**20
LINGER_MS = 5
FAILURES_KEPT_MAX = 100
POLL_S = 0.1
FLUSH_STEP_S = 1.0  # Between two steps Ctrl-C is heard.
# librdkafka reports a record a moment after its time is over.
FATE_MARGIN_S = 2.0
LISTEN_S = 0.02  # A producer that closes waits for its listener: this long at most.

log = logging.getLogger("millstream.client")


class Delivery(Future[RecordMetadata]):
    """The result of one record. Remembers whether the program asked for it.

    Cancelling it cancels the waiting, not the record, which is on its way.
    """

    is_seen = False

    def result(self, timeout: float | None = None) -> RecordMetadata:
        self.is_seen = True
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self.is_seen = True
        return super().exception(timeout)


class Producer(Closing):
    """`client.producer()`. Threads may share it. Use it with `with`, or close it."""

    def __init__(
        self,
        link: Link,
        serdes: Serdes,
        settings: Settings,
        *,
        buffer_records_max: int = BUFFER_RECORDS_MAX,
        buffer_bytes_max: int = BUFFER_BYTES_MAX,
    ) -> None:
        from confluent_kafka import Producer as KafkaProducer

        if buffer_records_max < 1 or buffer_bytes_max < 1024:
            raise Refused("a producer's buffer holds at least 1 record and 1024 bytes")
        defaults: Settings = {
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": LINGER_MS,
            "message.timeout.ms": int(link.delivery_timeout_s * 1000),
            "partitioner": "murmur2_random",  # As Java's: a key is in one place for all clients.
            "queue.buffering.max.messages": buffer_records_max,
            "queue.buffering.max.kbytes": buffer_bytes_max // 1024,
        }
        self._link = link
        self._serdes = serdes
        config = link.config(defaults, settings)
        self._delivery_limit_s = _delivery_limit_s(config)
        self._handle: Handle = link.open(KafkaProducer, config)
        self._failed: list[tuple[Delivery, ClientError]] = []
        self._failed_count = 0
        self.is_broken = False
        self._is_closed = threading.Event()
        self._listener = threading.Thread(
            target=_listen, args=(self._handle, self._is_closed), name="millstream-reports"
        )
        # A program that ends without closing must not hang on the thread.
        self._listener.daemon = True
        self._listener.start()
        # One that was dropped unclosed takes its thread along.
        weakref.finalize(self, self._is_closed.set)

    # Any: keys and values are of the serde's type.
    def send(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp: datetime | int | None = None,
        delay: records.Span | datetime | None = None,
        ttl: records.Span | None = None,
        message_id: str | None = None,
    ) -> Delivery:
        """Put a record in the buffer, waiting for room; the future knows when it arrived."""
        delivery = Delivery()
        record = self._record(
            delivery,
            topic,
            value,
            key=key,
            headers=headers,
            partition=partition,
            timestamp=timestamp,
            delay=delay,
            ttl=ttl,
            message_id=message_id,
        )
        deadline = monotonic() + self._delivery_limit_s
        stalls = Stalls(self._link.explain_stall)
        while not self._put(topic, record):
            if monotonic() > deadline:
                raise self._late(f"the buffer of {self.buffered_count} records stays full")
            _warn(stalls.step(self.buffered_count))
            self._is_closed.wait(POLL_S / 10)
        return delivery

    def try_send(self, topic: str, value: Any = None, **record: Any) -> Delivery | None:
        """As `send`, but None instead of waiting if the buffer is full."""
        delivery = Delivery()
        is_in = self._put(topic, self._record(delivery, topic, value, **record))
        return delivery if is_in else None

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait for the results of all records sent so far; raise for failures not looked at.

        Without `timeout_s` it waits as long as records may take, see `delivery_timeout_s`.
        """
        limit_s = self._delivery_limit_s if timeout_s is None else timeout_s
        deadline = monotonic() + limit_s
        stalls = Stalls(self._link.explain_stall)
        while waiting_count := self._flush_step(deadline):
            _warn(stalls.step(waiting_count))
            if monotonic() >= deadline:
                raise self._late(f"{waiting_count} records have not arrived in {limit_s:g} s")
        self._raise_failures()

    def close(self) -> None:
        """Flush and stop. The futures of records that are not delivered in time fail."""
        if self._is_closed.is_set():
            return
        try:
            self.flush()
        finally:
            self._stop()

    def give_up(self) -> None:
        """Drop the buffered records; their futures fail."""
        self._handle.purge()

    def forget_failures(self) -> None:
        """For transactions: their end says whether their records arrived."""
        self._failed, self._failed_count = [], 0

    @property
    def buffered_count(self) -> int:
        """Records that wait for the broker or for their report."""
        return len(self._handle)

    # The arguments of librdkafka's produce, as they are.
    def _record(
        self,
        delivery: Delivery,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp: datetime | int | None = None,
        delay: records.Span | datetime | None = None,
        ttl: records.Span | None = None,
        message_id: str | None = None,
    ) -> dict[str, Any]:
        key_bytes, value_bytes = self._serdes.encode(topic, key, value)
        asked = records.queue_headers(delay=delay, ttl=ttl, message_id=message_id)
        named = records.header_list(headers) + asked
        feature = records.asks(named)
        if feature is not None and not self._link.has_queues():
            raise records.unserved(feature, self._link.address)
        return {
            "value": value_bytes,
            "key": key_bytes,
            "headers": named,
            "partition": -1 if partition is None else partition,
            "timestamp": records.timestamp_ms(timestamp),
            "on_delivery": partial(
                self._delivered,
                delivery,
                asked=feature,
                is_delayed=records.is_delayed(named, now_ms=int(time() * 1000)),
            ),
        }

    def _put(self, topic: str, record: dict[str, Any]) -> bool:
        """Put a record in the buffer, and say whether there was room."""
        if self._is_closed.is_set():
            raise Closed("the producer is closed")
        try:
            self._handle.produce(topic, **record)
        except BufferError:
            return False
        except Exception as problem:
            raise self._link.failure(problem, f"send to {topic!r}") from problem
        return True

    def _late(self, late: str) -> ClientError:
        if self._link.down_reason:
            return unreachable(self._link.address, "send", f"{late}; {self._link.down_reason}")
        reason = self._link.explain_stall()
        return TimedOut(f"cannot send: {reason or late}.", retriable=True)

    def _delivered(
        self,
        delivery: Delivery,
        error: "KafkaError | None",
        raw: "Raw",
        *,
        asked: str | None,
        is_delayed: bool,
    ) -> None:
        # On librdkafka's terms this must not raise: it would end the thread that polls.
        is_awaited = delivery.set_running_or_notify_cancel()
        if error is None:
            self._link.reached()
            # librdkafka counts on from the first of a batch; a delayed record has no offset yet.
            placed = shapes.metadata(raw)
            if is_awaited:
                delivery.set_result(replace(placed, offset=-1) if is_delayed else placed)
            return
        self.is_broken = self.is_broken or error.fatal()
        topic = raw.topic() or ""
        problem = unsent(error, topic, raw.partition())
        problem = problem or self._link.error(error, f"send to {topic!r}")
        if asked is not None and error.name() == "INVALID_RECORD":
            problem = records.refused(asked, str(problem))
        self._failed_count += 1
        if len(self._failed) < FAILURES_KEPT_MAX:
            self._failed.append((delivery, problem))
        if is_awaited:
            delivery.set_exception(problem)

    def _raise_failures(self) -> None:
        failed, self._failed = self._failed, []
        count, self._failed_count = self._failed_count, 0
        unseen = [problem for delivery, problem in failed if not delivery.is_seen]
        unseen_count = count - (len(failed) - len(unseen))
        if unseen_count:
            first = f" The first: {unseen[0]}" if unseen else ""
            raise Undelivered(f"{unseen_count} records did not arrive.{first}", unseen)

    def _flush_step(self, deadline: float) -> int:
        """Wait a step for reports; return how many records have none yet."""
        step_s = max(0.0, min(FLUSH_STEP_S, deadline - monotonic()))
        try:
            return self._handle.flush(step_s)
        except Exception as problem:
            raise self._link.failure(problem, "send") from problem

    def _stop(self) -> None:
        from confluent_kafka import KafkaException

        self._is_closed.set()
        if len(self._handle):
            self._handle.purge()
            # A fatal error is raised by any call that serves reports. The records are given up.
            with suppress(KafkaException):
                self._handle.flush(POLL_S)
        if threading.current_thread() is not self._listener:
            self._listener.join()


def _delivery_limit_s(config: Settings) -> float:
    """How long a record may take, and a moment more. librdkafka has two names for the setting."""
    name = "delivery.timeout.ms" if "delivery.timeout.ms" in config else "message.timeout.ms"
    limit_ms = float(config[name])
    return limit_ms / 1000 + FATE_MARGIN_S if limit_ms else threading.TIMEOUT_MAX


def _listen(handle: "Handle", is_closed: threading.Event) -> None:
    from confluent_kafka import KafkaException

    # A function, not a method: the thread must not keep its producer alive.
    while not is_closed.is_set():
        try:
            handle.poll(LISTEN_S)
        except KafkaException:
            # A fatal error is raised here as well; its record or transaction reports it.
            is_closed.wait(POLL_S)
        except Exception:
            # Every later report comes through this thread: no report may end it.
            log.exception("a report of a record failed")


def _warn(reason: str) -> None:
    if reason:
        log.warning("records wait: %s", reason)
