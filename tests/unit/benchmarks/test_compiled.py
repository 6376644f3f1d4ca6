"""What the compiled client prints is taken for what it says, or for nothing."""

import pytest
from benchmarks.kafka.compiled import parse
from benchmarks.kafka.trials import TrialFailed

PRODUCED = (
    "% 98 backpressures for 500000 produce calls: 0.020% backpressure rate\n"
    "% 500000 messages produced (512000000 bytes), 499999 delivered (offset 499998, 1 failed) "
    "in 1731ms: 288683 msgs/s and 295.61 MB/s, 98 produce failures, 0 in queue, no compression\n"
)
CONSUMED = "% 500000 messages (512000000 bytes) consumed in 400ms: 1250000 msgs/s (1280.00 MB/s)\n"


def test_a_record_that_was_not_delivered_does_not_count() -> None:
    assert parse("produce", PRODUCED) == (499_999, 1.731)


def test_consumed_records_are_counted() -> None:
    assert parse("consume", CONSUMED) == (500_000, 0.4)


def test_other_words_are_no_figure() -> None:
    with pytest.raises(TrialFailed, match="no such broker"):
        parse("consume", PRODUCED + "no such broker")
