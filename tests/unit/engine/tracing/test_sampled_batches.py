"""The batches with sampled records that are remembered for their readers."""

from uuid import UUID

from millstream.engine.tracing.sampled_batches import SampledBatches
from millstream.model import LogId
from millstream.tracing.spans import LINKS_MAX, TraceContext

LOG, OTHER = LogId(UUID(int=1), 0), LogId(UUID(int=1), 1)


def contexts(first: int, count: int = 1) -> list[TraceContext]:
    return [TraceContext(7, first + at) for at in range(count)]


def test_a_reader_gets_the_contexts_of_its_batches_only() -> None:
    batches = SampledBatches()
    batches.add(LOG, 10, contexts(1, 2))
    batches.add(LOG, 20, contexts(3))
    batches.add(LOG, 30, contexts(4))
    batches.add(OTHER, 20, contexts(5))

    assert batches.between(LOG, 10, 30) == contexts(1, 3)
    assert batches.between(LOG, 11, 20) == []
    assert batches.between(OTHER, 0, 100) == contexts(5)
    assert batches.between(LogId(UUID(int=2), 0), 0, 100) == []


def test_batches_that_end_out_of_order_are_found_in_order() -> None:
    batches = SampledBatches()
    for offset in (30, 10, 20):
        batches.add(LOG, offset, contexts(offset))

    assert [each.span_id for each in batches.between(LOG, 0, 100)] == [10, 20, 30]


def test_the_oldest_are_forgotten() -> None:
    batches = SampledBatches(records_max=4)
    batches.add(OTHER, 0, contexts(1))
    for offset in range(3):
        batches.add(LOG, offset, contexts(10 * offset + 2, 2))

    assert batches.between(OTHER, 0, 10) == []
    assert batches.between(LOG, 0, 10) == contexts(12, 2) + contexts(22, 2)


def test_links_of_one_reader_are_bounded() -> None:
    batches = SampledBatches()
    for offset in range(10):
        batches.add(LOG, offset, contexts(1 + 100 * offset, 100))

    assert len(batches.between(LOG, 0, 100)) == LINKS_MAX
