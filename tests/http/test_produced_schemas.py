"""Records sent as JSON and stored as values of a schema: by `/v1` and by Confluent's `/v3`."""

import io
import json
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_reader

from tests.support.http import Answer, HttpClient

AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
JSON_SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
PROTO = 'syntax = "proto3"; message First { int32 n = 1; } message Order { int64 id = 1; }'


def register(ask: HttpClient, subject: str, schema: Any, kind: str = "AVRO") -> int:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    answer = ask.post(f"/subjects/{subject}/versions", {"schema": text, "schemaType": kind})
    assert answer.status == 200, answer.text
    number: int = answer.json["id"]
    return number


def send(ask: HttpClient, topic: str, *records: dict[str, Any]) -> Answer:
    return ask.post(f"/v1/topics/{topic}/records", {"records": list(records)})


def raw_value(ask: HttpClient, topic: str, offset: int) -> bytes:
    return ask.get(f"/v1/topics/{topic}/records/0/{offset}?raw=true").text


def test_a_value_is_stored_as_a_serializer_would_store_it(ask: HttpClient) -> None:
    ask.post("/v1/topics", {"name": "avro", "partitions": 1})
    number = register(ask, "avro-value", AVRO)

    latest = {"value": {"json": {"id": 7, "note": "x"}}, "schema": {}}
    by_id = {"value": {"json": {"id": 8}}, "schema": number}
    by_version = {"value": {"json": {"id": 9}}, "schema": {"subject": "avro-value", "version": 1}}
    answer = send(ask, "avro", latest, by_id, by_version, {"value": None, "schema": {}})

    assert [item["offset"] for item in answer.json["items"]] == [0, 1, 2, 3]
    data = raw_value(ask, "avro", 0)
    assert data[:5] == b"\0" + number.to_bytes(4, "big")
    value = schemaless_reader(io.BytesIO(data[5:]), parse_schema(AVRO), None)
    assert value == {"id": 7, "note": "x"}
    shown = ask.get("/v1/topics/avro/records").json["items"]
    assert [each["value"] and each["value"]["json"]["id"] for each in shown] == [7, 8, 9, None]
    assert shown[0]["value"]["subject"] == "avro-value"


def test_json_and_protobuf_and_keys_have_schemas(ask: HttpClient) -> None:
    ask.post("/v1/topics", {"name": "formats", "partitions": 1})
    by_json = register(ask, "formats-value", JSON_SCHEMA, "JSON")
    by_proto = register(ask, "formats-proto", PROTO, "PROTOBUF")
    of_key = register(ask, "formats-key", '"string"')

    answer = send(
        ask,
        "formats",
        {"value": {"json": {"id": 1}}, "schema": by_json, "key": "k", "key_schema": {}},
        {"value": {"json": {"id": "5"}}, "schema": {"id": by_proto, "message": "Order"}},
        {"value": {"json": {"n": 3}}, "schema": by_proto},
    )

    assert answer.status == 200, answer.text
    assert raw_value(ask, "formats", 0) == b"\0" + by_json.to_bytes(4, "big") + b'{"id": 1}'
    assert raw_value(ask, "formats", 1)[5:] == b"\x02\x02\x08\x05"
    assert raw_value(ask, "formats", 2)[5:] == b"\x00\x08\x03"
    first, second, third = ask.get("/v1/topics/formats/records").json["items"]
    assert (first["key"]["json"], first["key"]["schema_id"]) == ("k", of_key)
    assert (second["value"]["json"], third["value"]["json"]) == ({"id": "5"}, {"n": 3})


@pytest.mark.parametrize(
    ("record", "status", "error", "message"),
    [
        ({"value": {"json": {"id": "x"}}, "schema": {}}, 422, "not_of_schema", "$.id"),
        ({"value": {"text": "x"}, "schema": {}}, 400, "invalid_request", "expected json"),
        ({"value": {"json": 1}, "schema": 999}, 404, "schema_refused", "999"),
        (
            {"value": {"json": 1}, "schema": {"subject": "nothing"}},
            404,
            "schema_refused",
            "nothing",
        ),
        ({"value": {"json": 1}, "schema": {"message": "M"}}, 422, "not_of_schema", "Protobuf"),
        ({"value": {"json": 1}, "schema": {"name": "M"}}, 400, "invalid_request", "name"),
    ],
)
def test_what_fits_no_schema_is_refused_and_nothing_is_written(
    ask: HttpClient, record: dict[str, Any], status: int, error: str, message: str
) -> None:
    ask.post("/v1/topics", {"name": "refused", "partitions": 1})
    register(ask, "refused-value", AVRO)

    answer = send(ask, "refused", {"value": "fine"}, record)

    assert (answer.status, answer.json["error"]) == (status, error)
    assert message in answer.json["message"]
    assert ask.get("/v1/topics/refused/records").json["items"] == []


def test_a_line_that_fits_no_schema_is_refused_alone(ask: HttpClient) -> None:
    ask.post("/v1/topics", {"name": "lines", "partitions": 1})
    register(ask, "lines-value", AVRO)
    values: list[dict[str, Any]] = [{"id": 1}, {"id": "x"}, {"id": 3}]
    lines = [json.dumps({"value": {"json": value}, "schema": {}}) for value in values]

    answer = ask(
        "POST",
        "/v1/topics/lines/records",
        raw="\n".join(lines).encode(),
        headers={"Content-Type": "application/x-ndjson"},
    )

    results = [json.loads(line) for line in answer.text.splitlines()]
    assert [each.get("offset") for each in results] == [0, None, 1]
    assert results[1]["error"] == "not_of_schema"


# -- Confluent's REST proxy ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def base(node: Any) -> str:
    return f"/v3/clusters/{node.ask.get('/v3/clusters').json['data'][0]['cluster_id']}"


def test_v3_registers_a_schema_that_stands_in_the_record(ask: HttpClient, base: str) -> None:
    ask.post("/v1/topics", {"name": "proxied", "partitions": 1})
    part = {"type": "AVRO", "schema": json.dumps(AVRO), "data": {"id": 4, "note": {"string": "t"}}}

    first = ask.post(f"{base}/topics/proxied/records", {"value": part})
    by_latest = ask.post(f"{base}/topics/proxied/records", {"value": {"data": {"id": 5}}})
    named = ask.post(
        f"{base}/topics/proxied/records",
        {"value": {**part, "subject_name_strategy": "TOPIC_RECORD_NAME"}},
    )

    assert (first.status, first.json["value"]["type"]) == (200, "AVRO")
    assert by_latest.status == 200, by_latest.text
    assert named.status == 200, named.text
    assert ask.get("/subjects?subjectPrefix=proxied").json == ["proxied-Order", "proxied-value"]
    shown = ask.get("/v1/topics/proxied/records").json["items"]
    assert [each["value"]["json"]["id"] for each in shown] == [4, 5, 4]


@pytest.mark.parametrize(
    ("kind", "schema", "data"),
    [("JSONSCHEMA", json.dumps(JSON_SCHEMA), {"id": 1}), ("PROTOBUF", PROTO, {"n": 2})],
)
def test_v3_takes_the_other_formats(
    ask: HttpClient, base: str, kind: str, schema: str, data: dict[str, Any]
) -> None:
    topic = f"proxied-{kind.lower()}"
    ask.post("/v1/topics", {"name": topic, "partitions": 1})

    answer = ask.post(
        f"{base}/topics/{topic}/records", {"value": {"type": kind, "schema": schema, "data": data}}
    )

    assert answer.status == 200, answer.text
    assert ask.get(f"/v1/topics/{topic}/records").json["items"][0]["value"]["json"] == data


@pytest.mark.parametrize(
    "part",
    [
        {"type": "AVRO", "data": {"id": 1}},
        {"schema": '"int"', "data": 1},
        {"type": "AVRO", "schema": '"int"', "data": "x"},
        {"type": "AVRO", "schema": "no schema", "data": 1},
        {"type": "AVRO", "subject_name_strategy": "RECORD_NAME", "data": 1},
    ],
)
def test_v3_refuses_a_record_without_a_fitting_schema(
    ask: HttpClient, base: str, part: dict[str, Any]
) -> None:
    ask.post("/v1/topics", {"name": "strict", "partitions": 1})

    answer = ask.post(f"{base}/topics/strict/records", {"value": part})

    assert (answer.status, answer.json["error_code"]) == (400, 400)
    assert ask.get("/v1/topics/strict/records").json["items"] == []
