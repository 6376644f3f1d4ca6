"""How a sink writes is decided by what the broker can do, and never for less than was asked."""

from collections.abc import Iterator

import pytest

from millstream.kafka_client.cluster import cluster_for
from millstream.kafka_client.settings import ClientSettings
from millstream.kafka_wire.apis.discovery import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from millstream.kafka_wire.apis.millstream import (
    BeginBatchRequest,
    BeginBatchResponse,
    EndBatchRequest,
    EndBatchResponse,
)
from millstream.kafka_wire.apis.table import APIS, OWN_KEYS_FIRST, advertised
from millstream.kafka_wire.error_codes import ErrorCode
from millstream.spark.errors import BatchRefused, Fenced, InvalidOption
from millstream.spark.options.sink import SinkOptions, sink_options
from millstream.spark.write import atomic_batch
from millstream.spark.write.atomic_batch import WriteMode, Written
from millstream.spark.write.query_identity import checkpoint_identity
from millstream.spark.write.transactions import Opened
from tests.support.fake_broker import FakeBroker, fake_broker


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with fake_broker() as serving:
        serving.leads(("orders", 1))
        serving.answers[FindCoordinatorRequest] = lambda _: FindCoordinatorResponse(
            node_id=1, host=serving.address[0], port=serving.address[1]
        )
        serving.answers[BeginBatchRequest] = lambda _: BeginBatchResponse(
            term=4, series="query", last_committed_batch=2
        )
        yield serving
        for client in _used:
            cluster_for(client).forget()
        _used.clear()


_used: set[ClientSettings] = set()


def options(broker: FakeBroker, **more: str) -> SinkOptions:
    needed = {
        "kafka.bootstrap.servers": f"{broker.address[0]}:{broker.address[1]}",
        "topic": "orders",
        "checkpointLocation": "/c",
        "kafka.retry.backoff.ms": "1",
        "kafka.delivery.timeout.ms": "2000",
    }
    made = sink_options(needed | more, is_streaming=True)
    _used.add(made.client)
    return made


def be_kafka(broker: FakeBroker) -> None:
    """Serve what Apache Kafka serves, and no more."""

    def versions(request: ApiVersionsRequest) -> ApiVersionsResponse:
        return ApiVersionsResponse(api_keys=advertised(k for k in APIS if k < OWN_KEYS_FIRST))  # type: ignore[arg-type]

    broker.answers[ApiVersionsRequest] = versions


def written(**fields: object) -> Written:
    known: dict[str, object] = {
        "group": "spark:x",
        "term": 4,
        "series": "query",
        "member": None,
        "row_count": 0,
        "byte_count": 0,
    }
    return Written(**(known | fields))  # type: ignore[arg-type]


def test_a_broker_that_ends_batches_is_asked_to(broker: FakeBroker) -> None:
    plan = atomic_batch.open_batch(options(broker))

    assert plan.mode is WriteMode.BATCHES
    assert plan.opened == Opened(term=4, series="query", last_committed_batch=2)
    assert plan.group == f"spark:{checkpoint_identity('/c').name}"


def test_plain_kafka_is_refused_unless_tasks_may_commit_by_themselves(broker: FakeBroker) -> None:
    be_kafka(broker)

    with pytest.raises(InvalidOption, match="assumeDeterministicTasks"):
        atomic_batch.open_batch(options(broker))
    assert (
        atomic_batch.open_batch(options(broker, assumeDeterministicTasks="true")).mode
        is WriteMode.TASKS
    )


def test_at_least_once_is_the_same_everywhere(broker: FakeBroker) -> None:
    be_kafka(broker)

    plan = atomic_batch.open_batch(options(broker, deliveryGuarantee="at_least_once"))

    assert plan.mode is WriteMode.AT_LEAST_ONCE


def test_a_batch_without_tasks_is_nothing_to_end(broker: FakeBroker) -> None:
    atomic_batch.commit(options(broker), [], 0)
    atomic_batch.abort(options(broker), [None, None], 0)

    assert broker.seen == []


@pytest.mark.parametrize(
    ("code", "error"),
    [(ErrorCode.PRODUCER_FENCED, Fenced), (ErrorCode.INVALID_TXN_STATE, BatchRefused)],
)
def test_a_refused_commit_is_an_error_and_a_refused_abort_is_not(
    broker: FakeBroker, code: ErrorCode, error: type[Exception]
) -> None:
    broker.answers[EndBatchRequest] = lambda _: EndBatchResponse(
        error_code=code, error_message="no"
    )

    with pytest.raises(error):
        atomic_batch.commit(options(broker), [written()], 3)
    atomic_batch.abort(options(broker), [written(), None], 3)


def test_a_commit_is_asked_again_while_the_coordinator_loads(broker: FakeBroker) -> None:
    codes = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, ErrorCode.NONE]
    broker.answers[EndBatchRequest] = lambda _: EndBatchResponse(error_code=codes.pop(0))

    atomic_batch.commit(options(broker), [written()], 3)

    assert codes == []
