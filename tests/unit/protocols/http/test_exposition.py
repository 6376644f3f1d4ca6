"""The text format of Prometheus."""

from millstream.metrics import (
    APPEND_SECONDS,
    CONNECTIONS_TAKEN,
    GROUP_LAG,
    LEADERS,
    SYNC_ROUNDS,
    Histogram,
    Sample,
)
from millstream.protocols.http.wire.exposition import head_lines, sample_lines


def exposition(*samples: Sample, is_open: bool = False) -> str:
    """Of samples of one metric."""
    head = head_lines(samples[0].metric, is_open=is_open)
    return head + "".join(sample_lines(samples, is_open=is_open))


def test_samples_stand_below_their_metric_and_labels_are_escaped() -> None:
    assert exposition(
        Sample(GROUP_LAG, ('a "b"\\\n', "orders"), 1e15),
        Sample(GROUP_LAG, ("c", "orders"), 0.5),
    ) == (
        f"# HELP millstream_group_lag {GROUP_LAG.help}\n"
        "# TYPE millstream_group_lag gauge\n"
        'millstream_group_lag{group="a \\"b\\"\\\\\\n",topic="orders"} 1000000000000000\n'
        'millstream_group_lag{group="c",topic="orders"} 0.5\n'
    )
    assert exposition(Sample(LEADERS, (), 2)).endswith("\nmillstream_leaders 2\n")


def test_a_histogram_sums_its_buckets_up() -> None:
    histogram = Histogram()
    for seconds in (0.0005, 0.0006, 3.0, 60.0):
        histogram.observe(seconds)
    sample = Sample(APPEND_SECONDS, ("kafka", "all"), 4, histogram.observed())

    lines = exposition(sample).splitlines()[2:]

    labels = 'protocol="kafka",acks="all"'
    assert len(lines) == sample.series_count == 16
    assert lines[0] == f'millstream_append_seconds_bucket{{{labels},le="0.0005"}} 1'
    assert lines[1] == f'millstream_append_seconds_bucket{{{labels},le="0.001"}} 2'
    assert lines[12] == f'millstream_append_seconds_bucket{{{labels},le="10"}} 3'
    assert lines[13] == f'millstream_append_seconds_bucket{{{labels},le="+Inf"}} 4'
    assert lines[14].startswith(f"millstream_append_seconds_sum{{{labels}}} 63.0011")
    assert lines[15] == f"millstream_append_seconds_count{{{labels}}} 4"


def test_openmetrics_names_families_without_total_and_shows_exemplars() -> None:
    histogram = Histogram()
    histogram.observe(0.002)
    histogram.exemplify(0.002, "ab" * 16, 1_700_000_000.5)
    sample = Sample(APPEND_SECONDS, ("kafka", "1"), 1, histogram.observed())

    assert exposition(Sample(SYNC_ROUNDS, (), 7), is_open=True).splitlines()[1:] == [
        "# TYPE millstream_sync_rounds counter",
        "millstream_sync_rounds_total 7",
    ]
    # There is a gauge of that name without `_total`.
    assert "# TYPE millstream_connections_total unknown" in exposition(
        Sample(CONNECTIONS_TAKEN, ("kafka",), 1), is_open=True
    )
    bucket = exposition(sample, is_open=True).splitlines()[4]
    assert bucket.endswith('le="0.0025"} 1 # {trace_id="' + "ab" * 16 + '"} 0.002 1700000000.500')
    assert "trace_id" not in exposition(sample)
