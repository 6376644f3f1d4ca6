"""The client finds leaders, speaks versions that both know, and does not give up too soon."""

import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias
from uuid import UUID

import pytest

from millstream.codec.encoding import encode_batch
from millstream.codec.records import Record
from millstream.kafka_client.answers import Aborted
from millstream.kafka_client.cluster import CLUSTERS_MAX, Cluster, cluster_for
from millstream.kafka_client.coordinator import Commits, commit, committed
from millstream.kafka_client.errors import (
    OutOfRange,
    Refused,
    TransientError,
    UnknownPartition,
    Unreachable,
)
from millstream.kafka_client.settings import ClientSettings, Credentials, Tls
from millstream.kafka_wire.apis.data import (
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from millstream.kafka_wire.apis.discovery import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)
from millstream.kafka_wire.apis.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from millstream.kafka_wire.apis.security import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from millstream.kafka_wire.apis.table import APIS
from millstream.kafka_wire.error_codes import ErrorCode
from millstream.model import Isolation, TopicPartition
from millstream.spark.errors import DataLoss
from millstream.spark.options.places import EARLIEST, LATEST
from millstream.spark.read.offset_ranges import OffsetRange
from millstream.spark.read.range_reader import RangeReader
from tests.support.fake_broker import FakeBroker, HangUp, fake_broker, metadata
from tests.unit.spark.schemas import ROW

Connect: TypeAlias = Callable[..., Cluster]
Reader: TypeAlias = Callable[..., RangeReader]

T0, T1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
NOT_LEADER = 6


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with fake_broker() as serving:
        serving.leads(("orders", 2))
        yield serving


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Make clients that are closed when the test is over."""
    made: list[Cluster] = []

    def make(*brokers: FakeBroker, **others: Any) -> Cluster:
        made.append(Cluster(settings_for(*brokers, **others)))
        return made[-1]

    yield make
    for cluster in made:
        cluster.forget()


@pytest.fixture
def reader(connect: Connect, broker: FakeBroker) -> Reader:
    def make(*, fails: bool = True, poll_ms_max: int = 5_000) -> RangeReader:
        return RangeReader(connect(broker), ROW, poll_ms_max=poll_ms_max, fails_on_data_loss=fails)

    return make


def settings_for(*brokers: FakeBroker, **others: Any) -> ClientSettings:  # Fields of any type.
    fields: dict[str, Any] = {"backoff_ms": 1, "patience_ms": 5_000, "fetch_wait_ms": 1, **others}
    return ClientSettings(bootstrap=tuple(b.address for b in brokers), **fields)


def offsets_answer(*codes_and_offsets: tuple[int, int]) -> ListOffsetsResponse:
    topic = ListOffsetsResponse.Topic
    return ListOffsetsResponse(
        topics=[
            topic(
                name="orders",
                partitions=[
                    topic.Partition(partition_index=index, error_code=code, offset=offset)
                    for index, (code, offset) in enumerate(codes_and_offsets)
                ],
            )
        ]
    )


def fetch_answer(records: bytes = b"", *, code: int = 0, **fields: Any) -> FetchResponse:
    topic = FetchResponse.Topic
    partition = topic.Partition(
        partition_index=0, error_code=code, high_watermark=9, records=[records], **fields
    )
    return FetchResponse(responses=[topic(topic="orders", partitions=[partition])])


def batch(base: int, count: int) -> bytes:
    return encode_batch([Record(base + i, 5, None, b"v") for i in range(count)], base_offset=base)


# -- finding one's way -----------------------------------------------------------------------------


def test_partitions_are_those_of_the_metadata(broker: FakeBroker, connect: Connect) -> None:
    cluster = connect(broker)

    assert cluster.partitions(["orders", "none"]) == [T0, T1]
    assert cluster.topics() == ["orders"]
    assert all(
        not request.allow_auto_topic_creation
        for _, request in broker.seen
        if isinstance(request, MetadataRequest)
    )


def test_the_highest_version_that_both_speak_is_spoken(
    broker: FakeBroker, connect: Connect
) -> None:
    old = [
        ApiVersionsResponse.ApiRange(api_key=key, min_version=0, max_version=APIS[key].first)
        for key in (1, 2, 3)
    ]
    broker.answers[ApiVersionsRequest] = lambda request: ApiVersionsResponse(api_keys=old)
    broker.answers[ListOffsetsRequest] = lambda request: offsets_answer((0, 5))

    assert connect(broker).offsets({T0: LATEST}) == {T0: 5}

    versions = {header.api_key: header.api_version for header, _ in broker.seen}
    assert versions == {18: APIS[18].last, 3: 0, 2: 1}


def test_a_broker_without_a_common_version_is_refused(broker: FakeBroker, connect: Connect) -> None:
    ancient = [ApiVersionsResponse.ApiRange(api_key=3, min_version=99, max_version=100)]
    broker.answers[ApiVersionsRequest] = lambda request: ApiVersionsResponse(api_keys=ancient)

    with pytest.raises(Refused, match="does not speak Metadata"):
        connect(broker).topics()


def test_the_second_broker_is_asked_when_the_first_is_down(
    broker: FakeBroker, connect: Connect
) -> None:
    with fake_broker() as other:
        other.stop()

        assert connect(other, broker).topics() == ["orders"]


def test_brokers_that_are_all_down_are_named(broker: FakeBroker, connect: Connect) -> None:
    broker.stop()

    with pytest.raises(Unreachable, match=rf"could not list topics .*:{broker.address[1]}"):
        connect(broker, patience_ms=50).topics()


def test_a_leader_that_moved_is_found_again(broker: FakeBroker, connect: Connect) -> None:
    with fake_broker(2) as other:
        leaders = {"orders": [1, 1]}

        def moved(request: ListOffsetsRequest) -> ListOffsetsResponse:
            leaders["orders"] = [2, 2]
            return offsets_answer((NOT_LEADER, -1))

        broker.answers[MetadataRequest] = lambda r: metadata(r, (broker, other), leaders)
        broker.answers[ListOffsetsRequest] = moved
        other.answers[ListOffsetsRequest] = lambda request: offsets_answer((0, 7))

        assert connect(broker).offsets({T0: LATEST}) == {T0: 7}


def test_each_leader_is_asked_for_its_own(broker: FakeBroker, connect: Connect) -> None:
    with fake_broker(2) as other:
        broker.answers[MetadataRequest] = lambda r: metadata(r, (broker, other), {"orders": [1, 2]})

        def answer(request: ListOffsetsRequest) -> ListOffsetsResponse:
            (index,) = (p.partition_index for p in request.topics[0].partitions)
            return offsets_answer((0, 10), (0, 20)) if index else offsets_answer((0, 10))

        for node in (broker, other):
            node.answers[ListOffsetsRequest] = answer

        assert connect(broker).offsets({T0: LATEST, T1: LATEST}) == {T0: 10, T1: 20}


def test_a_partition_that_is_gone_is_said_to_be_after_a_few_tries(
    broker: FakeBroker, connect: Connect
) -> None:
    with pytest.raises(UnknownPartition, match="no topic or partition none-0"):
        connect(broker).offsets({TopicPartition("none", 0): EARLIEST})


def test_a_connection_that_broke_is_made_again(broker: FakeBroker, connect: Connect) -> None:
    cluster = connect(broker)
    broker.answers[ListOffsetsRequest] = lambda request: offsets_answer((0, 7))
    cluster.offsets({T0: LATEST})

    broker.hang_up()

    assert cluster.offsets({T0: LATEST}) == {T0: 7}


def test_a_process_keeps_one_client(broker: FakeBroker) -> None:
    assert cluster_for(settings_for(broker)) is cluster_for(settings_for(broker))


def test_a_client_that_is_given_up_closes_its_connections(broker: FakeBroker) -> None:
    cluster_for.cache_clear()
    cluster = cluster_for(settings_for(broker))
    connection = cluster.any_broker()
    assert connection.is_idle
    del cluster

    for number in range(CLUSTERS_MAX):
        cluster_for(settings_for(broker, client_id=f"other-{number}"))

    assert not connection.is_idle  # Which an open one would be.
    cluster_for.cache_clear()


# -- records ---------------------------------------------------------------------------------------


def test_a_fetch_says_what_was_aborted_and_how_far_it_sees(
    broker: FakeBroker, connect: Connect
) -> None:
    aborted = FetchResponse.Topic.Partition.AbortedTransaction(producer_id=7, first_offset=3)
    broker.answers[FetchRequest] = lambda request: fetch_answer(
        batch(3, 2), aborted_transactions=[aborted]
    )

    fetched = connect(broker).fetch(T0, 3)

    assert (bytes(fetched.records), fetched.aborted) == (batch(3, 2), [Aborted(7, 3)])
    (request,) = [r for _, r in broker.seen if isinstance(r, FetchRequest)]
    assert request.isolation_level == Isolation.READ_COMMITTED.value
    assert [topic.topic for topic in request.topics] == ["orders"]


def test_an_offset_that_is_not_there_is_told_apart(broker: FakeBroker, connect: Connect) -> None:
    broker.answers[FetchRequest] = lambda request: fetch_answer(code=1)

    with pytest.raises(OutOfRange):
        connect(broker).begin_fetch(T0, 3)()


def test_the_next_piece_is_asked_for_before_the_last_one_is_taken(
    broker: FakeBroker, reader: Reader
) -> None:
    is_asked = threading.Event()

    def answer(request: FetchRequest) -> FetchResponse:
        offset = request.topics[0].partitions[0].fetch_offset
        if offset == 2:
            is_asked.set()
        return fetch_answer(batch(offset, 2))

    broker.answers[FetchRequest] = answer
    rows = reader().read(OffsetRange("orders", 0, 0, 4))

    assert next(rows).num_rows == 2
    assert is_asked.wait(timeout=30)
    assert [row["offset"] for part in rows for row in part.to_pylist()] == [2, 3]


def test_the_next_range_is_asked_for_before_the_rows_of_the_last_one_are_taken(
    broker: FakeBroker, reader: Reader
) -> None:
    is_asked = threading.Event()

    def answer(request: FetchRequest) -> FetchResponse:
        offset = request.topics[0].partitions[0].fetch_offset
        if offset == 70:
            is_asked.set()
        return fetch_answer(batch(offset, 2))

    broker.answers[FetchRequest] = answer
    rows = reader().read(
        OffsetRange("orders", 0, 0, 2),
        OffsetRange("orders", 0, 5, 5),
        OffsetRange("orders", 0, 70, 72),
    )

    assert next(rows).num_rows == 2
    assert is_asked.wait(timeout=30)
    assert [row["offset"] for part in rows for row in part.to_pylist()] == [70, 71]


def test_a_task_looks_its_topics_up_twice_however_many_ranges_it_has(
    broker: FakeBroker, connect: Connect, reader: Reader
) -> None:
    topic_id = UUID(int=7)

    def named(request: MetadataRequest) -> MetadataResponse:
        response = metadata(request, (broker,), {"orders": [broker.node_id]})
        response.topics[0].topic_id = topic_id
        return response

    broker.answers[MetadataRequest] = named
    broker.answers[FetchRequest] = lambda request: fetch_answer(
        batch(request.topics[0].partitions[0].fetch_offset, 2)
    )
    known = connect(broker).topic_ids(["orders"])["orders"]
    before = len(broker.seen)
    planned = [OffsetRange("orders", 0, start, start + 2, known) for start in (0, 10, 20)]

    assert sum(part.num_rows for part in reader().read(*planned)) == 6
    sent = [type(request) for _, request in broker.seen[before:]]
    assert sent == [ApiVersionsRequest, MetadataRequest, *[FetchRequest] * 3, MetadataRequest]

    topic_id = UUID(int=8)
    assert [*reader(fails=False).read(*planned)] == []
    with pytest.raises(DataLoss, match="was deleted and created anew meanwhile"):
        next(reader().read(*planned))


def offsets_read(range_reader: RangeReader, start: int, end: int) -> list[int]:
    offsets = OffsetRange("orders", 0, start, end)
    return [row["offset"] for part in range_reader.read(offsets) for row in part.to_pylist()]


def test_a_range_is_read_exactly(broker: FakeBroker, reader: Reader) -> None:
    broker.answers[FetchRequest] = lambda request: fetch_answer(batch(0, 10))

    assert offsets_read(reader(), 3, 6) == [3, 4, 5]


def test_a_fetch_that_breaks_off_is_asked_for_again(broker: FakeBroker, reader: Reader) -> None:
    tries = iter((HangUp(), fetch_answer(code=NOT_LEADER), fetch_answer(batch(0, 3))))

    def answer(request: FetchRequest) -> FetchResponse:
        item = next(tries)
        if isinstance(item, HangUp):
            raise item
        return item

    broker.answers[FetchRequest] = answer

    assert offsets_read(reader(), 0, 3) == [0, 1, 2]


def test_a_reader_that_was_given_up_leaves_the_client_usable(
    broker: FakeBroker, reader: Reader
) -> None:
    broker.answers[FetchRequest] = lambda request: fetch_answer(
        batch(request.topics[0].partitions[0].fetch_offset, 2)
    )
    range_reader = reader()
    rows = range_reader.read(OffsetRange("orders", 0, 0, 100))
    next(rows)
    rows.close()  # type: ignore[attr-defined]

    assert offsets_read(range_reader, 50, 52) == [50, 51]


def test_a_start_that_aged_out_fails_the_task_or_is_skipped(
    broker: FakeBroker, reader: Reader
) -> None:
    def answer(request: FetchRequest) -> FetchResponse:
        offset = request.topics[0].partitions[0].fetch_offset
        # The batch is older than the start of the log and reaches behind it.
        return fetch_answer(batch(3, 7)) if offset >= 5 else fetch_answer(code=1)

    broker.answers[FetchRequest] = answer
    broker.answers[ListOffsetsRequest] = lambda request: offsets_answer(
        (0, 5 if request.topics[0].partitions[0].timestamp == EARLIEST else 10)
    )

    with pytest.raises(DataLoss, match=r"orders-0 \[0, 8\) can't be read from offset 0 on"):
        offsets_read(reader(), 0, 8)
    assert offsets_read(reader(fails=False), 0, 8) == [5, 6, 7]


def test_a_log_that_shrank_fails_the_task_or_ends_it(broker: FakeBroker, reader: Reader) -> None:
    broker.answers[FetchRequest] = lambda request: fetch_answer(code=1)
    broker.answers[ListOffsetsRequest] = lambda request: offsets_answer((0, 2))

    with pytest.raises(DataLoss):
        offsets_read(reader(), 5, 8)
    assert offsets_read(reader(fails=False), 5, 8) == []


def test_a_topic_that_went_fails_the_task_or_ends_it(broker: FakeBroker, reader: Reader) -> None:
    broker.leads()

    with pytest.raises(DataLoss, match=r"orders-0 \[5, 8\) is gone"):
        offsets_read(reader(), 5, 8)
    assert offsets_read(reader(fails=False), 5, 8) == []


def test_records_that_do_not_come_are_not_waited_for_for_ever(
    broker: FakeBroker, reader: Reader
) -> None:
    broker.answers[FetchRequest] = lambda request: fetch_answer()

    with pytest.raises(Unreachable, match=r"pollTimeoutMs"):
        offsets_read(reader(poll_ms_max=30), 5, 8)


# -- groups and credentials ------------------------------------------------------------------------


def coordinate(broker: FakeBroker) -> None:
    host, port = broker.address
    broker.answers[FindCoordinatorRequest] = lambda request: FindCoordinatorResponse(
        node_id=1, host=host, port=port
    )


def test_offsets_are_committed_without_a_member(broker: FakeBroker, connect: Connect) -> None:
    coordinate(broker)
    broker.answers[OffsetCommitRequest] = lambda request: OffsetCommitResponse(topics=[])

    commit(connect(broker), "lag", {T0: 5, T1: 6})

    (request,) = [r for _, r in broker.seen if isinstance(r, OffsetCommitRequest)]
    assert (request.group_id, request.generation_id_or_member_epoch) == ("lag", -1)
    # By name: a later version would ask for ids, which this fake does not have.
    assert [topic.name for topic in request.topics] == ["orders"]
    assert [p.committed_offset for p in request.topics[0].partitions] == [5, 6]


def test_commits_do_not_wait_and_the_next_one_takes_the_answer(
    broker: FakeBroker, connect: Connect
) -> None:
    coordinate(broker)
    codes = iter([ErrorCode.NONE, ErrorCode.NOT_COORDINATOR, ErrorCode.NONE])
    broker.answers[OffsetCommitRequest] = lambda request: _commit_answer(next(codes))
    commits = Commits(connect(broker), "lag")

    commits.send({T0: 5})
    commits.send({T0: 6})
    with pytest.raises(TransientError, match="NOT_COORDINATOR"):
        commits.send({T0: 7})
    commits.send({T0: 7})
    commits.finish()
    commits.finish()

    requests = [r for _, r in broker.seen if isinstance(r, OffsetCommitRequest)]
    assert [r.topics[0].partitions[0].committed_offset for r in requests] == [5, 6, 7]


def _commit_answer(code: ErrorCode) -> OffsetCommitResponse:
    topic = OffsetCommitResponse.Topic
    part = topic.Partition(partition_index=0, error_code=code)
    return OffsetCommitResponse(topics=[topic(name="orders", partitions=[part])])


def test_committed_offsets_leave_out_what_was_never_committed(
    broker: FakeBroker, connect: Connect
) -> None:
    coordinate(broker)
    topic = OffsetFetchResponse.Topic
    broker.answers[OffsetFetchRequest] = lambda request: OffsetFetchResponse(
        topics=[
            topic(
                name="orders",
                partitions=[
                    topic.Partition(partition_index=0, committed_offset=5),
                    topic.Partition(partition_index=1, committed_offset=-1),
                ],
            )
        ]
    )

    assert committed(connect(broker), "g", [T0, T1]) == {T0: 5}


def test_a_user_and_a_password_are_shown(broker: FakeBroker, connect: Connect) -> None:
    broker.answers[SaslHandshakeRequest] = lambda request: SaslHandshakeResponse(mechanisms=[])
    broker.answers[SaslAuthenticateRequest] = lambda request: SaslAuthenticateResponse()
    credentials = Credentials(username="me", password="secret")

    assert connect(broker, credentials=credentials).topics() == ["orders"]

    (request,) = [r for _, r in broker.seen if isinstance(r, SaslAuthenticateRequest)]
    assert request.auth_bytes == b"\0me\0secret"


def test_a_refused_user_is_named_and_the_password_is_not(
    broker: FakeBroker, connect: Connect
) -> None:
    broker.answers[SaslHandshakeRequest] = lambda request: SaslHandshakeResponse(mechanisms=[])
    broker.answers[SaslAuthenticateRequest] = lambda request: SaslAuthenticateResponse(
        error_code=58
    )
    credentials = Credentials(username="me", password="secret")

    with pytest.raises(Refused, match="'me': SASL_AUTHENTICATION_FAILED") as problem:
        connect(broker, credentials=credentials).topics()
    assert "secret" not in str(problem.value)


# A certificate for 127.0.0.1 that signed itself, with its key, good for a hundred years.
CERTIFICATE = str(Path(__file__).parents[2] / "support" / "localhost.pem")


@pytest.fixture
def secured() -> Iterator[FakeBroker]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    context.load_verify_locations(CERTIFICATE)
    context.verify_mode = ssl.CERT_REQUIRED
    with fake_broker(tls=context) as serving:
        serving.leads(("orders", 1))
        yield serving


def test_both_sides_show_their_certificates(secured: FakeBroker, connect: Connect) -> None:
    tls = Tls(ca_file=CERTIFICATE, certificate_file=CERTIFICATE)

    assert connect(secured, tls=tls).topics() == ["orders"]


def test_a_broker_without_a_trusted_certificate_is_refused(
    secured: FakeBroker, connect: Connect
) -> None:
    with pytest.raises(Refused, match="is not trusted"):
        connect(secured, tls=Tls()).topics()
