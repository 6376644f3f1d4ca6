"""Load of one kind and size, put on a broker through its Kafka listener."""

import itertools
import resource
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.kafka.comparison import percentile
from benchmarks.kafka.peers import Server

PARTITIONS_PER_TOPIC = 3
TOPICS_PER_REQUEST = 200
ANSWER_SECONDS_MAX = 120.0
# Records of a probe: one at a time, each waits for its acknowledgement.
PROBE_COUNT, PROBE_WARM_COUNT = 500, 50
RECORD_BYTES = 1024
DELAY_MS = 24 * 3600 * 1000
DESCRIPTORS_RESERVED = 200


class LoadFailed(Exception):
    """The broker did not carry the load; no figure comes of it."""


def create_topics(server: Server, partition_count: int) -> float:
    """Create topics of three partitions, 200 in a request; seconds until the last one is usable."""
    admin = AdminClient({"bootstrap.servers": server.address})
    topics = iter(_topics(partition_count))
    started = time.perf_counter()
    while chunk := list(itertools.islice(topics, TOPICS_PER_REQUEST)):
        for done in admin.create_topics(chunk, request_timeout=ANSWER_SECONDS_MAX).values():
            done.result(ANSWER_SECONDS_MAX)
    produce_first(server, last_topic(partition_count))
    return time.perf_counter() - started


def fill_topics(server: Server, partition_count: int) -> None:
    """Write one record to each partition: an empty one has no files."""
    settings = {"bootstrap.servers": server.address, "acks": "all", "linger.ms": 5}
    producer = Producer(settings)
    for topic in _topics(partition_count):
        for partition in range(topic.num_partitions):
            _produce_patiently(producer, topic.topic, b"x" * 100, partition=partition)
    if producer.flush(ANSWER_SECONDS_MAX):
        raise LoadFailed(f"{partition_count} partitions did not get a record each")


def last_topic(partition_count: int) -> str:
    """Return the name of the topic that `create_topics` creates last."""
    return _name(partition_count // PARTITIONS_PER_TOPIC - 1)


def _topics(partition_count: int) -> list[NewTopic]:
    count, more = divmod(partition_count, PARTITIONS_PER_TOPIC)
    topics = [NewTopic(_name(number), PARTITIONS_PER_TOPIC, 1) for number in range(count - 1)]
    return [*topics, NewTopic(_name(count - 1), PARTITIONS_PER_TOPIC + more, 1)]


def _name(number: int) -> str:
    return f"growth-{number:05}"


def create_topic(server: Server, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": server.address})
    for done in admin.create_topics([NewTopic(name, partitions, 1)]).values():
        done.result(ANSWER_SECONDS_MAX)
    produce_first(server, name)


def produce_first(server: Server, topic: str) -> None:
    """Write one record with a producer of its own."""
    producer = Producer({"bootstrap.servers": server.address, "acks": "all", "linger.ms": 0})
    produce_and_wait(producer, topic, b"first")


def produce_and_wait(producer: Producer, topic: str, value: bytes) -> None:
    errors: list[object] = []
    producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
    if producer.flush(ANSWER_SECONDS_MAX) or errors != [None]:
        raise LoadFailed(f"a record for {topic} was not acknowledged: {list(map(str, errors))}")


def probe(server: Server, topic: str = "probe") -> dict[str, float]:
    """p50 and p99 of a producer that writes one small record and waits, in milliseconds."""
    producer = Producer({"bootstrap.servers": server.address, "acks": "all", "linger.ms": 0})
    latencies = []
    for _ in range(PROBE_COUNT):
        started = time.perf_counter()
        produce_and_wait(producer, topic, b"x" * 100)
        latencies.append(1000 * (time.perf_counter() - started))
    ordered = sorted(latencies[PROBE_WARM_COUNT:])
    return {"p50_ms": percentile(ordered, 0.5), "p99_ms": percentile(ordered, 0.99)}


def fill(server: Server, topic: str, byte_count: int) -> None:
    """Write about `byte_count` bytes of incompressible records, with acks=all."""
    producer = Producer(
        {"bootstrap.servers": server.address, "acks": "all", "queue.buffering.max.kbytes": 256_000}
    )
    errors: list[object] = []

    def delivered(error: object, _: object) -> None:
        if error is not None:
            errors.append(error)

    value = bytes(RECORD_BYTES)
    for _ in range(byte_count // RECORD_BYTES):
        _produce_patiently(producer, topic, value, on_delivery=delivered)
    if producer.flush(ANSWER_SECONDS_MAX) or errors:
        raise LoadFailed(f"{topic} was not filled: {errors[:1]}")


def delay(server: Server, topic: str, count: int) -> None:
    """Write records that are due tomorrow. Only Millstream has them."""
    producer = Producer({"bootstrap.servers": server.address, "acks": "all"})
    header = {"ms-delay-ms": str(DELAY_MS)}
    for _ in range(count):
        _produce_patiently(producer, topic, b"later", headers=header)
    if producer.flush(ANSWER_SECONDS_MAX):
        raise LoadFailed("delayed records were not acknowledged")


def _produce_patiently(producer: Producer, topic: str, value: bytes, **options: Any) -> None:
    while True:
        try:
            producer.produce(topic, value, **options)
        except BufferError:
            producer.poll(0.1)
        else:
            producer.poll(0)
            return


def transact(server: Server, topic: str, count: int) -> None:
    """Write `count` short transactions of one record each."""
    producer = Producer({"bootstrap.servers": server.address, "transactional.id": "growth"})
    producer.init_transactions(ANSWER_SECONDS_MAX)
    for _ in range(count):
        producer.begin_transaction()
        producer.produce(topic, b"x" * 100)
        producer.commit_transaction(ANSWER_SECONDS_MAX)


@contextmanager
def group(server: Server, topic: str, member_count: int) -> Iterator[float]:
    """A group of consumers; yields the seconds until each member has its assignment."""
    settings = {
        "bootstrap.servers": server.address,
        "group.id": "growth",
        "session.timeout.ms": 45_000,
    }
    started = time.perf_counter()
    members: list[Consumer] = []
    with ExitStack() as stack:
        stack.callback(_close_all, members)
        for _ in range(member_count):
            member = Consumer(settings)
            member.subscribe([topic])
            members.append(member)
        until = started + ANSWER_SECONDS_MAX
        while not all(member.assignment() for member in members):
            if time.perf_counter() > until:
                raise LoadFailed(f"{member_count} members were not all assigned")
            for member in members:
                member.poll(0.002)
        yield time.perf_counter() - started


def _close_all(members: list[Consumer]) -> None:
    """Close all at once: a consumer that leaves begins a rebalance, and waits in it for members
    that are not polled any more until their `max.poll.interval.ms` is over."""
    if members:
        with ThreadPoolExecutor(len(members)) as pool:
            list(pool.map(Consumer.close, members))


def raise_descriptor_limit(count: int) -> None:
    """Let this process, and the broker that it starts, hold `count` connections."""
    needed = count + DESCRIPTORS_RESERVED
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < needed:
        limit = min(needed, hard) if hard != resource.RLIM_INFINITY else needed
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
