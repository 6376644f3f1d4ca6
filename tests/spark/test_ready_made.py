"""The ready-made pipelines as functions of frames: no broker, small frames."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import DataFrame, SparkSession

from millstream.spark.errors import InvalidOption
from millstream.spark.pipelines.ready import (
    aggregate,
    archive,
    dedup,
    dlq_report,
    enrich,
    records,
    redrive,
    replay,
    traffic,
    validate,
    watch,
)
from tests.spark.frames import Arrivals, at, frame_of, record, values, written

ORDER = "id bigint, amount double, currency string"


@pytest.fixture
def arrivals(spark: SparkSession, tmp_path: Path) -> Arrivals:
    return Arrivals(spark, tmp_path)


def parameters(module: Any, **values: Any) -> Any:
    """As from a file."""
    return msgspec.convert(values, module.Parameters)


# -- validate --------------------------------------------------------------------------------------

EXPECTATIONS = [
    {"name": "has id", "kind": "not_null", "field": "id"},
    {"name": "amount", "kind": "range", "field": "amount", "min": 0, "max": 1000},
    {"name": "currency", "kind": "regex", "field": "currency", "pattern": "[A-Z]{3}"},
    {"name": "not so odd", "kind": "expression", "sql": "id % 2 = 0", "action": "count"},
]


def checked(**changed: Any) -> Any:
    options = {"topic": "orders", "schema": ORDER, "expectations": EXPECTATIONS}
    return parameters(validate, **{**options, **changed})


def test_rows_are_sorted_into_good_and_bad_with_the_reason(spark: SparkSession) -> None:
    rows = [
        record({"id": 2, "amount": 5.5, "currency": "EUR"}, offset=7, headers=[("a", "b")]),
        record(
            {"amount": 2000, "currency": "eur"},
            offset=8,
            partition=1,
            headers=[("a", "b"), ("ms-subject", "orders.eu"), ("ms-ttl-ms", "5")],
        ),
        record({"id": "two"}, offset=9),
        record("not JSON", offset=10),
        record("", offset=11),
        record({"id": 3}, offset=12),
    ]

    good, bad, text, garbage, empty, odd = written(
        validate.validated(frame_of(spark, rows), checked())
    )

    assert (good["topic"], good["headers"], good["key"]) == ("orders.valid", {"a": "b"}, "k")
    assert json.loads(good["value"]) == {"id": 2, "amount": 5.5, "currency": "EUR"}
    assert bad["topic"] == "orders.dlq"
    assert bad["headers"] == {
        "a": "b",
        "ms-subject": "DLQ.orders.eu",
        "ms-dlq-subject": "orders.eu",
        "ms-dlq-topic": "orders",
        "ms-dlq-partition": "1",
        "ms-dlq-offset": "8",
        "ms-dlq-reason": "has id, amount, currency",
        "ms-dlq-error": "id must not be null; amount must be 0 to 1000; "
        "currency must match [A-Z]{3}",
    }
    assert {letter["headers"]["ms-dlq-reason"] for letter in (text, garbage, empty)} == {"schema"}
    assert (garbage["value"], garbage["headers"]["ms-subject"]) == ("not JSON", "DLQ.orders")
    assert odd["topic"] == "orders.valid", "an expectation that only counts stops nothing"


def test_an_absent_value_breaks_only_what_asks_for_it(spark: SparkSession) -> None:
    asked = checked(
        expectations=[
            *EXPECTATIONS[1:3],
            {"name": "a number", "kind": "type", "field": "currency", "type": "int"},
            {"name": "keyed", "kind": "not_null", "field": "record.key"},
        ]
    )
    rows = [record(None), record({}), record({"currency": "ABC"}), record({}, key=None)]

    rows_out = written(validate.validated(frame_of(spark, rows), asked))

    reasons = [row["headers"].get("ms-dlq-reason") for row in rows_out]
    assert reasons == [None, None, "a number", "keyed"]


def test_no_rows_stay_no_rows(spark: SparkSession) -> None:
    nothing = frame_of(spark, [])

    assert written(validate.validated(nothing, checked())) == []


def test_failures_are_counted_for_each_expectation(arrivals: Arrivals) -> None:
    asked = checked()
    made = validate.validated(arrivals.frame(), asked)

    rows = [record({"id": 1, "amount": -1}), record({"id": 2}), record("?")]
    _, (progress,) = arrivals.run(made, [rows])

    counted = validate.counted({"observed": progress["observedMetrics"]}, asked)
    assert counted == {
        "schema": {"good": 2, "bad": 1},
        "has id": {"good": 3, "bad": 0},
        "amount": {"good": 2, "bad": 1},
        "currency": {"good": 3, "bad": 0},
        "not so odd": {"good": 2, "bad": 1},
    }


# -- aggregate -------------------------------------------------------------------------------------

TOTALS = {
    "topic": "orders",
    "schema": "shop string, amount double",
    "group_by": ["shop"],
    "aggregates": {"orders": "count(*)", "total": "sum(amount)"},
    "to": "totals",
}


def sale(shop: str | None, amount: float | None, seconds: float) -> tuple[object, ...]:
    return record({"shop": shop, "amount": amount}, seconds=seconds)


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        ({"kind": "tumbling", "size": "1m"}, [(0, 60, 2, 3.0), (60, 120, 1, 4.0)]),
        (
            {"kind": "sliding", "size": "1m", "slide": "30 seconds"},
            [(-30, 30, 1, 1.0), (0, 60, 2, 3.0), (30, 90, 2, 6.0), (60, 120, 1, 4.0)],
        ),
        ({"kind": "session", "gap": "30s"}, [(0, 30, 1, 1.0), (40, 95, 2, 6.0)]),
    ],
)
def test_windows_hold_what_falls_into_them(
    spark: SparkSession, window: dict[str, str], expected: list[tuple[float, ...]]
) -> None:
    rows = [sale("a", 1, 0), sale("a", 2, 40), sale("a", 4, 65)]

    rows_out = aggregate.aggregated(
        frame_of(spark, rows), parameters(aggregate, **TOTALS, window=window)
    )

    figures = [
        (
            *(edge.astimezone(UTC) for edge in (row.window_start, row.window_end)),
            row.orders,
            row.total,
        )
        for row in rows_out.orderBy("window_start").collect()
    ]
    assert figures == [(at(first), at(last), n, total) for first, last, n, total in expected]


def test_figures_become_json_with_the_group_as_key(spark: SparkSession) -> None:
    asked = parameters(aggregate, **TOTALS, window={"kind": "tumbling", "size": "1m"})
    rows = [sale("a", 1, 0), sale("a", None, 1), sale(None, 2, 2), record("?"), record(None)]

    rows_out = written(aggregate.transform({"orders": frame_of(spark, rows)}, asked))

    by_key = {row["key"]: json.loads(row["value"]) for row in rows_out}
    assert by_key["a"]["total"] == 1.0
    assert by_key["a"]["orders"] == 2
    assert by_key["a"]["window_start"].startswith("2026-03-0")
    assert by_key[None]["orders"] == 2, "null is a group, and a null value is a row"
    assert by_key[None]["shop"] is None


def test_several_groups_are_a_key_of_json_and_may_be_sql(spark: SparkSession) -> None:
    options = {**TOTALS, "group_by": {"shop": "upper(shop)", "by": "record.partition"}}
    asked = parameters(aggregate, **options, window={"kind": "tumbling", "size": "1m"})

    (row,) = written(aggregate.transform({"orders": frame_of(spark, [sale("a", 1, 0)])}, asked))

    assert json.loads(row["key"]) == {"shop": "A", "by": 0}


def test_late_rows_are_left_out_and_counted(arrivals: Arrivals) -> None:
    options = {**TOTALS, "watermark": "30s", "window": {"kind": "tumbling", "size": "1m"}}
    asked = parameters(aggregate, **options)
    made = aggregate.as_records(aggregate.aggregated(arrivals.frame(), asked), asked)

    rows_out, progress = arrivals.run(
        made,
        [
            [sale("a", 1, 0), sale("a", 1, 200), record("?")],
            [sale("a", 64, 10), sale("a", 2, 210)],
            [sale("a", 1, 400)],
        ],
    )

    assert [value["total"] for value in values(rows_out)] == [1.0, 3.0]
    late = [report["stateOperators"][0]["numRowsDroppedByWatermark"] for report in progress]
    assert sum(late) == 1
    assert sum(report["observedMetrics"]["aggregate"]["malformed"] for report in progress) == 1


# -- dedup -----------------------------------------------------------------------------------------


def test_only_the_first_of_the_same_goes_on_while_it_is_remembered(arrivals: Arrivals) -> None:
    asked = parameters(
        dedup, topic="orders", to="once", schema="id bigint", by=["id"], watermark="1m"
    )
    made = dedup.deduplicated(arrivals.frame(), asked)

    rows_out, _ = arrivals.run(
        made,
        [
            [record({"id": 1}, seconds=0), record({"id": 1}, seconds=5), record("?")],
            [record({"id": 1}, seconds=10), record({"id": 2}, seconds=300)],
            [record({"id": 3}, seconds=310)],
            [record({"id": 1}, seconds=320, headers=[("a", "b")])],
        ],
    )

    assert [value["id"] for value in values(rows_out)] == [1, 2, 3, 1]
    assert rows_out[-1]["headers"] == {"a": "b"}
    assert {row["topic"] for row in rows_out} == {"once"}


def test_without_fields_the_key_says_what_is_the_same(spark: SparkSession) -> None:
    rows = [record("x", key="a"), record("y", key="a"), record("z", key=None), record("z", key="b")]

    rows_out = written(
        dedup.transform(
            {"orders": frame_of(spark, rows)}, parameters(dedup, topic="orders", to="t")
        )
    )

    assert sorted(str(row["key"]) for row in rows_out) == ["None", "a", "b"]


# -- watch -----------------------------------------------------------------------------------------

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
QUIET = {"topic": "orders", "to": "quiet", "after": "1m", "watermark": "5s"}


@pytest.mark.slow
def test_a_key_that_falls_silent_is_reported_when_others_go_on(
    arrivals: Arrivals, spark: SparkSession
) -> None:
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
    try:
        collected, _ = arrivals.run(
            watch.watched(arrivals.frame(), parameters(watch, **QUIET)),
            [
                [record("x", key="a", seconds=0), record("x", key="b", seconds=10)],
                [record("x", key="b", seconds=60), record("x", key="b", seconds=66)],
                [record("x", key="b", seconds=70)],
                [record("x", key="a", seconds=80), record("x", key="b", seconds=81)],
            ],
        )
    finally:
        spark.conf.unset("spark.sql.streaming.stateStore.providerClass")

    assert [(row["key"], row["topic"]) for row in collected] == [("a", "quiet")] * 2
    silent, back = values(collected)
    assert (silent["state"], silent["silent_seconds"]) == ("silent", 60.0)
    assert (back["state"], back["silent_seconds"]) == ("back", 80.0)


def test_a_batch_is_watched_to_its_latest_row(spark: SparkSession) -> None:
    rows = [
        record({"id": 1}, seconds=0),
        record({"id": 1}, seconds=100),
        record({"id": 2}, seconds=0),
        record({"id": 3}, seconds=90),
    ]
    asked = parameters(watch, **QUIET, schema="id bigint", by=["id"])

    collected = written(watch.transform({"orders": frame_of(spark, rows)}, asked))

    states = sorted(
        (row["key"], value["state"])
        for row, value in zip(collected, values(collected), strict=True)
    )
    assert states == [("1", "back"), ("1", "silent"), ("2", "silent")]


# -- enrich ----------------------------------------------------------------------------------------

JOINED = {
    "topic": "orders",
    "schema": "id bigint, customer string",
    "to": "rich",
    "join_on": "this.customer = other.record_key",
    "add": ["other.name", "other.id as customer_id"],
}
CUSTOMERS = {"kind": "topic", "topic": "customers", "schema": "id bigint, name string"}


def customers(spark: SparkSession) -> DataFrame:
    rows = [
        record({"id": 1, "name": "Ann"}, key="a", offset=0),
        record({"id": 1, "name": "Anna"}, key="a", offset=5),
        record({"id": 2, "name": "Bob"}, key="b", offset=1),
        record(None, key="b", offset=2),
        record("?", key="c", offset=3),
    ]
    return frame_of(spark, rows)


@pytest.mark.parametrize(("how", "ids"), [("left", [1, 2, 3]), ("inner", [1])])
def test_a_topic_as_a_table_gives_the_last_value_of_a_key(
    spark: SparkSession, how: str, ids: list[int]
) -> None:
    asked = parameters(enrich, **JOINED, other=CUSTOMERS, how=how)
    rows = [
        record({"id": 1, "customer": "a"}, headers=[("h", "1")]),
        record({"id": 2, "customer": "b"}),
        record({"id": 3}),
        record("?"),
    ]

    frames = {"orders": frame_of(spark, rows), "customers": customers(spark)}
    rows_out = written(enrich.transform(frames, asked))

    by_id = {json.loads(row["value"])["id"]: row for row in rows_out}
    assert sorted(by_id) == ids
    assert json.loads(by_id[1]["value"]) == {
        "id": 1,
        "customer": "a",
        "name": "Anna",
        "customer_id": 1,
    }
    assert (by_id[1]["headers"], by_id[1]["topic"]) == ({"h": "1"}, "rich")
    if how == "left":
        assert json.loads(by_id[2]["value"])["name"] is None


def test_streams_are_joined_within_a_time(arrivals: Arrivals, spark: SparkSession) -> None:
    other = {
        "kind": "stream",
        "topic": "payments",
        "schema": "order bigint, paid double",
        "within": "1m",
    }
    options = {**JOINED, "join_on": "this.id = other.order", "add": ["other.paid"], "how": "inner"}
    asked = parameters(enrich, **options, other=other)
    both = arrivals.frame()
    made = enrich.enriched(both.where("topic = 'orders'"), both.where("topic = 'payments'"), asked)

    rows = [
        record({"id": 1}, seconds=0),
        record({"id": 2}, seconds=0),
        record({"order": 1, "paid": 5.0}, topic="payments", seconds=50),
        record({"order": 2, "paid": 6.0}, topic="payments", seconds=70),
        record("?", topic="payments"),
    ]
    rows_out, _ = arrivals.run(made, [rows])

    assert list(values(rows_out)) == [{"id": 1, "customer": None, "paid": 5.0}]


# -- archive and replay ----------------------------------------------------------------------------


def test_an_archive_keeps_records_by_hour_in_utc(spark: SparkSession) -> None:
    asked = parameters(archive, topic="orders", path="x", schema="id bigint")
    rows = [record({"id": 1}), record("?", seconds=1800), record(None, offset=3), record({"id": 4})]

    rows_out = archive.archived(frame_of(spark, rows), asked).collect()

    assert [(str(row.date), row.hour) for row in rows_out[:2]] == [
        ("2026-03-01", 23),
        ("2026-03-02", 0),
    ]
    assert [row.data and row.data.id for row in rows_out] == [1, None, None, 4]
    assert bytes(rows_out[1].value) == b"?"


def test_a_replay_is_in_order_and_says_where_rows_were(spark: SparkSession) -> None:
    asked = parameters(
        replay,
        path="x",
        topic="orders",
        to="again",
        from_offset=1,
        until_time=at(100).isoformat(),
    )
    rows = [
        record("c", offset=3, seconds=3, partition=1, headers=[("ms-replay-offset", "9")]),
        record("b", offset=2, seconds=2, headers=[("h", "1")]),
        record("a", offset=1, seconds=1),
        record("-", offset=0),
        record("-", offset=4, seconds=100),
        record("-", offset=2, topic="others"),
    ]

    rows_out = written(replay.replayed(frame_of(spark, rows), asked))

    first, second = (row for row in rows_out if row["partition"] == 0)
    (other,) = (row for row in rows_out if row["partition"] == 1)
    assert [first["value"], second["value"], other["value"]] == ["a", "b", "c"]
    assert second["headers"] == {
        "h": "1",
        "ms-replay-topic": "orders",
        "ms-replay-partition": "0",
        "ms-replay-offset": "2",
    }
    assert second["timestamp"].timestamp() == at(2).timestamp()
    assert other["headers"]["ms-replay-offset"] == "3"
    assert {row["topic"] for row in rows_out} == {"again"}


def test_a_replay_may_have_times_of_its_own(spark: SparkSession) -> None:
    asked = parameters(replay, path="x", topic="orders", keeps_times=False)

    (row,) = written(replay.replayed(frame_of(spark, [record("a", seconds=2)]), asked))

    assert "timestamp" not in row
    assert row["headers"]["ms-replay-timestamp"] == str(int(at(2).timestamp() * 1000))


def test_paced_rows_come_no_faster(spark: SparkSession) -> None:
    started = datetime.now(UTC)

    rows = records.paced(frame_of(spark, [record(str(n)) for n in range(21)]), 40).collect()

    assert len(rows) == 21
    assert (datetime.now(UTC) - started).total_seconds() >= 0.5


# -- dead letters ----------------------------------------------------------------------------------


def letter(value: str, reason: str, **fields: Any) -> tuple[object, ...]:
    origin = {"topic": "orders", "partition": "1", "offset": "8", "reason": reason}
    headers = [("a", "b"), *((f"ms-dlq-{name}", text) for name, text in origin.items())]
    return record(value, topic="orders.dlq", headers=[*headers, *fields.pop("more", [])], **fields)


def test_letters_are_counted_by_reason_with_the_latest_as_samples(spark: SparkSession) -> None:
    rows = [letter(str(n), "amount", offset=n, seconds=n) for n in range(3)]
    rows += [letter("x", "schema"), record("y", topic="orders.dlq")]
    rows_out = dlq_report.letters(frame_of(spark, rows))

    counts = records.rows(dlq_report.counts(rows_out, "origin_topic", "reason"))
    samples = records.rows(dlq_report.samples(rows_out, 2))

    assert [(row["reason"], row["letters"]) for row in counts] == [
        ("amount", 3),
        ("schema", 1),
        ("unknown", 1),
    ]
    assert (counts[0]["origin_topic"], counts[0]["last"]) == ("orders", at(2).isoformat())
    shown = [row["value"] for row in samples if row["reason"] == "amount"]
    assert shown == ["2", "1"]


def test_letters_go_back_as_they_were(spark: SparkSession) -> None:
    asked = parameters(redrive, topic="orders.dlq", where="reason = 'amount'", attempts_max=2)
    rows = [
        letter("a", "amount"),
        letter("b", "schema"),
        letter("c", "amount", more=[("ms-redrive-count", "1")]),
        letter("d", "amount", more=[("ms-redrive-count", "2")]),
        letter("e", "amount", more=[("ms-subject", "DLQ.o.eu"), ("ms-dlq-subject", "o.eu")]),
        letter("f", "amount", more=[("ms-subject", "DLQ.orders")]),
    ]

    rows_out = written(redrive.redriven(frame_of(spark, rows), asked))

    assert [(row["value"], row["topic"], row["headers"]) for row in rows_out] == [
        ("a", "orders", {"a": "b", "ms-redrive-count": "1"}),
        ("c", "orders", {"a": "b", "ms-redrive-count": "2"}),
        ("e", "orders", {"a": "b", "ms-subject": "o.eu", "ms-redrive-count": "1"}),
        ("f", "orders", {"a": "b", "ms-redrive-count": "1"}),
    ]


# -- traffic ---------------------------------------------------------------------------------------


def test_traffic_is_measured_for_each_topic(spark: SparkSession) -> None:
    asked = parameters(
        traffic, topic="orders", schema="sent bigint", sent_at="timestamp_millis(sent)"
    )
    sent = int(at(0).timestamp() * 1000)
    rows = [
        record(
            {"sent": sent + 1000 * n - 10 * n}, seconds=n, key="k" if n else None, partition=n % 2
        )
        for n in range(11)
    ]
    rows += [record(None, topic="other")]

    rows_out = traffic.facts(frame_of(spark, rows), asked, at(100))
    tables = traffic.measured(rows_out, bucket_seconds=5, keys=1)

    orders, other = records.rows(tables.topics)
    assert (orders["records"], orders["partitions"], orders["without_key"]) == (11, 2, 1)
    assert orders["records_per_second"] == pytest.approx(1.1)
    assert (other["tombstones"], other["records_per_second"]) == (1, None)
    rates = [row for row in records.rows(tables.rates) if row["topic"] == "orders"]
    assert [row["records_per_second"] for row in rates] == [1.0, 1.0, 0.2]
    (latency,) = records.rows(tables.latency)
    assert (latency["ms_p50"], latency["ms_max"]) == (50.0, 100.0)
    assert [row["share"] for row in records.rows(tables.partitions)][:1] == [pytest.approx(6 / 11)]
    assert [row["key"] for row in records.rows(tables.keys)] == ["k", "k"]


def test_without_a_time_of_sending_latency_is_the_age(spark: SparkSession) -> None:
    asked = parameters(traffic, topic="orders")

    rows_out = traffic.facts(frame_of(spark, [record("x", seconds=90)]), asked, at(100))

    assert [row.latency_ms for row in rows_out.collect()] == [10_000.0]


# -- mistakes --------------------------------------------------------------------------------------

WINDOW = {"kind": "tumbling", "size": "1m"}


@pytest.mark.parametrize(
    ("module", "values", "said"),
    [
        (validate, {"topic": "a"}, "nothing is checked"),
        (validate, {"topic": " ", "schema": "a int"}, "topic is empty"),
        (validate, {"topic": "a", "schema": "a int", "dlq": "bad"}, "ends with .dlq"),
        (validate, {"topic": "a", "expectations": EXPECTATIONS[:1] * 2}, "'has id' twice"),
        (
            validate,
            {"topic": "a", "expectations": [{"name": "r", "kind": "range", "field": "x"}]},
            "without min and max - at `$.expectations[0]`",
        ),
        (validate, {"topic": "a", "expectations": [{"name": "r", "kind": "rnge"}]}, "'rnge'"),
        (aggregate, {**TOTALS, "window": {"kind": "tumbling", "size": "1 x"}}, "window.size is"),
        (aggregate, {**TOTALS, "window": WINDOW, "path": "p"}, "expected one of them"),
        (aggregate, {**TOTALS, "window": WINDOW, "aggregates": {}}, "aggregates is empty"),
        (aggregate, {**TOTALS, "window": WINDOW, "aggregates": {"shop": "1"}}, "'shop' twice"),
        (
            aggregate,
            {**TOTALS, "window": {"kind": "session", "gap": "1m"}, "emit": "updates"},
            "sessions can't have",
        ),
        (dedup, {"topic": "a", "to": "b", "watermark": "soon"}, "watermark is 'soon'"),
        (dedup, {"topic": "a", "to": "b", "by": []}, "by is empty"),
        (watch, {"topic": "a", "to": "b", "after": "soon"}, "after is 'soon'"),
        (watch, {"topic": "a", "to": "b", "after": "10ms"}, "expected at least a second"),
        (enrich, {**JOINED, "other": CUSTOMERS, "add": []}, "add is empty"),
        (enrich, {**JOINED, "other": {"kind": "tabel"}}, "'tabel'"),
        (archive, {"topic": "a", "path": ""}, "path is empty"),
        (archive, {"topic": "a", "path": "p", "trigger_records_max": 0}, "above 0"),
        (replay, {"topic": "a", "path": "p", "from_offset": 5, "until_offset": 5}, "not below"),
        (replay, {"topic": "a", "path": "p", "partitions": []}, "partitions is empty"),
        (redrive, {"topic": "a.dlq", "rows_per_second": -1}, "above 0"),
        (dlq_report, {"bucket": "1 century"}, "bucket is '1 century'"),
        (traffic, {"topic": "a", "keyz": 1}, "keyz"),
    ],
)
def test_a_mistake_in_parameters_is_one_sentence(module: Any, values: Any, said: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        parameters(module, **values)

    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("module", "values", "said"),
    [
        (validate, {"topic": "orders", "schema": "id bigit"}, "schema is 'id bigit'"),
        (validate, {"topic": "orders", "schema": "record int"}, "field record"),
        (
            validate,
            {
                "topic": "orders",
                "expectations": [{"name": "e", "kind": "expression", "sql": "nam > 1"}],
            },
            "expectation 'e' is 'nam > 1'",
        ),
        (
            validate,
            {
                "topic": "orders",
                "expectations": [
                    {"name": "e", "kind": "regex", "field": "record.value", "pattern": "[a"}
                ],
            },
            "expectation 'e' is '[a'",
        ),
        (
            aggregate,
            {**TOTALS, "window": WINDOW, "aggregates": {"t": "sum(amout)"}},
            "aggregates.t is 'sum(amout)'",
        ),
        (aggregate, {**TOTALS, "window": WINDOW, "time": "wen"}, "time is 'wen'"),
        (dedup, {"topic": "orders", "to": "b", "by": ["idd +"]}, "by is 'idd +'"),
        (
            enrich,
            {**JOINED, "other": CUSTOMERS, "join_on": "this.x = 1"},
            "join_on is 'this.x = 1'",
        ),
        (enrich, {**JOINED, "other": CUSTOMERS, "add": ["other.id"]}, "other.id as"),
        (redrive, {"topic": "orders", "where": "resaon = 1"}, "where is 'resaon = 1'"),
    ],
)
def test_a_mistake_in_sql_is_one_sentence_that_names_its_place(
    spark: SparkSession, module: Any, values: Any, said: str
) -> None:
    frames = {"orders": frame_of(spark, []), "customers": frame_of(spark, [])}

    with pytest.raises(InvalidOption) as caught:
        module.transform(frames, parameters(module, **values))

    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
