"""The client of everything that speaks Kafka: librdkafka, by way of confluent-kafka.

Settings are librdkafka's own except for the few named here, and the same for every broker. Values
are built and handed over in chunks (`produce_batch`), so that the broker and not Python's call
overhead bounds the rate.
"""

import threading
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer
from confluent_kafka import TopicPartition as Partition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.kafka.job import (
    Arrivals,
    Broken,
    Go,
    Job,
    Stopwatch,
    Values,
    deadline,
    ticks,
    work,
)

CHUNK = 1_000
QUIET = {"log_level": 0}
PRODUCER = {"linger.ms": 5}
# By default a consumer whose queue filled up asks no broker for anything for a whole second, and
# the faster the broker, the sooner it fills up.
CONSUMER = {"enable.auto.commit": False, "fetch.queue.backoff.ms": 1}
# Only for the time to the first ack: what a client waits between tries must not hide the broker.
START = {
    "reconnect.backoff.ms": 5,
    "reconnect.backoff.max.ms": 20,
    "retry.backoff.ms": 10,
    "topic.metadata.refresh.fast.interval.ms": 10,
}
ASK_SECONDS_MAX = 30


def produce(job: Job, go: Go) -> dict[str, object]:
    """Write `count` records as fast as they are taken; the clock stops at the last ack."""
    producer = _connected_producer(job)
    values = Values(job.size)
    until = deadline()
    go()
    watch = Stopwatch()
    for first in range(0, job.count, CHUNK):
        numbers = range(first, min(first + CHUNK, job.count))
        messages = [{"value": values.value(number)} for number in numbers]
        while producer.produce_batch(job.topic, messages) < len(messages):
            # The queue is full: what did not fit is marked, and goes first after a short wait.
            messages = [message for message in messages if message.pop("_error", None)]
            producer.poll(0.005)
            if time.monotonic() > until:
                raise Broken("the broker takes no more records")
    left = producer.flush(until - time.monotonic())
    result = watch.stop()
    if left:
        raise Broken(f"{left} records were not acknowledged")
    return result


def consume(job: Job, go: Go) -> dict[str, object]:
    """Read everything from the beginning; what was read is checked after the clock stopped."""
    consumer = _connected_consumer(job)
    batches: list[list[Message]] = []
    left = job.count
    until = deadline()
    go()
    watch = Stopwatch()
    _assign(consumer, job)
    while left > 0:
        batch = consumer.consume(min(10_000, left), timeout=0.5)
        batches.append(batch)
        left -= len(batch)
        if time.monotonic() > until:
            raise Broken(f"{left} of {job.count} records did not arrive")
    result = watch.stop()
    arrivals = Arrivals(job.count)
    for batch in batches:
        for message in batch:
            arrivals.add(_value(message))
    arrivals.check()
    consumer.close()
    _check_kept(job)
    return result


def send(job: Job, go: Go) -> dict[str, object]:
    """Write at a fixed rate; latency counts from when a record was due to its ack."""
    producer = _connected_producer(job)
    values = Values(job.size)
    latencies_us: list[int] = []
    acked = 0
    failures: list[str] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        nonlocal acked
        if error is not None:
            failures.append(str(error))
            return
        now_ns = time.monotonic_ns()
        acked += 1
        number, due_ns = arrivals.add(_value(message))
        if number >= job.warm_count:
            latencies_us.append((now_ns - due_ns) // 1000)

    arrivals = Arrivals(job.count)
    is_done = threading.Event()

    def serve_callbacks() -> None:
        while not is_done.is_set():
            producer.poll(0.1)

    until = deadline()
    go()
    server = threading.Thread(target=serve_callbacks)
    server.start()
    for due_ns, numbers in ticks(job, time.monotonic_ns()):
        if (early_ns := due_ns - time.monotonic_ns()) > 0:
            time.sleep(early_ns / 1e9)
        for number in numbers:
            producer.produce(job.topic, values.value(number, due_ns), on_delivery=on_delivery)
    while acked + len(failures) < job.count and time.monotonic() < until:
        time.sleep(0.01)
    is_done.set()
    server.join()
    if failures:
        raise Broken(f"{len(failures)} records failed, first: {failures[0]}")
    arrivals.check()
    return {"latencies_us": latencies_us}


def receive(job: Job, go: Go) -> dict[str, object]:
    """Read what `send` writes; latency counts from when a record was due to its arrival here."""
    _create_topic(job)
    consumer = _connected_consumer(job)
    _assign(consumer, job)
    arrivals = Arrivals(job.count)
    latencies_us: list[int] = []
    left = job.count
    until = deadline()
    go()
    while left > 0 and time.monotonic() < until:
        message = consumer.poll(0.5)
        if message is None:
            continue
        now_ns = time.monotonic_ns()
        number, due_ns = arrivals.add(_value(message))
        left -= 1
        if number >= job.warm_count:
            latencies_us.append((now_ns - due_ns) // 1000)
    arrivals.check()
    consumer.close()
    return {"latencies_us": latencies_us}


def create(job: Job, go: Go) -> dict[str, object]:
    """Make the topic for a client that cannot."""
    go()
    _create_topic(job)
    return {}


def delete(job: Job, go: Go) -> dict[str, object]:
    """Remove the topic of a client that cannot."""
    go()
    admin = AdminClient({"bootstrap.servers": job.address} | QUIET)  # type: ignore[arg-type]
    admin.delete_topics([job.topic])[job.topic].result(ASK_SECONDS_MAX)
    return {}


def check(job: Job, go: Go) -> dict[str, object]:
    """Prove that the topic holds what another client wrote."""
    go()
    _check_kept(job)
    return {}


def first_ack(job: Job, go: Go) -> dict[str, object]:
    """Write one record to a broker that is only about to start, and say when it was acked."""
    settings = {"bootstrap.servers": job.address, "acks": job.acks} | PRODUCER | QUIET | START
    producer = Producer(settings)
    acked_ns: list[int] = []

    def on_delivery(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            raise Broken(str(error))
        acked_ns.append(time.monotonic_ns())

    until = deadline()
    go()
    producer.produce(job.topic, Values(job.size).value(0), on_delivery=on_delivery)
    while not acked_ns and time.monotonic() < until:
        producer.poll(0.05)
    if not acked_ns:
        raise Broken("no ack")
    return {"acked_ns": acked_ns[0]}


def _connected_producer(job: Job) -> Producer:
    _create_topic(job)
    producer = Producer({"bootstrap.servers": job.address, "acks": job.acks} | PRODUCER | QUIET)
    producer.list_topics(job.topic, timeout=ASK_SECONDS_MAX)
    return producer


def _connected_consumer(job: Job) -> Consumer:
    settings = {"bootstrap.servers": job.address, "group.id": "bench"}
    consumer = Consumer(settings | CONSUMER | QUIET)
    consumer.list_topics(job.topic, timeout=ASK_SECONDS_MAX)
    return consumer


def _create_topic(job: Job) -> None:
    """Create the topic unless it exists, and wait until every partition has a leader."""
    admin = AdminClient({"bootstrap.servers": job.address} | QUIET)  # type: ignore[arg-type]
    known = admin.list_topics(timeout=ASK_SECONDS_MAX).topics
    if job.topic not in known:
        topic = NewTopic(job.topic, num_partitions=job.partitions, replication_factor=1)
        admin.create_topics([topic])[job.topic].result(ASK_SECONDS_MAX)
    until = time.monotonic() + ASK_SECONDS_MAX
    while True:
        known = admin.list_topics(job.topic, timeout=ASK_SECONDS_MAX).topics
        led = [
            partition for partition in known[job.topic].partitions.values() if partition.leader >= 0
        ]
        if len(led) == job.partitions:
            return
        if time.monotonic() > until:
            raise Broken(f"{len(led)} of {job.partitions} partitions have a leader")
        time.sleep(0.02)


def _assign(consumer: Consumer, job: Job) -> None:
    # No group: rebalances have delays of their own, which are not the subject here.
    partitions = range(job.partitions)
    consumer.assign([Partition(job.topic, number, OFFSET_BEGINNING) for number in partitions])


def _check_kept(job: Job) -> None:
    # A consumer of its own: behind another's long poll each question would wait half a second.
    consumer = _connected_consumer(job)
    kept = 0
    for number in range(job.partitions):
        partition = Partition(job.topic, number)
        low, high = consumer.get_watermark_offsets(partition, timeout=ASK_SECONDS_MAX)
        kept += high - low
    consumer.close()
    if kept != job.count:
        raise Broken(f"the topic holds {kept} records, {job.count} were written")


def _value(message: Message) -> bytes:
    error = message.error()
    if error is not None:
        raise Broken(str(error))
    value = message.value()
    assert isinstance(value, bytes)
    return value


if __name__ == "__main__":
    actions = (produce, consume, send, receive, create, check, delete, first_ack)
    work({action.__name__: action for action in actions})
