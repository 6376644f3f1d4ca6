"""Records over REST: pages in both orders, filters, one record, tail, export, producing."""

import http.client
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from millstream.client import connect
from tests.support.http import HttpClient, HttpNode, http_node
from tests.support.kafka_clients import until


@pytest.fixture(scope="module")
def node() -> Iterator[HttpNode]:
    with http_node() as started:
        started.ask.post("/v1/topics", {"name": "orders", "partitions": 3})
        records = [
            {
                "key": f"k{at}",
                "value": {"json": {"id": at}},
                "partition": at % 3,
                "timestamp_ms": 1_700_000_000_000 + at,
            }
            for at in range(30)
        ]
        assert started.ask.post("/v1/topics/orders/records", {"records": records}).status == 200
        yield started


def pages(ask: HttpClient, query: str) -> list[list[dict[str, Any]]]:
    """All pages, up to the last one."""
    collected, after = [], ""
    while True:
        page = ask.get(f"/v1/topics/orders/records?{query}&after={after}").json
        collected.append(page["items"])
        after = page["next"]
        if after is None:
            return collected
        assert len(collected) < 100


def ids(page: list[dict[str, Any]]) -> list[int]:
    return [record["value"]["json"]["id"] for record in page]


@pytest.mark.parametrize("limit", [1, 4, 7, 30, 100])
def test_pages_show_every_record_once_by_time(ask: HttpClient, limit: int) -> None:
    shown = [each for page in pages(ask, f"limit={limit}") for each in ids(page)]

    assert shown == list(range(30))


@pytest.mark.parametrize("limit", [1, 4, 7, 30, 100])
def test_pages_go_backwards_from_the_newest(ask: HttpClient, limit: int) -> None:
    shown = [each for page in pages(ask, f"limit={limit}&order=newest") for each in ids(page)]

    assert shown == list(reversed(range(30)))


def test_a_filter_shows_what_matches_and_how_far_it_looked(ask: HttpClient) -> None:
    page = ask.get("/v1/topics/orders/records?filter=key%20%3D%3D%20%22k7%22").json

    assert ids(page["items"]) == [7]
    assert page["stopped"] == "end"
    assert page["scanned"]["records"] == 30


def test_a_search_tells_what_it_read_and_what_an_index_spared(ask: HttpClient) -> None:
    settings = {"index.key": "true"}
    assert ask.post("/v1/topics", {"name": "indexed", "settings": settings}).status == 201
    for batch in range(4):
        numbers = range(batch * 500, batch * 500 + 500)
        records = [
            {"key": f"k{number}", "value": {"json": "v" * 100}, "partition": 0}
            for number in numbers
        ]
        assert ask.post("/v1/topics/indexed/records", {"records": records}).status == 200

    def scanned(text: str) -> dict[str, int]:
        page = ask.get(f"/v1/topics/indexed/records?filter={quote(text)}").json
        assert [record["offset"] for record in page["items"]] == [700]
        figures: dict[str, int] = page["scanned"]
        return figures

    whole = scanned("key >= 'k700' and key <= 'k700'")  # A filter that no index serves.
    log_bytes, skipped_bytes = whole["log_bytes"], whole["skipped_bytes"]
    until(lambda: scanned("key == 'k700'")["skipped_bytes"] > log_bytes / 2, "the index")

    assert (log_bytes > 4 * 500 * 100, skipped_bytes) == (True, 0)
    assert 500 * 100 < scanned("key == 'k700'")["log_bytes"] < log_bytes / 2


def test_places_are_offsets_times_and_words(ask: HttpClient) -> None:
    def shown(query: str) -> list[int]:
        return ids(ask.get(f"/v1/topics/orders/records?{query}").json["items"])

    assert shown("from=8&partition=0") == [24, 27]
    assert shown("from=@1700000000027") == [27, 28, 29]
    assert shown("from=2023-11-14T22:13:20.027Z") == [27, 28, 29]
    assert shown("from=8&until=9&partition=0") == [24]
    assert shown("from=latest") == []
    assert ask.get("/v1/topics/orders/records?from=soon").status == 400
    assert ask.get("/v1/topics/orders/records?filter=%28").status == 422
    assert ask.get("/v1/topics/orders/records?partition=9").status == 404


def test_one_record_and_its_bare_value(ask: HttpClient) -> None:
    record = ask.get("/v1/topics/orders/records/1/2").json
    bare = ask.get("/v1/topics/orders/records/1/2?raw=true")

    assert (record["partition"], record["offset"], record["key"]["text"]) == (1, 2, "k7")
    assert (bare.headers["content-type"], bare.text) == ("application/octet-stream", b'{"id": 7}')
    assert ask.get("/v1/topics/orders/records/1/99").status == 422


def test_bytes_are_shown_as_they_are(ask: HttpClient, node: HttpNode) -> None:
    values = [
        b"\xff\x00",
        b"{not json",
        "žluť".encode(),
        b"x" * 100,
        None,
        b"",
        b'{"n":9007199254740993}',
    ]
    with connect(node.broker.bootstrap) as client, client.producer() as producer:
        for value in values:
            producer.send("bytes", value).result(30)

    page = ask.get("/v1/topics/bytes/records?value_bytes=50").json
    shown = [record["value"] for record in page["items"]]

    assert shown[0] == {"size": 2, "base64": "/wA="}
    assert shown[1] == {"size": 9, "text": "{not json"}
    assert shown[2] == {"size": 6, "text": "žluť"}
    assert shown[3] == {"size": 100, "text": "x" * 50, "cut": True}
    assert shown[4] is None
    assert shown[5] == {"size": 0, "text": ""}
    assert shown[6]["json"] == {"n": 9007199254740993}


def test_records_are_produced_with_all_options(ask: HttpClient) -> None:
    ask.post("/v1/topics", {"name": "made", "settings": {"message_id_window_ms": 60_000}})
    body = {
        "records": [
            {"value": "plain", "headers": {"h": "1"}, "message_id": "a"},
            {"value": {"base64": "AP8="}, "key": {"text": "k"}, "message_id": "a"},
            {"value": None, "key": "gone"},
            {"value": "later", "delay_ms": 60_000},
        ]
    }

    first, second, third, fourth = ask.post("/v1/topics/made/records", body).json["items"]

    assert (first["offset"], third["offset"]) == (0, 2)
    assert (second["offset"], second["is_duplicate"]) == (0, True)
    assert fourth["delayed_id"]


def test_the_same_key_produces_once_also_without_a_remembered_answer(ask: HttpClient) -> None:
    ask.post("/v1/topics", {"name": "keyed", "settings": {"message_id_window_ms": 60_000}})
    key = {"Idempotency-Key": "batch-1"}
    body = {"records": [{"value": "a"}]}

    first = ask("POST", "/v1/topics/keyed/records", body, headers=key).json
    again = ask("POST", "/v1/topics/keyed/records", body, headers=key).json

    assert first == again
    assert ask.get("/v1/topics/keyed").json["records"] == 1


@pytest.mark.parametrize(
    "record",
    [
        {"value": {"json": 1, "text": "a"}},
        {"value": {}},
        {"value": {"base64": "!"}},
        {"valu": "a"},
        {"timestamp": "soon"},
    ],
)
def test_a_wrong_record_is_refused_and_none_is_written(
    ask: HttpClient, record: dict[str, Any]
) -> None:
    before = ask.get("/v1/topics/orders").json["records"]

    answer = ask.post("/v1/topics/orders/records", {"records": [{"value": "a"}, record]})

    assert answer.status == 400, answer.text
    assert ask.get("/v1/topics/orders").json["records"] == before


def test_lines_are_answered_line_by_line(ask: HttpClient) -> None:
    lines = [json.dumps({"value": str(at)}) for at in range(1_000)]
    lines[7] = "{nonsense"
    answer = ask(
        "POST",
        "/v1/topics/lines/records",
        raw="\n".join(lines).encode(),
        headers={"Content-Type": "application/x-ndjson"},
    )

    results = [json.loads(line) for line in answer.text.splitlines()]
    assert answer.status == 200
    assert len(results) == 1_000
    assert results[7]["error"] == "invalid_request"
    assert results[999]["offset"] == 998


def test_an_export_has_every_record(ask: HttpClient) -> None:
    lines = ask.get("/v1/topics/orders/records/export").text.splitlines()
    table = ask.get("/v1/topics/orders/records/export?format=csv&partition=0").text.splitlines()

    assert len(lines) == 30
    assert table[0] == b"partition,offset,timestamp,key,value,headers"
    assert table[1] == b'0,0,2023-11-14T22:13:20.000Z,k0,"{""id"": 0}",'


def events(response: http.client.HTTPResponse) -> Iterator[tuple[str, str, Any]]:
    name = cursor = ""
    data: Any = None
    while line := response.readline():
        text = line.decode().rstrip("\n")
        if text.startswith("event: "):
            name = text[7:]
        elif text.startswith("id: "):
            cursor = text[4:]
        elif text.startswith("data: "):
            data = json.loads(text[6:])
        elif not text and name:
            yield name, cursor, data
            name = cursor = ""


def test_a_tail_goes_on_from_its_cursor(node: HttpNode) -> None:
    ask = node.ask
    ask.post("/v1/topics", {"name": "live"})

    def opened(cursor: str) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection("127.0.0.1", ask.port, timeout=30)
        headers = {"Last-Event-ID": cursor} if cursor else {}
        connection.request("GET", "/v1/topics/live/records/tail", headers=headers)
        return connection

    connection = opened("")
    response = connection.getresponse()
    assert response.headers["Content-Type"] == "text/event-stream"
    ask.post("/v1/topics/live/records", {"records": [{"value": "one"}]})
    name, cursor, record = next(events(response))
    connection.close()
    ask.post("/v1/topics/live/records", {"records": [{"value": "two"}]})
    again = opened(cursor)
    _, _, second = next(events(again.getresponse()))
    again.close()

    assert (name, record["value"]["text"], second["value"]["text"]) == ("record", "one", "two")


def test_a_tail_of_an_unknown_topic_is_an_answer_and_no_stream(ask: HttpClient) -> None:
    assert ask.get("/v1/topics/nope/records/tail").status == 404


def test_a_stopping_node_ends_its_streams_with_a_reason() -> None:
    with http_node() as node:
        node.ask.post("/v1/topics", {"name": "live"})
        connection = http.client.HTTPConnection("127.0.0.1", node.ask.port, timeout=30)
        connection.request("GET", "/v1/topics/live/records/tail")
        stream = events(connection.getresponse())
    name, _, data = next(stream)

    assert (name, data) == ("end", {"reason": "stopping"})
    connection.close()


def test_partitions_grow_and_are_truncated(ask: HttpClient) -> None:
    ask.post("/v1/topics", {"name": "parts"})
    ask.post("/v1/topics/parts/records", {"records": [{"value": str(at)} for at in range(10)]})

    grown = ask.post("/v1/topics/parts:grow", {"count": 3}).json
    planned = ask.post("/v1/topics/parts:truncate", {"before": {"0": 4}, "dry_run": True}).json
    cut = ask.post("/v1/topics/parts:truncate", {"before": {"0": 4}}).json
    listed = ask.get("/v1/topics/parts/partitions?limit=2").json

    assert grown["partitions"] == 3
    assert planned["items"] == cut["items"]
    assert cut["items"][0]["records"] == 4
    first = listed["items"][0]
    assert (first["low_watermark"], first["high_watermark"], first["leader"]) == (4, 10, 1)
    assert listed["next"]
    assert ask.get("/v1/topics/parts/partitions/0").json["last_time_ms"] > 0
    assert ask.get("/v1/topics/parts/partitions/0/producers").json["items"] == []
    assert ask.get("/v1/topics/parts/partitions/7").status == 404
