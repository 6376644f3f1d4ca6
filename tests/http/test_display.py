"""Records as REST shows them: decoded behind a schema's frame, masked where a topic asks for it."""

import http.client
import json
import struct
from base64 import b64encode
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pytest

from tests.support.http import HttpClient, secured_http_node

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
PROTO = 'syntax = "proto3"; message Outer { message Inner { string id = 1; int64 n = 2; } }'
JSON = {"type": "object", "properties": {"id": {"type": "integer"}}}


def framed(number: int, payload: bytes) -> dict[str, str]:
    return {"base64": b64encode(struct.pack(">bi", 0, number) + payload).decode()}


def avro(value: Any) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(ORDER), value)
    return out.getvalue()


def register(ask: HttpClient, subject: str, schema: object, kind: str = "AVRO") -> int:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    made = ask.post(f"/subjects/{subject}/versions", {"schema": text, "schemaType": kind})
    assert made.status == 200, made.text
    number: int = made.json["id"]
    return number


def produce(ask: HttpClient, topic: str, *records: dict[str, Any]) -> None:
    made = ask.post(f"/v1/topics/{topic}/records", {"records": list(records)})
    assert made.status == 200, made.text


def shown(ask: HttpClient, topic: str, query: str = "") -> list[dict[str, Any]]:
    answer = ask.get(f"/v1/topics/{topic}/records?{query}")
    assert answer.status == 200, answer.text
    items: list[dict[str, Any]] = answer.json["items"]
    return items


def test_values_behind_a_frame_are_decoded(ask: HttpClient) -> None:
    order = register(ask, "orders-value", ORDER)
    key = register(ask, "orders-key", {"type": "string"})
    proto = register(ask, "shop", PROTO, "PROTOBUF")
    plain = register(ask, "plain", JSON, "JSON")
    record = {"id": 2**53 + 1, "at": 1_700_000_000_000}
    produce(
        ask,
        "orders",
        {"value": framed(order, avro(record)), "key": framed(key, b"\x04ab")},
        {"value": framed(proto, b"\x04\x00\x00\x0a\x01x\x10\x07")},
        {"value": framed(plain, b'{"id":1}')},
    )

    first, second, third = shown(ask, "orders")

    assert first["key"] == {
        "size": 8, "json": "ab", "schema_id": key, "schema_type": "AVRO", "subject": "orders-key",
    }  # fmt: skip
    assert first["value"]["json"] == {"id": 2**53 + 1, "at": "2023-11-14T22:13:20Z"}
    assert (first["value"]["schema_id"], first["value"]["subject"]) == (order, "orders-value")
    assert second["value"]["json"] == {"id": "x", "n": "7"}
    assert (second["value"]["schema_type"], second["value"]["subject"]) == ("PROTOBUF", "shop")
    assert (third["value"]["json"], third["value"]["schema_type"]) == ({"id": 1}, "JSON")
    assert "base64" in shown(ask, "orders", "decode=base64")[0]["value"]


def test_bytes_that_are_none_of_their_schema_are_shown_with_the_reason(ask: HttpClient) -> None:
    number = register(ask, "bad-value", ORDER)
    produce(
        ask,
        "bad",
        {"value": framed(number, b"\x02")},
        {"value": framed(9_999, b"x")},
        {"value": {"base64": b64encode(bytes(8)).decode()}},  # A number, not a frame.
    )

    broken, unknown, plain = (row["value"] for row in shown(ask, "bad"))

    assert broken["base64"] == framed(number, b"\x02")["base64"]
    assert broken["problem"].startswith(f"not of schema {number}: ")
    assert broken["schema_id"] == number
    assert unknown["problem"] == "schema 9999 is not in the registry"
    assert plain == {"size": 8, "text": "\0" * 8}


def test_a_decoded_value_is_cut_as_text(ask: HttpClient) -> None:
    number = register(ask, "long-value", {"type": "string"})
    produce(ask, "long", {"value": framed(number, b"\x90\x03" + b"a" * 200)})

    [row] = shown(ask, "long", "value_bytes=50")

    assert row["value"]["cut"]
    assert row["value"]["text"] == '"' + "a" * 49
    assert row["value"]["size"] == 207


def test_one_record_tail_and_export_decode_too(ask: HttpClient) -> None:
    number = register(ask, "each-value", ORDER)
    produce(ask, "each", {"value": framed(number, avro({"id": 7, "at": 0}))})

    record = ask.get("/v1/topics/each/records/0/0").json
    line = ask.get("/v1/topics/each/records/export").json
    table = ask.get("/v1/topics/each/records/export?format=csv").text.decode()
    connection = http.client.HTTPConnection(ask.host, ask.port, timeout=30)
    connection.request("GET", "/v1/topics/each/records/tail?from=earliest")
    response = connection.getresponse()
    while not (event := response.readline()).startswith(b"data: "):
        assert event
    response.close()
    connection.close()

    expected = {"id": 7, "at": "1970-01-01T00:00:00Z"}
    assert record["value"]["json"] == expected
    assert line["value"]["json"] == expected
    assert json.loads(event.removeprefix(b"data: "))["value"]["json"] == expected
    assert '""id"":7' in table


def test_json_that_is_nested_too_deeply_is_text(ask: HttpClient) -> None:
    ask.post("/v1/topics", {"name": "nested"})
    deep = "[" * 5_000 + "]" * 5_000
    produce(ask, "nested", {"value": deep}, {"value": {"json": {"n": 1}}})

    shown, other = ask.get("/v1/topics/nested/records").json["items"]

    assert shown["value"]["text"] == deep
    assert "nested too deeply" in shown["value"]["problem"]
    assert other["value"]["json"] == {"n": 1}
    assert ask.get("/v1/topics/nested/records/0/0?decode=json").json["value"]["text"] == deep
    passed = ask.get("/v1/topics/nested/records?filter=%24.n%20%3D%3D%201").json["items"]
    assert [each["offset"] for each in passed] == [1]


# -- masks -----------------------------------------------------------------------------------------

CARD = {"card": {"number": "4111", "name": "Ann"}, "items": [{"price": 1}, {"price": 2}]}
PATHS = "$.card.number,$.items[*].price,$..secret,header.token,key"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpClient]:
    """A masked topic with a view and dead letters, and a user who may read all of them."""
    directory: Path = tmp_path_factory.mktemp("secrets")
    with secured_http_node(directory) as node:
        ask = node.ask
        ask.post("/v1/users", {"name": "ann", "password": "rye", "roles": ["consumer"]})
        made = ask.post("/v1/topics", {"name": "paid", "settings": {"mask.paths": PATHS}})
        assert made.status == 201, made.text
        ask.post("/v1/topics", {"name": "paid.dlq"})
        view = {"name": "paid-some", "topic": "paid", "filter": 'key == "k"'}
        made = ask.post("/v1/views", view)
        assert made.status == 201, made.text
        value = CARD | {"deep": [{"secret": 1}], "secret": 2}
        record = {
            "key": "k",
            "value": {"json": value},
            "headers": {"token": "t", "other": "o"},
        }
        produce(ask, "paid", record, {"value": "no JSON"}, {})
        origin = {"ms-dlq-topic": "paid", "ms-dlq-partition": "0", "ms-dlq-offset": "0"}
        produce(ask, "paid.dlq", {"value": {"json": CARD}, "headers": origin})
        yield ask


@pytest.fixture
def reader(secured: HttpClient) -> HttpClient:
    return secured.as_user("ann", "rye")


def test_masked_parts_are_hidden_from_readers(secured: HttpClient, reader: HttpClient) -> None:
    first, second, third = shown(reader, "paid")

    assert first["value"]["json"] == {
        "card": {"number": "•••", "name": "Ann"},
        "items": [{"price": "•••"}, {"price": "•••"}],
        "deep": [{"secret": "•••"}],
        "secret": "•••",
    }
    assert first["key"]["text"] == "•••"
    headers = {each["name"]: each["value"] for each in first["headers"]}
    assert (headers["token"]["text"], headers["other"]["text"]) == ("•••", "o")
    assert second["value"] == {"size": 7, "text": "•••"}  # No place of it is known.
    assert third["value"] is None
    assert shown(secured, "paid")[0]["value"]["json"]["card"]["number"] == "4111"


def test_masks_hold_for_every_way_to_see_a_record(reader: HttpClient) -> None:
    answers = [
        reader.get("/v1/topics/paid/records?decode=base64"),
        reader.get("/v1/topics/paid/records?decode=text&value_bytes=30"),
        reader.get("/v1/topics/paid/records/0/0"),
        reader.get("/v1/topics/paid/records/export"),
        reader.get("/v1/topics/paid/records/export?format=csv"),
        reader.get("/v1/topics/paid-some/records"),
        reader.get("/v1/topics/paid.dlq/records"),
        reader.get("/v1/dead-letters/paid"),
    ]

    assert [answer.status for answer in answers] == [200] * len(answers)
    encoded = b64encode(b"4111").rstrip(b"=")
    assert not [each.text for each in answers if b"4111" in each.text or encoded in each.text]
    refused = reader.get("/v1/topics/paid/records/0/0?raw=true")
    assert (refused.status, refused.json["error"]) == (403, "masked")


@pytest.mark.parametrize(
    "paths", ["card", "$card", "$.a[", "header.", "$.a,,$.b", "$" + ".a" * 200]
)
def test_a_path_that_is_none_is_refused(secured: HttpClient, paths: str) -> None:
    refused = secured.post("/v1/topics", {"name": "never", "settings": {"mask.paths": paths}})

    assert refused.status == 422, refused.text
    assert "mask_paths" in refused.json["message"]
