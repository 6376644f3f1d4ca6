"""The catalog: what may be created, changed and deleted, the same on every node."""

import math
from uuid import UUID

import pytest

from millstream.control.catalog import Catalog
from millstream.control.commands import (
    AddPartitions,
    AddReplicas,
    AlterQuotas,
    AlterTopic,
    AnyCommand,
    CreateTopic,
    DeleteTopic,
    ReserveProducerIds,
    TopicCommand,
    decode,
    encode,
    encode_for_proposal,
)
from millstream.control.quotas import Entity
from millstream.control.state import State
from millstream.errors import (
    InvalidPartitions,
    InvalidPlacement,
    InvalidRequest,
    InvalidSetting,
    InvalidTopicName,
    RequestError,
    TopicExists,
    TopicNameCollides,
    UnknownTopic,
    UnusableCommand,
)
from millstream.errors.views import HasViews, ReadOnlyView
from millstream.model import LogId, NodeId, replica_id
from millstream.settings import BOUNDS, TopicSettings

ONE = (NodeId(1),)


def create(name: str, number: int = 1, **settings: str) -> CreateTopic:
    return CreateTopic(
        name=name,
        topic_id=UUID(int=number),
        placement=(ONE, ONE),
        overrides=settings,
        created_ms=5,
    )


def test_a_topic_is_found_by_name_and_by_id() -> None:
    catalog = Catalog()

    topic = catalog.apply(create("orders", retention_ms="9"))

    assert catalog.find("orders") is catalog.find_id(UUID(int=1)) is topic
    assert topic.log(1) == LogId(UUID(int=1), 1)
    assert topic.settings(TopicSettings(segment_bytes=2048)).retention_ms == 9
    assert topic.settings(TopicSettings(segment_bytes=2048)).segment_bytes == 2048


def test_a_partition_that_is_not_there_is_unknown() -> None:
    topic = Catalog().apply(create("orders"))

    for partition in (-1, 2):
        with pytest.raises(UnknownTopic):
            topic.log(partition)


def test_changing_settings_keeps_the_others_and_none_goes_back_to_the_default() -> None:
    catalog = Catalog()
    catalog.apply(create("orders", retention_ms="9", segment_bytes="2048"))

    topic = catalog.apply(AlterTopic(name="orders", changes={"retention_ms": None}))

    assert topic.overrides == {"segment_bytes": "2048"}


def test_partitions_are_added_behind_the_old_ones() -> None:
    catalog = Catalog()
    catalog.apply(create("orders"))

    topic = catalog.apply(AddPartitions(name="orders", count_before=2, placement=((NodeId(2),),)))

    assert topic.placement == (ONE, ONE, (NodeId(2),))


def add_replicas(
    *nodes: int, topic_id: int = 1, count_before: int = 1, partitions: int = 2
) -> AddReplicas:
    return AddReplicas(
        name="orders",
        topic_id=UUID(int=topic_id),
        count_before=count_before,
        added=(tuple(map(NodeId, nodes)),) * partitions,
    )


def test_added_replicas_have_the_offset_of_their_command_and_founders_stay() -> None:
    catalog = Catalog()
    catalog.apply(create("orders"))
    catalog.apply(view("keyed", 2))

    catalog.apply(add_replicas(2), 7)
    catalog.apply(AddPartitions(name="orders", count_before=2, placement=((NodeId(3), NodeId(1)),)))
    topic = catalog.apply(add_replicas(4, count_before=2, partitions=3), 9)

    assert topic.placement == ((1, 2, 4), (1, 2, 4), (3, 1, 4))
    assert catalog.find("keyed").placement == topic.placement
    later = replica_id(NodeId(2), 7), replica_id(NodeId(4), 9)
    first, third = replica_id(NodeId(1)), replica_id(NodeId(3))
    for partition in (0, 1):
        assert topic.assignment(partition).founders == {first}
        assert topic.assignment(partition).replicas == (first, *later)
    assert topic.assignment(2).founders == {third, first}
    assert topic.assignment(2).replicas == (third, first, later[1])
    assert not any(topic.assignment(partition).is_moving for partition in range(3))


@pytest.mark.parametrize(
    ("command", "refusal"),
    [
        (add_replicas(2, topic_id=9), InvalidPlacement),
        (add_replicas(2, count_before=2), InvalidPlacement),
        (add_replicas(2, partitions=3), InvalidPlacement),
        (add_replicas(1), InvalidPartitions),
        (add_replicas(2, 2), InvalidPartitions),
    ],
)
def test_replicas_for_a_topic_that_has_changed_are_refused(
    command: AddReplicas, refusal: type[RequestError]
) -> None:
    catalog = Catalog()
    topic = catalog.apply(create("orders"))

    with pytest.raises(refusal):
        catalog.check(command)
    with pytest.raises(refusal):
        catalog.apply(command, 5)

    assert catalog.find("orders") is topic


def test_the_count_of_all_partitions_follows_every_command() -> None:
    catalog = Catalog()
    commands: list[TopicCommand] = [
        create("orders", 1),
        view("keyed", 2),
        AddPartitions(name="orders", count_before=2, placement=(ONE,)),
        AlterTopic(name="orders", changes={"retention_ms": "9"}),
        create("bills", 3),
        DeleteTopic(name="keyed"),
        DeleteTopic(name="orders"),
    ]

    for command in commands:
        catalog.apply(command)

        assert catalog.partition_count == sum(t.partition_count for t in catalog.topics())
    assert catalog.partition_count == 2


def test_topics_are_numbered_as_they_are_created_and_no_number_is_used_again() -> None:
    catalog = Catalog()
    catalog.apply(create("orders", 1))
    with pytest.raises(TopicExists):
        catalog.apply(create("orders", 2))
    catalog.apply(create("bills", 3))
    catalog.apply(DeleteTopic(name="bills"))

    bills = catalog.apply(create("bills", 4))
    grown = catalog.apply(AlterTopic(name="orders", changes={"retention_ms": "9"}))

    assert (grown.number, bills.number) == (0, 2)
    assert (catalog.find_number(0), catalog.find_number(2)) == (grown, bills)
    with pytest.raises(UnknownTopic):
        catalog.find_number(1)


def test_a_deleted_name_is_free_again_for_another_log() -> None:
    catalog = Catalog()
    catalog.apply(create("orders", 1))
    catalog.apply(DeleteTopic(name="orders"))

    topic = catalog.apply(create("orders", 2))

    assert topic.log(0) == LogId(UUID(int=2), 0)
    with pytest.raises(UnknownTopic):
        catalog.find_id(UUID(int=1))


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (create("orders", 2), TopicExists),
        (create("or.ders", 2), TopicNameCollides),
        (create("../orders", 2), InvalidTopicName),
        (create("fresh", 2, colour="red"), InvalidSetting),
        (create("fresh", 2, segment_bytes="1"), InvalidSetting),
        (DeleteTopic(name="gone"), UnknownTopic),
        (AlterTopic(name="gone", changes={}), UnknownTopic),
        (AlterTopic(name="orders", changes={"retention_ms": "x"}), InvalidSetting),
        (AddPartitions(name="orders", count_before=7, placement=(ONE,)), InvalidPartitions),
        (AddPartitions(name="orders", count_before=1, placement=()), InvalidPartitions),
        (
            AddPartitions(name="orders", count_before=1, placement=((NodeId(1), NodeId(1)),)),
            InvalidPartitions,
        ),
    ],
)
def test_a_command_against_the_rules_is_refused_before_it_is_proposed(
    command: TopicCommand, error: type[RequestError]
) -> None:
    catalog = Catalog()
    catalog.apply(create("or_ders", 4))
    catalog.apply(create("orders", 1))
    before = catalog.topics()

    with pytest.raises(error):
        catalog.check(command)

    assert catalog.topics() == before


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (create("orders", 2), TopicExists),
        (create("or.ders", 2), TopicNameCollides),
        (DeleteTopic(name="gone"), UnknownTopic),
        (AlterTopic(name="gone", changes={}), UnknownTopic),
        (AddPartitions(name="orders", count_before=7, placement=(ONE,)), InvalidPartitions),
        (AddPartitions(name="orders", count_before=1, placement=()), InvalidPartitions),
    ],
)
def test_a_command_that_was_overtaken_by_another_is_refused_and_changes_nothing(
    command: TopicCommand, error: type[RequestError]
) -> None:
    catalog = Catalog()
    catalog.apply(create("or_ders", 4))
    catalog.apply(create("orders", 1))
    before = catalog.topics()

    with pytest.raises(error):
        catalog.apply(command)

    assert catalog.topics() == before


def test_commands_that_todays_rules_would_refuse_replay_to_the_same_topics() -> None:
    """As another version wrote them: settings it knew, bounds it had, names it took."""
    commands: list[TopicCommand] = [
        create("early", 1, segment_bytes="1", colour="red", cleanup_policy="hoard"),
        create("späte", 2, retention_ms="soon"),
        AlterTopic(name="early", changes={"segment_ms": "0", "flavour": "rye"}),
        AlterTopic(name="early", changes={"colour": None}),
    ]
    state = State()

    for offset, command in enumerate(commands):
        state.fold(offset, encode(command))

    early, late = state.catalog.find("early"), state.catalog.find("späte")
    assert early.overrides == {
        "segment_bytes": "1",
        "cleanup_policy": "hoard",
        "segment_ms": "0",
        "flavour": "rye",
    }
    effective = early.settings(TopicSettings(retention_ms=77))
    assert (effective.segment_bytes, effective.segment_ms) == (1024, 1)
    assert effective.cleanup_policy is TopicSettings().cleanup_policy
    assert effective.retention_ms == 77
    assert late.settings(TopicSettings()) == TopicSettings()
    problems = early.setting_problems()
    assert [problem.split()[0] for problem in problems if problem.endswith("is used")] == [
        "segment_bytes",
        "cleanup_policy",
        "segment_ms",
    ]
    assert problems[-1] == "this version has no setting 'flavour'; it has no effect"


def test_a_stricter_bound_of_a_later_version_takes_no_topic_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    command = encode(create("orders", segment_bytes="1024"))
    monkeypatch.setitem(BOUNDS, "segment_bytes", (2048, 2**31 - 1))
    state = State()

    state.fold(0, command)

    topic = state.catalog.find("orders")
    assert topic.settings(TopicSettings()).segment_bytes == 2048
    assert topic.setting_problems() == [
        "segment_bytes = 1024 is not in 2048 to 2147483647; 2048 is used"
    ]
    state.catalog.check(AlterTopic(name="orders", changes={"retention_ms": "9"}))


def test_quotas_that_todays_rules_would_refuse_replay_to_the_same_limits() -> None:
    state = State()

    state.fold(0, encode(AlterQuotas(user="ann", client_id=None, changes={"cpu": 0.5})))
    state.fold(
        1, encode(AlterQuotas(user="ann", client_id=None, changes={"producer_byte_rate": 0.1}))
    )

    assert state.quotas.limits == {Entity("ann", None): {"cpu": 0.5, "producer_byte_rate": 0.1}}
    quota = state.quotas.find("producer_byte_rate", "ann", "any")
    assert quota is not None
    assert quota.rate == 1


@pytest.mark.parametrize(
    "command",
    [
        create("orders", retention_ms=1000),  # type: ignore[arg-type]
        create("orders", retention_ms=True),  # type: ignore[arg-type]
        create("orders", retention_ms=b"5"),  # type: ignore[arg-type]
        create("orders", retention_ms=object()),  # type: ignore[arg-type]
        create("or\udc80ders"),
        create(7),  # type: ignore[arg-type]
        AlterTopic(name="orders", changes={"retention_ms": 1.5}),  # type: ignore[dict-item]
        AddPartitions(name="orders", count_before=2.5, placement=(ONE,)),  # type: ignore[arg-type]
        AddPartitions(name="orders", count_before=2, placement=(("1",),)),  # type: ignore[arg-type]
        AlterQuotas(user="ann", client_id=None, changes={"producer_byte_rate": math.nan}),
        ReserveProducerIds(count="5"),  # type: ignore[arg-type]
    ],
)
def test_what_no_node_could_decode_is_never_encoded_for_a_proposal(command: AnyCommand) -> None:
    with pytest.raises(InvalidRequest, match=f"{type(command).__name__} was not proposed"):
        encode_for_proposal(command)


@pytest.mark.parametrize(
    "data",
    [None, b"", b"{", b'{"command":"Fly"}', b'{"command":"DeleteTopic","name":5}', b"[" * 9999],
)
def test_a_command_that_cannot_be_decoded_is_named_by_its_offset(data: bytes | None) -> None:
    state = State()
    state.fold(0, encode(create("orders")))

    with pytest.raises(UnusableCommand, match="offset 1 of the control log") as caught:
        state.fold(1, data)
    state.fold(2, encode(create("bills", 2)))

    assert caught.value.offset == 1
    assert [topic.name for topic in state.catalog.topics()] == ["orders", "bills"]


@pytest.mark.parametrize(
    "command",
    [
        create("orders", retention_ms="9"),
        DeleteTopic(name="orders"),
        AddPartitions(name="orders", count_before=2, placement=(ONE,)),
        AddReplicas(name="orders", topic_id=UUID(int=1), count_before=1, added=(ONE, ())),
        AlterTopic(name="orders", changes={"retention_ms": None, "segment_bytes": "4096"}),
    ],
)
def test_commands_survive_their_bytes(command: AnyCommand) -> None:
    assert decode(encode(command)) == command


def test_two_states_fed_with_the_same_commands_are_the_same() -> None:
    commands = [create("a", 1), create("a", 2), DeleteTopic(name="b"), create("b", 3)]
    first, second = State(), State()

    for state in (first, second):
        for offset, command in enumerate(commands):
            try:
                state.apply(offset, decode(encode(command)))  # type: ignore[arg-type]
            except RequestError:
                continue

    assert first.catalog.topics() == second.catalog.topics()
    assert first.applied_offset == second.applied_offset == 4


# -- views -----------------------------------------------------------------------------------------


def view(name: str, number: int, *, of: str = "orders", where: str = "key") -> CreateTopic:
    return create(name, number, view_of=of, view_where=where)


def test_a_view_has_an_id_of_its_own_and_the_logs_of_its_base() -> None:
    catalog = Catalog()
    base = catalog.apply(create("orders", 1))

    shown = catalog.apply(view("keyed", 2))

    assert shown.is_view
    assert not base.is_view
    assert catalog.find_id(UUID(int=2)) is shown
    assert shown.log(1) == base.log(1) == LogId(UUID(int=1), 1)
    assert catalog.views_of(base) == [shown]


def test_views_grow_with_their_base() -> None:
    catalog = Catalog()
    catalog.apply(create("orders", 1))
    catalog.apply(view("keyed", 2))

    catalog.apply(AddPartitions(name="orders", count_before=2, placement=(ONE,)))

    assert catalog.find("keyed").partition_count == 3
    assert catalog.find("keyed").log(2) == LogId(UUID(int=1), 2)


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        (view("other", 3, of="nowhere"), InvalidSetting),
        (view("other", 3, of="keyed"), InvalidSetting),
        (create("other", 3, view_of="orders"), InvalidSetting),
        (create("other", 3, view_where="key"), InvalidSetting),
        (create("other", 3, view_of="orders", view_where="k", segment_ms="5"), InvalidSetting),
        (AlterTopic(name="orders", changes={"view_of": "x", "view_where": "k"}), InvalidSetting),
        (AlterTopic(name="keyed", changes={"view_of": None}), InvalidSetting),
        (AlterTopic(name="keyed", changes={"retention_ms": "5"}), InvalidSetting),
        (AddPartitions(name="keyed", count_before=2, placement=(ONE,)), ReadOnlyView),
        (DeleteTopic(name="orders"), HasViews),
    ],
)
def test_what_would_break_a_view_is_refused_before_it_is_proposed(
    command: TopicCommand, problem: type[RequestError]
) -> None:
    state = State()
    state.apply(0, create("orders", 1))
    state.apply(1, view("keyed", 2))
    before = state.catalog.topics()

    with pytest.raises(problem):
        state.catalog.check(command)

    assert state.catalog.topics() == before


def test_a_base_can_go_when_its_views_are_gone() -> None:
    catalog = Catalog()
    catalog.apply(create("orders", 1))
    catalog.apply(view("keyed", 2))

    catalog.apply(DeleteTopic(name="keyed"))
    catalog.apply(DeleteTopic(name="orders"))

    assert catalog.topics() == []


def test_the_books_of_the_broker_do_not_expire_with_the_defaults_of_a_node() -> None:
    catalog = Catalog()
    defaults = TopicSettings(message_ttl_ms=5)

    books = catalog.apply(create("__consumer_offsets", 1))
    orders = catalog.apply(create("orders", 2))

    assert books.settings(defaults).message_ttl_ms == -1
    assert orders.settings(defaults).message_ttl_ms == 5
