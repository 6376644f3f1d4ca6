"""Records over time by REST, and the segments of a partition."""

from tests.support.http import HttpClient

HOUR_MS = 3_600_000


def write(ask: HttpClient, topic: str, hours: list[int], partition: int = 0) -> None:
    """A record at each of these hours of one day."""
    records = [
        {"value": "x", "partition": partition, "timestamp": f"2026-11-17T{hour:02d}:00:00Z"}
        for hour in hours
    ]
    assert ask.post(f"/v1/topics/{topic}/records", {"records": records}).status == 200


def test_records_are_counted_by_the_time_they_have(ask: HttpClient) -> None:
    ask.post("/v1/topics", {"name": "hourly", "partitions": 2})
    for partition in (0, 1):
        for hour in (0, 0, 0, 5, 10):  # A batch each: the times of one batch are one range.
            write(ask, "hourly", [hour], partition)

    line = ask.get("/v1/topics/hourly/records/timeline?stretches=10").json

    assert line["until_ms"] - line["from_ms"] == 10 * HOUR_MS
    assert line["counts"] == [6, 0, 0, 0, 2, 0, 0, 0, 0, 2]
    assert (line["partitions_left_out"], line["is_estimated"]) == (0, False)


def test_one_partition_is_counted_alone_and_one_time_is_one_stretch(ask: HttpClient) -> None:
    ask.post("/v1/topics", {"name": "narrow", "partitions": 2})
    write(ask, "narrow", [3, 3, 3], partition=1)

    assert ask.get("/v1/topics/narrow/records/timeline?partition=1").json["counts"] == [3]
    assert ask.get("/v1/topics/narrow/records/timeline?partition=0").json["counts"] == []
    assert ask.get("/v1/topics/narrow/records/timeline?partition=2").status == 404
    assert ask.get("/v1/topics/narrow/records/timeline?stretches=0").status == 400


def test_times_that_go_back_lose_no_record(ask: HttpClient) -> None:
    ask.post("/v1/topics", {"name": "backwards"})
    for hour in (9, 2, 7, 1, 8):
        write(ask, "backwards", [hour])

    line = ask.get("/v1/topics/backwards/records/timeline?stretches=8").json

    assert sum(line["counts"]) == 5


def test_a_partition_lists_its_segments(ask: HttpClient) -> None:
    ask.post("/v1/topics", {"name": "cut", "settings": {"segment.bytes": "1024"}})
    for _ in range(4):
        answer = ask.post("/v1/topics/cut/records", {"records": [{"value": "x" * 700}]})
        assert answer.status == 200

    segments = ask.get("/v1/topics/cut/partitions/0").json["segment_list"]

    assert [each["base_offset"] for each in segments] == [0, 1, 2, 3]
    assert [each["end_offset"] for each in segments] == [1, 2, 3, 4]
    assert all(each["bytes"] > 700 for each in segments)
    assert all(each["last_time_ms"] > 0 and each["problem"] is None for each in segments)
