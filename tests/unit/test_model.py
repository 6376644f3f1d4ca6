"""The vocabulary: names that cannot leave their place, positions that order as elections need."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import InvalidTopicName
from millstream.model import (
    ORIGIN,
    Epoch,
    LogId,
    NodeId,
    Position,
    incarnation_of,
    node_of,
    replica_id,
    topic_name,
)


@pytest.mark.parametrize("name", ["a", "orders", "A.b_c-9", "x" * 249, "..."])
def test_good_names_pass(name: str) -> None:
    assert topic_name(name) == name


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "../etc", "a\\b", "x" * 250, "naïve", "a b", "a\n", "a\0b"]
)
def test_a_name_that_could_be_more_than_a_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidTopicName):
        topic_name(name)


@given(st.text(max_size=40))
def test_whatever_passes_is_one_plain_path_segment(name: str) -> None:
    try:
        topic_name(name)
    except InvalidTopicName:
        return

    assert set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
    assert name not in {".", ".."}


@given(st.uuids(), st.integers(0, 10**6))
def test_a_log_id_is_read_back_from_its_text(topic_id: UUID, partition: int) -> None:
    log = LogId(topic_id, partition)

    assert LogId.parse(str(log)) == log
    assert "/" not in str(log)


@pytest.mark.parametrize("text", ["", "orders-0", "0-0", f"{UUID(int=1).hex}-01", "..-0"])
def test_other_text_is_no_log_id(text: str) -> None:
    with pytest.raises(ValueError):
        LogId.parse(text)


def test_positions_order_by_epoch_then_length() -> None:
    assert ORIGIN < Position(Epoch(1), 0) < Position(Epoch(1), 5) < Position(Epoch(2), 3)


@pytest.mark.parametrize("incarnation", [0, 1, 2**43 - 1])
@pytest.mark.parametrize("node", [0, 1, 2**20 - 1])
def test_a_replica_id_is_its_node_and_its_incarnation(node: int, incarnation: int) -> None:
    replica = replica_id(NodeId(node), incarnation)

    assert (node_of(replica), incarnation_of(replica)) == (node, incarnation)
    assert replica < 2**63
    assert incarnation > 0 or replica == node
