"""Errors cross from node to node as themselves, with their sentences and attributes."""

import pytest

from millstream.engine.cluster.peer_calls import decode_problem, encode_problem
from millstream.errors import NotLeader, RequestError, StaleProducerEpoch, TopicExists
from millstream.errors.cluster import UnknownNode


@pytest.mark.parametrize(
    "problem", [NotLeader("orders-0", 2), TopicExists("orders"), UnknownNode(9)]
)
def test_an_error_crosses_as_itself(problem: RequestError) -> None:
    copy = decode_problem(encode_problem(problem))

    assert type(copy) is type(problem)
    assert str(copy) == str(problem)
    assert vars(copy) == vars(problem)


def test_an_error_of_another_version_keeps_its_sentence() -> None:
    class Fresh(RequestError):
        pass

    sent = encode_problem(Fresh("of a later version"))
    del Fresh

    assert str(decode_problem(sent)) == "of a later version"


def test_what_cannot_be_carried_is_left_out() -> None:
    problem = NotLeader("orders-0", None)
    problem.target = object()  # type: ignore[attr-defined]

    copy = decode_problem(encode_problem(problem))

    assert isinstance(copy, NotLeader)
    assert copy.leader is None
    assert not isinstance(copy, StaleProducerEpoch)
