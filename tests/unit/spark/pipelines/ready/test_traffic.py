"""Buckets of the rates in a traffic report."""

from millstream.spark.pipelines.ready.traffic import bucket_seconds, filled


def moment(minute: int) -> str:
    return f"2026-03-01T12:{minute:02}:00+00:00"


def test_buckets_without_records_have_a_rate_of_zero() -> None:
    rates = [
        {"topic": topic, "time": moment(minute), "records_per_second": float(minute)}
        for topic in ("a", "b")
        for minute in range(3)
        if (topic, minute) != ("a", 1)
    ]

    every = filled(rates, 60)

    assert len(every) == 6
    assert [row["records_per_second"] for row in every if row["topic"] == "a"] == [0.0, 0.0, 2.0]


def test_buckets_are_round_and_few() -> None:
    assert [bucket_seconds(span) for span in (0, 120, 121, 7200, 10**7)] == [1, 1, 5, 60, 86_400]
