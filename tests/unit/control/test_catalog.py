"""The catalog: what may be created, changed and deleted, the same on every node."""

from uuid import UUID

import pytest

from millstream.control.catalog import Catalog
from millstream.control.commands import (
    AddPartitions,
    AlterTopic,
    AnyCommand,
    CreateTopic,
    DeleteTopic,
    decode,
    encode,
)
from millstream.control.state import State
from millstream.errors import (
    InvalidPartitions,
    InvalidSetting,
    InvalidTopicName,
    RequestError,
    TopicExists,
    TopicNameCollides,
    UnknownTopic,
)
from millstream.model import LogId, NodeId
from millstream.settings import TopicSettings

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
def test_a_refused_command_changes_nothing(command: AnyCommand, error: type[RequestError]) -> None:
    catalog = Catalog()
    catalog.apply(create("or_ders", 4))
    catalog.apply(create("orders", 1))
    before = catalog.topics()

    with pytest.raises(error):
        catalog.apply(command)

    assert catalog.topics() == before


@pytest.mark.parametrize(
    "command",
    [
        create("orders", retention_ms="9"),
        DeleteTopic(name="orders"),
        AddPartitions(name="orders", count_before=2, placement=(ONE,)),
        AlterTopic(name="orders", changes={"retention_ms": None, "segment_bytes": "4096"}),
    ],
)
def test_commands_survive_their_bytes(command: AnyCommand) -> None:
    assert decode(encode(command)) == command


def test_two_states_fed_with_the_same_commands_are_the_same() -> None:
    commands = [create("a", 1), create("a", 2), DeleteTopic(name="b"), create("b", 3)]
    one, two = State(), State()

    for state in (one, two):
        for offset, command in enumerate(commands):
            try:
                state.apply(offset, decode(encode(command)))
            except RequestError:
                continue

    assert one.catalog.topics() == two.catalog.topics()
    assert one.applied_offset == two.applied_offset == 4
