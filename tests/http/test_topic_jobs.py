"""Jobs over a topic: copies and profiles."""

import time
from typing import Any

from millstream.codec.records import Record
from millstream.protocols.http.records.profile import KEYS_COUNTED_MAX, Profile
from tests.support.http import HttpClient

HOUR_MS = 3_600_000


def ended(ask: HttpClient, job: dict[str, Any]) -> dict[str, Any]:
    deadline = time.monotonic() + 30
    while job["state"] == "running" and time.monotonic() < deadline:
        job = ask.get(f"/v1/jobs/{job['id']}").json
    return job


def fill(ask: HttpClient, topic: str, count: int) -> None:
    ask.post("/v1/topics", {"name": topic, "partitions": 2})
    records = [
        {
            "key": f"k{at % 3}",
            "value": {"json": {"at": at}},
            "headers": {"h": "1"},
            "partition": at % 2,
            "timestamp_ms": 1_000 + at * HOUR_MS,
        }
        for at in range(count)
    ]
    assert ask.post(f"/v1/topics/{topic}/records", {"records": records}).status == 200


def test_a_topic_is_copied_as_it_is(ask: HttpClient) -> None:
    fill(ask, "source", 10)
    ask.post("/v1/topics", {"name": "target", "partitions": 2})

    begun = ask.post("/v1/topics/source:copy", {"to": "target"})
    job = ended(ask, begun.json)

    assert (begun.status, begun.headers["location"]) == (202, f"/v1/jobs/{begun.json['id']}")
    assert job["result"] == {
        "to": "target",
        "read": 10,
        "written": 10,
        "duplicates": 0,
        "dry_run": False,
    }
    before = ask.get("/v1/topics/source/records").json["items"]
    after = ask.get("/v1/topics/target/records").json["items"]
    assert [each | {"topic": "source"} for each in after] == before


def test_a_part_of_a_topic_is_copied_or_only_counted(ask: HttpClient) -> None:
    fill(ask, "whole", 10)
    ask.post("/v1/topics", {"name": "part"})
    some = {"to": "part", "filter": "$.at >= 4", "until": "4"}

    counted = ended(ask, ask.post("/v1/topics/whole:copy", {**some, "dry_run": True}).json)
    nothing = ask.get("/v1/topics/part").json["records"]
    copied = ended(ask, ask.post("/v1/topics/whole:copy", some).json)

    assert (counted["result"]["read"], counted["result"]["written"], nothing) == (4, 0, 0)
    assert copied["result"]["written"] == 4
    values = [each["value"]["json"] for each in ask.get("/v1/topics/part/records").json["items"]]
    assert sorted(value["at"] for value in values) == [4, 5, 6, 7]


def test_records_with_ids_are_copied_once(ask: HttpClient) -> None:
    ask.post("/v1/topics", {"name": "named"})
    ask.post("/v1/topics/named/records", {"records": [{"value": "x", "message_id": "one"}]})
    ask.post("/v1/topics", {"name": "again", "settings": {"message_id_window_ms": HOUR_MS}})

    first = ended(ask, ask.post("/v1/topics/named:copy", {"to": "again"}).json)
    second = ended(ask, ask.post("/v1/topics/named:copy", {"to": "again"}).json)

    assert (first["result"]["written"], second["result"]["duplicates"]) == (1, 1)


def test_a_copy_that_cannot_be_is_refused(ask: HttpClient) -> None:
    fill(ask, "lonely", 1)

    assert ask.post("/v1/topics/lonely:copy", {"to": "lonely"}).status == 422
    assert ask.post("/v1/topics/lonely:copy", {"to": "nowhere"}).status == 404
    assert ask.post("/v1/topics/nowhere:copy", {"to": "lonely"}).status == 404
    assert ask.post("/v1/topics/lonely:copy", {"to": "x", "size": 1}).status == 400


def test_a_slow_copy_shows_how_far_it_is_and_stops(ask: HttpClient) -> None:
    fill(ask, "slow", 10)
    ask.post("/v1/topics", {"name": "slowly", "partitions": 2})

    job = ask.post("/v1/topics/slow:copy", {"to": "slowly", "rate": 0.001}).json
    deadline = time.monotonic() + 30
    while job["result"]["written"] == 0 and time.monotonic() < deadline:
        job = ask.get(f"/v1/jobs/{job['id']}").json
    stopped = ended(ask, ask("DELETE", f"/v1/jobs/{job['id']}").json)

    assert (job["state"], job["result"]["written"]) == ("running", 5)
    assert (stopped["state"], stopped["result"]["written"]) == ("stopped", 5)


def test_a_profile_says_how_the_records_are(ask: HttpClient) -> None:
    fill(ask, "profiled", 9)
    ask.post("/v1/topics/profiled/records", {"records": [{"value": None, "partition": 0}]})

    job = ended(ask, ask.post("/v1/topics/profiled:profile", {}).json)
    profile = job["result"]

    assert (profile["records"], profile["values"]["nulls"], profile["keys"]["sizes"]["nulls"]) == (
        10,
        1,
        1,
    )
    assert profile["keys"]["distinct"] == 3
    assert [each["count"] for each in profile["keys"]["most_frequent"]] == [3, 3, 3]
    assert profile["keys"]["most_frequent"][0]["key"]["text"] == "k0"
    assert [each["records"] for each in profile["partitions"]] == [6, 4]
    assert profile["skew"] == 1.2
    assert profile["headers"] == {"h": 9}
    assert profile["hours"][0] == {"hour": "1970-01-01T00:00:00.000Z", "records": 1}
    assert profile["values"]["buckets"] == [{"up_to_bytes": 16, "count": 9}]
    limited = ended(ask, ask.post("/v1/topics/profiled:profile", {"records_max": 4}).json)
    assert limited["result"]["records"] == 4


def test_a_profile_of_many_keys_stays_within_bounds() -> None:
    profile = Profile("t", shows_key=None)
    often = [Record(at, 0, b"often", b"") for at in range(500)]
    rare = [Record(at, 0, str(at).encode(), b"") for at in range(10 * KEYS_COUNTED_MAX)]
    for records in (rare[: len(rare) // 2], often, rare[len(rare) // 2 :]):
        for _ in profile.add(0, records):
            pass

    keys = profile.view().keys

    assert 0.9 < keys.distinct / len(rare) < 1.1
    (most, *_) = keys.most_frequent
    assert most.key is not None
    assert most.key.text == "often"
    assert most.count - most.count_error_max <= 500 <= most.count
