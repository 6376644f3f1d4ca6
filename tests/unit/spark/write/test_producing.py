"""Batches reach their leaders once and in order, whatever becomes of connections and answers."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import pyarrow as pa
import pytest

from millstream.codec.batch import read_header
from millstream.codec.records import decode_all
from millstream.kafka_client.cluster import Cluster
from millstream.kafka_client.errors import Refused, UnknownPartition, Unreachable
from millstream.kafka_wire.apis.data import ProduceRequest, ProduceResponse
from millstream.kafka_wire.error_codes import ErrorCode
from millstream.model import Producer, TopicPartition
from millstream.spark.errors import Fenced
from millstream.spark.options.sink import SinkOptions, sink_options
from millstream.spark.write.encoding import encode_rows
from millstream.spark.write.partitioner import Columns, Share
from millstream.spark.write.producing import Pipeline
from tests.support.fake_broker import FakeBroker, HangUp, fake_broker

TOPIC = "orders"
ONE, TWO = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
PRODUCER = Producer(7, 1)


class Log:
    """Takes batches as a broker does: in sequence, each once. `trouble` comes before that."""

    def __init__(self, broker: FakeBroker) -> None:
        self.values: dict[TopicPartition, list[bytes | None]] = {}
        self.trouble: dict[int, ErrorCode | type[HangUp]] = {}
        self.loses_answers: set[int] = set()
        self.requests = count()
        self._next: dict[TopicPartition, int] = {}
        broker.answers[ProduceRequest] = self.answer

    def answer(self, request: ProduceRequest) -> ProduceResponse:
        number = next(self.requests)
        trouble = self.trouble.get(number)
        if trouble is HangUp:
            raise HangUp
        parts = ProduceResponse.Topic
        response = ProduceResponse(
            responses=[
                parts(
                    name=topic.name,
                    partition_responses=[
                        parts.Partition(
                            index=part.index,
                            error_code=trouble  # type: ignore[arg-type]
                            or self._take(TopicPartition(topic.name, part.index), part.records),
                            base_offset=0,
                        )
                        for part in topic.partition_data
                    ],
                )
                for topic in request.topic_data
            ]
        )
        if number in self.loses_answers:
            raise HangUp
        return response

    def _take(self, target: TopicPartition, data: object) -> ErrorCode:
        assert isinstance(data, bytes | memoryview)
        header = read_header(data)
        assert (header.producer_id, header.producer_epoch) == PRODUCER
        expected = self._next.get(target, 0)
        if header.base_sequence < expected:
            return ErrorCode.DUPLICATE_SEQUENCE_NUMBER
        if header.base_sequence > expected:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        self._next[target] = expected + header.count
        decoded = decode_all(data, decompressed_bytes_max=2**20)
        self.values.setdefault(target, []).extend(record.value for record in decoded)
        return ErrorCode.NONE


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with fake_broker() as serving:
        serving.leads((TOPIC, 2))
        yield serving


@pytest.fixture
def log(broker: FakeBroker) -> Log:
    return Log(broker)


def options(broker: FakeBroker, **more: str) -> SinkOptions:
    named = {name.replace("_", "."): text for name, text in more.items()}
    address = f"{broker.address[0]}:{broker.address[1]}"
    needed = {
        "kafka.bootstrap.servers": address,
        "kafka.batch.size": "300",
        "kafka.retry.backoff.ms": "1",
    }
    return sink_options(needed | named, is_streaming=False)


@contextmanager
def pipeline(broker: FakeBroker, **more: str) -> Iterator[Pipeline]:
    chosen = options(broker, **more)
    cluster = Cluster(chosen.client)
    pipe = Pipeline(cluster, chosen, PRODUCER)
    try:
        yield pipe
    finally:
        pipe.close()
        cluster.forget()


def values(start: int, end: int) -> list[bytes]:
    return [b"value-%04d" % number for number in range(start, end)]


def write(pipe: Pipeline, *parts: tuple[TopicPartition, list[bytes]]) -> None:
    rows = Columns(pa.array([v for _, some in parts for v in some]), None, None, None, None)
    shares = [Share(target, len(some)) for target, some in parts]
    pipe.send(encode_rows(rows, shares, bytes_max=300), shares)


def test_every_row_arrives_in_its_order(broker: FakeBroker, log: Log) -> None:
    with pipeline(broker) as pipe:
        for at in range(0, 100, 25):
            write(pipe, (ONE, values(at, at + 25)), (TWO, values(at, at + 5)))
        pipe.flush()

    assert log.values[ONE] == values(0, 100)
    assert log.values[TWO] == [v for at in range(0, 100, 25) for v in values(at, at + 5)]


@pytest.mark.parametrize("number", range(8))
@pytest.mark.parametrize(
    "trouble",
    [
        HangUp,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)
def test_trouble_at_any_request_loses_and_doubles_nothing(
    broker: FakeBroker, log: Log, number: int, trouble: ErrorCode | type[HangUp]
) -> None:
    log.trouble[number] = trouble
    with pipeline(broker) as pipe:
        for at in range(0, 60, 20):
            write(pipe, (ONE, values(at, at + 20)), (TWO, values(at, at + 20)))
        pipe.flush()

    assert log.values == {ONE: values(0, 60), TWO: values(0, 60)}


@pytest.mark.parametrize("number", range(8))
def test_a_lost_answer_doubles_nothing(broker: FakeBroker, log: Log, number: int) -> None:
    log.loses_answers = {number}
    with pipeline(broker) as pipe:
        for at in range(0, 60, 20):
            write(pipe, (ONE, values(at, at + 20)), (TWO, values(at, at + 20)))
        pipe.flush()

    assert log.values == {ONE: values(0, 60), TWO: values(0, 60)}


def test_no_more_requests_are_unanswered_than_allowed(broker: FakeBroker, log: Log) -> None:
    with pipeline(broker, kafka_max_in_flight_requests_per_connection="2") as pipe:
        write(pipe, (ONE, values(0, 200)))
        unanswered_count = max(len(queue) for queue in pipe._unanswered.values())
        pipe.flush()

    assert unanswered_count == 2
    assert log.values[ONE] == values(0, 200)


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (ErrorCode.MESSAGE_TOO_LARGE, "set kafka.batch.size to less"),
        (ErrorCode.PRODUCER_FENCED, "taken over by another task"),
        (ErrorCode.INVALID_PRODUCER_EPOCH, "taken over by another task"),
        (ErrorCode.INVALID_TXN_STATE, "INVALID_TXN_STATE"),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "OUT_OF_ORDER_SEQUENCE_NUMBER"),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "TOPIC_AUTHORIZATION_FAILED"),
    ],
)
def test_what_asking_again_does_not_change_is_an_error(
    broker: FakeBroker, log: Log, code: ErrorCode, sentence: str
) -> None:
    log.trouble[0] = code
    with pipeline(broker) as pipe:
        write(pipe, (ONE, values(0, 3)))

        with pytest.raises((Refused, Fenced), match=sentence):
            pipe.flush()


def test_a_partition_that_is_not_there_is_an_error(broker: FakeBroker, log: Log) -> None:
    with pipeline(broker) as pipe, pytest.raises(UnknownPartition):
        write(pipe, (TopicPartition("nowhere", 0), values(0, 3)))


def test_patience_ends(broker: FakeBroker, log: Log) -> None:
    log.trouble = dict.fromkeys(range(1_000_000), ErrorCode.NOT_ENOUGH_REPLICAS)
    with pipeline(broker, kafka_delivery_timeout_ms="50") as pipe:
        write(pipe, (ONE, values(0, 3)))

        with pytest.raises(Unreachable, match=r"could not write to orders-0 for 0\.05 s"):
            pipe.flush()
