"""Administration as Kafka clients ask for it: topics, partitions, placement, producer ids."""

from uuid import UUID

import pytest

from millstream.config import Config, Limits
from millstream.engine.gate import Everyone, Operation
from millstream.errors import NotLeader
from millstream.kafka_wire.apis.admin import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from millstream.kafka_wire.apis.transactions import InitProducerIdRequest, InitProducerIdResponse
from millstream.kafka_wire.error_codes import ErrorCode
from millstream.kafka_wire.schema import NO_ID
from millstream.metrics import SYNC_ROUNDS
from millstream.model import Acks, Session, TopicPartition
from millstream.server.node import Node
from millstream.settings import TopicSettings
from tests.support.nodes import ORDERS, SESSION, batch, running_node
from tests.support.virtual_loop import run
from tests.unit.protocols.kafka.asking import STRANGER, ask

NewTopic = CreateTopicsRequest.Topic
MORE = CreatePartitionsRequest.Topic


def new(
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    *,
    placed: dict[int, list[int]] | None = None,
    **configs: str | None,
) -> NewTopic:
    return NewTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[
            NewTopic.Assignment(partition_index=index, broker_ids=nodes)
            for index, nodes in (placed or {}).items()
        ],
        configs=[
            NewTopic.Config(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )


async def create(
    node: Node, *topics: NewTopic, version: int = 7, session: Session = SESSION, **options: object
) -> list[CreateTopicsResponse.Topic]:
    request = CreateTopicsRequest(topics=list(topics), **options)  # type: ignore[arg-type]
    answer = await ask(node, request, CreateTopicsResponse, version=version, session=session)
    return answer.topics


class Nobody(Everyone):
    """Only the tests themselves may do anything."""

    def allows(self, session: Session, operation: Operation, resource: str) -> bool:
        return session == SESSION


# -- create topics -----------------------------------------------------------------------------


def test_topics_of_one_request_share_their_syncs() -> None:
    async def story() -> None:
        async with running_node() as node:
            before = node.metrics.value(SYNC_ROUNDS)

            made = await create(node, *(new(f"orders-{number}", 3) for number in range(100)))

            assert [(each.name, each.error_code) for each in made] == [
                (f"orders-{number}", 0) for number in range(100)
            ]
            # Three for each topic, if each were created by itself.
            assert node.metrics.value(SYNC_ROUNDS) - before < 50
            for number in range(100):  # Usable at once.
                target = TopicPartition(f"orders-{number}", 2)
                await node.partitions.append(SESSION, target, batch(b"x"), acks=Acks.ALL)

    run(story())


def test_a_view_may_be_created_with_its_base_in_one_request() -> None:
    async def story() -> None:
        async with running_node() as node:
            view = new("large", view_of="orders", view_where="value ~ 'a'")

            made = await create(node, view, new("orders", 3))

            assert [(each.name, each.error_code) for each in made] == [("large", 0), ("orders", 0)]
            assert made[0].num_partitions == 3

    run(story())


def test_a_created_topic_is_described_in_the_answer() -> None:
    async def story() -> None:
        async with running_node() as node:
            (made,) = await create(node, new("orders", 3, retention_ms="5000"))

            topic = node.topics.describe(SESSION, "orders")
            configs = {
                config.name: (config.value, config.config_source) for config in made.configs or []
            }
            assert (made.error_code, made.error_message) == (0, None)
            assert made.topic_id == topic.topic_id
            assert (made.num_partitions, made.replication_factor) == (3, 1)
            assert topic.overrides == {"retention_ms": "5000"}
            assert configs["retention.ms"] == ("5000", 1)
            assert configs["segment.bytes"] == (str(2**30), 5)

    run(story())


@pytest.mark.parametrize("version", range(2, 8))
def test_topics_are_created_in_every_version(version: int) -> None:
    async def story() -> None:
        async with running_node() as node:
            (made,) = await create(node, new("orders"), version=version)

            assert (made.name, made.error_code) == ("orders", 0)
            assert (made.num_partitions == 1) is (version >= 5)
            assert (made.topic_id != NO_ID) is (version >= 7)

    run(story())


def test_counts_that_are_left_to_the_broker_are_the_configured_ones() -> None:
    async def story() -> None:
        async with running_node(Config(default_partitions=4)) as node:
            (made,) = await create(node, new("orders", -1, -1))

            assert (made.num_partitions, made.replication_factor) == (4, 1)
            assert node.topics.describe(SESSION, "orders").partition_count == 4

    run(story())


def test_what_is_only_validated_is_not_created() -> None:
    async def story() -> None:
        async with running_node() as node:
            good, bad = await create(
                node, new("orders", 2, retention_ms="1"), new("no", 0), validate_only=True
            )

            assert (good.error_code, good.num_partitions, good.topic_id) == (0, 2, NO_ID)
            assert bad.error_code == ErrorCode.INVALID_PARTITIONS
            assert node.topics.list(SESSION) == []

    run(story())


def test_partitions_go_where_the_client_places_them() -> None:
    async def story() -> None:
        async with running_node() as node:
            (made,) = await create(node, new("orders", -1, -1, placed={1: [1], 0: [1]}))

            assert (made.error_code, made.num_partitions, made.replication_factor) == (0, 2, 1)
            assert node.topics.describe(SESSION, "orders").placement == ((1,), (1,))

    run(story())


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (new("orders"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (new("no/pe"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new("fresh", 0), ErrorCode.INVALID_PARTITIONS),
        (new("fresh", -2), ErrorCode.INVALID_PARTITIONS),
        (new("fresh", 11), ErrorCode.INVALID_PARTITIONS),
        (new("fresh", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (new("fresh", 1, 2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (new("fresh", 1, -1, placed={0: [1]}), ErrorCode.INVALID_REQUEST),
        (new("fresh", -1, 1, placed={0: [1]}), ErrorCode.INVALID_REQUEST),
        (new("fresh", -1, -1, placed={0: [2]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (new("fresh", -1, -1, placed={0: [1, 1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (new("fresh", -1, -1, placed={0: []}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (new("fresh", -1, -1, placed={0: [1], 1: []}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (new("fresh", -1, -1, placed={1: [1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (new("fresh", -1, -1, placed={at: [1] for at in range(11)}), ErrorCode.INVALID_PARTITIONS),
        (new("fresh", retention_ms="soon"), ErrorCode.INVALID_CONFIG),
        (new("fresh", retention_ms=None), ErrorCode.INVALID_CONFIG),
        (new("fresh", colour="red"), ErrorCode.INVALID_CONFIG),
        (new("fresh", flush_messages="0"), ErrorCode.INVALID_CONFIG),
    ],
)
def test_a_topic_that_cannot_be_created_says_why_and_leaves_no_trace(
    topic: NewTopic, code: ErrorCode
) -> None:
    async def story() -> None:
        async with running_node(Config(limits=Limits(topic_partitions_max=10))) as node:
            await node.topics.create(SESSION, "orders")

            for validate_only in (True, False):
                (refused,) = await create(node, topic, validate_only=validate_only)

                assert refused.error_code == code
                assert refused.error_message
                assert refused.configs is None
            assert [topic.name for topic in node.topics.list(SESSION)] == ["orders"]

    run(story())


def test_one_partition_placed_twice_is_refused() -> None:
    async def story() -> None:
        async with running_node() as node:
            topic = new("orders", -1, -1, placed={0: [1]})
            topic.assignments *= 2

            (refused,) = await create(node, topic)

            assert refused.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT

    run(story())


def test_a_name_that_comes_twice_is_refused_once_and_the_others_are_created() -> None:
    async def story() -> None:
        async with running_node() as node:
            twice, good = await create(node, new("a"), new("b"), new("a"))

            assert (twice.name, twice.error_code) == ("a", ErrorCode.INVALID_REQUEST)
            assert (good.name, good.error_code) == ("b", 0)
            assert [topic.name for topic in node.topics.list(SESSION)] == ["b"]

    run(story())


def test_a_creation_that_takes_longer_than_the_client_waits_may_still_happen() -> None:
    async def story() -> None:
        async with running_node() as node:
            (late,) = await create(node, new("orders"), timeout_ms=0)
            await node.topics.create(SESSION, "later")

            assert late.error_code == ErrorCode.REQUEST_TIMED_OUT
            assert [topic.name for topic in node.topics.list(SESSION)] == ["later", "orders"]

    run(story())


def test_strangers_create_grow_and_delete_nothing() -> None:
    async def story() -> None:
        async with running_node(policy=Nobody()) as node:
            topic = await node.topics.create(SESSION, "orders")
            denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED

            (created,) = await create(node, new("fresh"), session=STRANGER)
            grown = await ask(
                node,
                CreatePartitionsRequest(topics=[MORE(name="orders", count=2)], timeout_ms=1000),
                CreatePartitionsResponse,
                session=STRANGER,
            )
            deleted = await ask(
                node,
                DeleteTopicsRequest(
                    topics=[DeleteTopicsRequest.Topic(topic_id=topic.topic_id)], timeout_ms=1000
                ),
                DeleteTopicsResponse,
                session=STRANGER,
            )

            assert created.error_code == denied
            assert grown.results[0].error_code == denied
            assert (deleted.responses[0].error_code, deleted.responses[0].name) == (denied, None)
            assert node.topics.list(SESSION) == [topic]

    run(story())


# -- delete topics -----------------------------------------------------------------------------


async def delete(
    node: Node, *topics: DeleteTopicsRequest.Topic
) -> list[DeleteTopicsResponse.Result]:
    request = DeleteTopicsRequest(topics=list(topics), timeout_ms=1000)
    return (await ask(node, request, DeleteTopicsResponse)).responses


def test_topics_are_deleted_by_name_and_by_id() -> None:
    async def story() -> None:
        async with running_node() as node:
            first = await node.topics.create(SESSION, "first")
            second = await node.topics.create(SESSION, "second")

            results = await delete(
                node,
                DeleteTopicsRequest.Topic(name="first"),
                DeleteTopicsRequest.Topic(topic_id=second.topic_id),
            )

            assert [(result.name, result.topic_id, result.error_code) for result in results] == [
                ("first", first.topic_id, 0),
                ("second", second.topic_id, 0),
            ]
            assert node.topics.list(SESSION) == []

    run(story())


@pytest.mark.parametrize("version", range(1, 6))
def test_old_versions_delete_a_list_of_names(version: int) -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders")

            request = DeleteTopicsRequest(topic_names=["orders", "none"], timeout_ms=1000)
            answer = await ask(node, request, DeleteTopicsResponse, version=version)

            assert [(response.name, response.error_code) for response in answer.responses] == [
                ("orders", 0),
                ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ]
            assert node.topics.list(SESSION) == []

    run(story())


def test_what_names_no_topic_deletes_none() -> None:
    async def story() -> None:
        async with running_node() as node:
            topic = await node.topics.create(SESSION, "orders")
            by_name = DeleteTopicsRequest.Topic(name="orders")

            unknown = await delete(node, DeleteTopicsRequest.Topic(topic_id=UUID(int=7)))
            neither = await delete(node, DeleteTopicsRequest.Topic())
            empty = await delete(node, DeleteTopicsRequest.Topic(name=""))
            both = await delete(
                node, DeleteTopicsRequest.Topic(name="orders", topic_id=topic.topic_id)
            )
            twice = await delete(node, by_name, by_name)

            assert [result.error_code for result in unknown] == [ErrorCode.UNKNOWN_TOPIC_ID]
            assert [result.error_code for result in neither] == [ErrorCode.INVALID_REQUEST]
            assert [result.error_code for result in empty] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
            assert [item.error_code for item in both] == [ErrorCode.INVALID_REQUEST]
            assert [result.error_code for result in twice] == [ErrorCode.INVALID_REQUEST]
            assert node.topics.list(SESSION) == [topic]

    run(story())


# -- create partitions -------------------------------------------------------------------------


async def grow(
    node: Node, *topics: MORE, validate_only: bool = False
) -> list[CreatePartitionsResponse.Result]:
    request = CreatePartitionsRequest(
        topics=list(topics), timeout_ms=1000, validate_only=validate_only
    )
    return (await ask(node, request, CreatePartitionsResponse)).results


def placed(*replicas: list[int]) -> list[MORE.Assignment]:
    return [MORE.Assignment(broker_ids=nodes) for nodes in replicas]


def test_a_topic_grows_to_the_count_that_is_asked_for() -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "a")
            await node.topics.create(SESSION, "b")

            results = await grow(
                node,
                MORE(name="a", count=3, assignments=[]),
                MORE(name="b", count=2, assignments=placed([1])),
            )

            assert [(result.name, result.error_code) for result in results] == [("a", 0), ("b", 0)]
            assert node.topics.describe(SESSION, "a").partition_count == 3
            assert node.topics.describe(SESSION, "b").placement == ((1,), (1,))

    run(story())


def test_validating_growth_adds_nothing() -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders")

            (result,) = await grow(node, MORE(name="orders", count=3), validate_only=True)

            assert result.error_code == 0
            assert node.topics.describe(SESSION, "orders").partition_count == 1

    run(story())


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (MORE(name="none", count=3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (MORE(name="orders", count=2), ErrorCode.INVALID_PARTITIONS),
        (MORE(name="orders", count=1), ErrorCode.INVALID_PARTITIONS),
        (MORE(name="orders", count=-1), ErrorCode.INVALID_PARTITIONS),
        (MORE(name="orders", count=11), ErrorCode.INVALID_PARTITIONS),
        (
            MORE(name="orders", count=4, assignments=placed([1])),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (
            MORE(name="orders", count=3, assignments=placed([9])),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
    ],
)
def test_a_topic_that_cannot_grow_says_why_and_stays(topic: MORE, code: ErrorCode) -> None:
    async def story() -> None:
        async with running_node(Config(limits=Limits(topic_partitions_max=10))) as node:
            await node.topics.create(SESSION, "orders", partitions=2)

            for validate_only in (True, False):
                (result,) = await grow(node, topic, validate_only=validate_only)

                assert (result.error_code, bool(result.error_message)) == (code, True)
            assert node.topics.describe(SESSION, "orders").partition_count == 2

    run(story())


def test_a_topic_that_is_to_grow_twice_does_not_grow() -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders")

            results = await grow(node, MORE(name="orders", count=2), MORE(name="orders", count=3))

            assert [result.error_code for result in results] == [ErrorCode.INVALID_REQUEST]
            assert node.topics.describe(SESSION, "orders").partition_count == 1

    run(story())


# -- placement ---------------------------------------------------------------------------------


async def log_dirs(
    node: Node, topics: list[DescribeLogDirsRequest.Topic] | None, session: Session = SESSION
) -> DescribeLogDirsResponse:
    request = DescribeLogDirsRequest(topics=topics)
    return await ask(node, request, DescribeLogDirsResponse, session=session)


def test_log_dirs_tell_the_size_of_every_partition() -> None:
    async def story() -> None:
        async with running_node(Config(data_dir="/data")) as node:
            await node.topics.create(SESSION, "orders", partitions=2)
            await node.topics.create(SESSION, "empty")
            data = batch(b"a")
            await node.partitions.append(SESSION, ORDERS, data, Acks.ALL)

            (place,) = (await log_dirs(node, None)).results

            sizes = {
                (topic.name, part.partition_index): part.partition_size
                for topic in place.topics
                for part in topic.partitions
            }
            assert place.log_dir == "/data"
            assert sizes == {("orders", 0): len(data), ("orders", 1): 0, ("empty", 0): 0}
            assert (place.total_bytes, place.usable_bytes) == (-1, -1)

    run(story())


def test_log_dirs_tell_only_of_partitions_that_are_asked_for_and_exist() -> None:
    async def story() -> None:
        async with running_node(Config(storage="memory")) as node:
            await node.topics.create(SESSION, "orders", partitions=2)
            await node.topics.create(SESSION, "other")
            request = DescribeLogDirsRequest.Topic

            (place,) = (
                await log_dirs(
                    node,
                    [
                        request(topic="orders", partitions=[1, 9, -1]),
                        request(topic="none", partitions=[0]),
                    ],
                )
            ).results

            assert place.log_dir == "memory"
            assert [topic.name for topic in place.topics] == ["orders"]
            assert [part.partition_index for part in place.topics[0].partitions] == [1]

    run(story())


def test_log_dirs_tell_strangers_nothing() -> None:
    async def story() -> None:
        async with running_node(policy=Nobody()) as node:
            answer = await log_dirs(node, None, STRANGER)

            assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            assert answer.results == []

    run(story())


async def elect(
    node: Node, topics: dict[str, list[int]] | None, election: int = 0, session: Session = SESSION
) -> ElectLeadersResponse:
    pair_of = ElectLeadersRequest.TopicPartitions
    request = ElectLeadersRequest(
        election_type=election,
        topic_partitions=None
        if topics is None
        else [pair_of(topic=name, partitions=parts) for name, parts in topics.items()],
    )
    return await ask(node, request, ElectLeadersResponse, session=session)


@pytest.mark.parametrize("election", [0, 1])
def test_partitions_that_have_their_leader_need_no_election(election: int) -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders", partitions=2)

            named = await elect(node, {"orders": [0, 1]}, election)
            every = await elect(node, None, election)

            codes = [
                result.error_code for result in named.replica_election_results[0].partition_result
            ]
            assert codes == [ErrorCode.ELECTION_NOT_NEEDED] * 2
            assert every.replica_election_results == []

    run(story())


@pytest.mark.parametrize(
    ("election", "code"),
    [
        (0, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (1, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
    ],
)
def test_a_partition_without_a_leader_says_that_none_can_be_elected(
    election: int, code: ErrorCode
) -> None:
    async def story() -> None:
        async with running_node() as node:
            topic = await node.topics.create(SESSION, "orders")
            del node.hub.replicas[topic.log(0)]

            named = await elect(node, {"orders": [0]}, election)
            every = await elect(node, None, election)

            for answer in (named, every):
                (result,) = answer.replica_election_results
                assert [part.error_code for part in result.partition_result] == [code]

    run(story())


def test_elections_that_make_no_sense_are_refused() -> None:
    async def story() -> None:
        async with running_node(policy=Nobody()) as node:
            await node.topics.create(SESSION, "orders")

            unknown_type = await elect(node, {"orders": [0]}, 7)
            unknown = await elect(node, {"none": [0], "orders": [1]})
            denied = await elect(node, {"orders": [0]}, session=STRANGER)
            denied_all = await elect(node, None, session=STRANGER)

            assert unknown_type.error_code == ErrorCode.INVALID_REQUEST
            for election in unknown.replica_election_results:
                assert (
                    election.partition_result[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                )
            (result,) = denied.replica_election_results
            assert denied.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            assert result.partition_result[0].error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            assert denied_all.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    run(story())


@pytest.mark.parametrize(
    ("topic", "partition", "replicas", "code"),
    [
        ("orders", 0, [1], ErrorCode.NONE),
        ("orders", 0, [2], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("orders", 0, [1, 2], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("orders", 0, [], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("orders", 0, None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        ("orders", 1, [1], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("none", 0, [1], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_replicas_can_only_be_reassigned_to_where_they_are(
    topic: str, partition: int, replicas: list[int] | None, code: ErrorCode
) -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders")
            request = AlterPartitionReassignmentsRequest.Topic
            part = request.Partition(partition_index=partition, replicas=replicas)

            answer = await ask(
                node,
                AlterPartitionReassignmentsRequest(
                    topics=[request(name=topic, partitions=[part])],
                    allow_replication_factor_change=False,
                ),
                AlterPartitionReassignmentsResponse,
            )

            (result,) = answer.responses[0].partitions
            assert (result.partition_index, result.error_code) == (partition, code)
            assert (result.error_message is None) is (code == ErrorCode.NONE)
            assert answer.allow_replication_factor_change is False

    run(story())


def test_no_reassignment_is_ever_in_progress() -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders")

            request = ListPartitionReassignmentsRequest(topics=None)
            answer = await ask(node, request, ListPartitionReassignmentsResponse)

            assert (answer.error_code, answer.topics) == (0, [])

    run(story())


# -- producer ids ------------------------------------------------------------------------------


async def init(
    node: Node,
    transactional_id: str | None = None,
    *,
    producer: tuple[int, int] = (-1, -1),
    session: Session = SESSION,
    version: int | None = None,
) -> InitProducerIdResponse:
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=1000,
        producer_id=producer[0],
        producer_epoch=producer[1],
    )
    return await ask(node, request, InitProducerIdResponse, session=session, version=version)


def test_every_idempotent_producer_gets_a_number_of_its_own_and_epoch_zero() -> None:
    async def story() -> None:
        async with running_node() as node:
            answers = [await init(node, version=version) for version in range(6)]
            again = await init(node, producer=(answers[0].producer_id, 0))

            numbers = {answer.producer_id for answer in [*answers, again]}
            assert len(numbers) == 7
            assert {(answer.error_code, answer.producer_epoch) for answer in [*answers, again]} == {
                (0, 0)
            }

    run(story())


@pytest.mark.parametrize(
    ("transactional_id", "producer", "code"),
    [
        ("", (-1, -1), ErrorCode.INVALID_REQUEST),
        (None, (5, -1), ErrorCode.INVALID_REQUEST),
        (None, (-1, 0), ErrorCode.INVALID_REQUEST),
        ("payments", (5, -1), ErrorCode.INVALID_REQUEST),
    ],
)
def test_producer_ids_that_cannot_be_given_are_refused(
    transactional_id: str | None, producer: tuple[int, int], code: ErrorCode
) -> None:
    async def story() -> None:
        async with running_node() as node:
            answer = await init(node, transactional_id, producer=producer)

            assert (answer.error_code, answer.producer_id) == (code, -1)

    run(story())


def test_strangers_get_no_producer_id() -> None:
    async def story() -> None:
        async with running_node(policy=Nobody()) as node:
            answer = await init(node, session=STRANGER)

            assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    run(story())


def test_without_a_leader_clients_are_told_codes_after_which_they_ask_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def lost(*_: object) -> None:
        raise NotLeader("the control log", None)

    async def story() -> None:
        async with running_node() as node:
            monkeypatch.setattr(node._controller, "propose", lost)
            monkeypatch.setattr(node._controller, "reserve_producer_ids", lost)

            (created,) = await create(node, new("orders"))
            producer = await init(node)

            assert created.error_code == ErrorCode.NOT_CONTROLLER
            assert producer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    run(story())


def test_the_defaults_of_the_node_show_in_a_created_topic() -> None:
    async def story() -> None:
        config = Config(topic_defaults=TopicSettings(retention_ms=77))
        async with running_node(config) as node:
            (made,) = await create(node, new("orders"))

            configs = {
                config.name: (config.value, config.config_source) for config in made.configs or []
            }
            assert configs["retention.ms"] == ("77", 4)

    run(story())
