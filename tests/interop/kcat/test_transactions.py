"""kcat writes what it is given in one transaction."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop.kcat.clients import Kcat, Running, until
from tests.interop.samples import needs
from tests.support.broker_process import BrokerProcess

pytestmark = [pytest.mark.interop, needs(22, 24, 26)]
DIRTY = ["-X", "isolation.level=read_uncommitted"]  # read_committed is kcat's own choice.
Begin = Callable[..., Running]


@pytest.fixture
def begin(kcat: Kcat, topic: str, tmp_path: Path) -> Iterator[Begin]:
    """Start a producer that writes these values and keeps its transaction open."""
    producers: list[Running] = []

    def one_more(name: str, *values: str, before: int = 0) -> Running:
        how = ["-P", "-t", topic, "-p", "0", "-X", f"transactional.id={topic}"]
        producer = kcat.start(tmp_path, name, *how)
        producers.append(producer)
        producer.tell(*values)
        seen = before + len(values)
        until(lambda: len(kcat.values(topic, *DIRTY)) == seen, "they are written", producer)
        return producer

    kcat.write(topic, ["first"])
    yield one_more
    for producer in producers:
        producer.kill()


def test_an_open_transaction_holds_readers_back_until_it_commits(
    kcat: Kcat, topic: str, begin: Begin
) -> None:
    producer = begin("producer", "a", "b", before=1)
    kcat.write(topic, ["behind"])
    while_open = kcat.values(topic)

    assert producer.finish() == 0, producer.said

    assert while_open == ["first"]
    assert kcat.values(topic) == ["first", "a", "b", "behind"]


def test_what_was_aborted_is_read_by_those_who_do_not_mind_only(
    kcat: Kcat, topic: str, begin: Begin
) -> None:
    producer = begin("producer", "gone", before=1)

    producer.interrupt()
    kcat.write(topic, ["last"])

    assert kcat.values(topic) == ["first", "last"]
    assert kcat.values(topic, *DIRTY) == ["first", "gone", "last"]


def test_a_producer_is_fenced_by_the_next_one_of_its_name(
    kcat: Kcat, topic: str, begin: Begin
) -> None:
    stale = begin("stale", "stale", before=1)
    fresh = begin("fresh", "fresh", before=2)

    assert stale.finish() != 0
    assert fresh.finish() == 0, fresh.said

    assert "fenced" in stale.said.lower()
    assert kcat.values(topic) == ["first", "fresh"]


def test_a_committed_transaction_outlives_a_killed_broker_and_an_open_one_can_be_ended(
    broker: BrokerProcess, kcat: Kcat, topic: str, begin: Begin
) -> None:
    kept = begin("kept", "kept", before=1)
    assert kept.finish() == 0, kept.said
    still_open = begin("open", "open", before=2)

    broker.kill()
    broker.start()

    assert still_open.finish() == 0, still_open.said
    assert kcat.values(topic) == ["first", "kept", "open"]


def test_a_timeout_beyond_what_the_broker_allows_is_refused(kcat: Kcat, topic: str) -> None:
    how = ["-X", f"transactional.id={topic}", "-X", "transaction.timeout.ms=3600000"]

    said = kcat.refusal("-P", "-t", topic, *how, "-X", "message.timeout.ms=10000", stdin=b"a\n")

    assert "Transaction timeout is larger than the maximum value allowed" in said
