"""The schema registry over REST, from a real broker: routes, errors, contexts, modes, deletes."""

import http.client
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from millstream.client import connect
from millstream.client.errors import ClientError
from tests.support.broker_process import BrokerProcess

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}
GROWN = {**ORDER, "fields": [*ORDER["fields"], {"name": "kg", "type": "int", "default": 0}]}
BROKEN = {**ORDER, "fields": [*ORDER["fields"], {"name": "kg", "type": "int"}]}
V1 = "application/vnd.schemaregistry.v1+json"

# JSON of any shape.
Json = Any


class Rest:
    """One connection to the registry."""

    def __init__(self, host: str, port: int) -> None:
        self._connection = http.client.HTTPConnection(host, port, timeout=30)

    def __call__(
        self, method: str, path: str, body: Json = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Json]:
        data = None if body is None else json.dumps(body).encode()
        self._connection.request(method, path, data, {"Content-Type": V1, **(headers or {})})
        self.response = self._connection.getresponse()
        text = self.response.read()
        return self.response.status, json.loads(text)

    def register(self, subject: str, schema: Json, **more: Json) -> tuple[int, Json]:
        path = f"/subjects/{quote(subject, safe='')}/versions"
        text = schema if isinstance(schema, str) else json.dumps(schema)
        return self("POST", path, {"schema": text, **more})

    def id_of(self, subject: str, schema: Json, **more: Json) -> int:
        status, answer = self.register(subject, schema, **more)
        assert status == 200, answer
        number: int = answer["id"]
        return number

    def close(self) -> None:
        self._connection.close()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("broker"), LISTENERS="kafka,http")
    process.start()
    yield process
    process.kill()


@pytest.fixture
def registry(broker: BrokerProcess) -> Iterator[Rest]:
    client = Rest(broker.host, broker.config.http_port)
    yield client
    client.close()


def test_a_schema_has_one_id_under_every_subject_and_a_version_under_each(registry: Rest) -> None:
    first = registry.id_of("one-value", ORDER)
    second = registry.id_of("two-value", json.dumps(ORDER, indent=2))

    assert first == second
    assert registry.id_of("one-value", GROWN) != first
    assert registry("GET", "/subjects/one-value/versions") == (200, [1, 2])
    assert registry("GET", f"/schemas/ids/{first}/subjects") == (200, ["one-value", "two-value"])
    assert registry("GET", f"/schemas/ids/{first}/versions")[1][0] == {
        "subject": "one-value",
        "version": 1,
    }


def test_a_version_is_read_whole_or_as_its_schema_alone(registry: Rest) -> None:
    number = registry.id_of("whole-value", GROWN)

    status, latest = registry("GET", "/subjects/whole-value/versions/latest")
    by_id = registry("GET", f"/schemas/ids/{number}?fetchMaxId=true")[1]

    assert status == 200
    assert registry.response.headers["Content-Type"] == V1
    assert (latest["subject"], latest["version"], latest["id"]) == ("whole-value", 1, number)
    assert "schemaType" not in latest
    assert registry("GET", "/subjects/whole-value/versions/1/schema")[1] == json.loads(
        latest["schema"]
    )
    assert registry("GET", f"/schemas/ids/{number}/schema")[1] == json.loads(latest["schema"])
    assert by_id["schema"] == latest["schema"]
    assert by_id["maxId"] >= number
    assert registry("GET", f"/schemas/guids/{latest['guid']}")[1]["schema"] == latest["schema"]
    assert registry("GET", f"/schemas/guids/{latest['guid']}/ids")[1] == [
        {"context": ".", "id": number}
    ]


def test_a_schema_that_breaks_readers_is_refused_with_the_place_and_the_rule(
    registry: Rest,
) -> None:
    registry.id_of("strict-value", ORDER)

    status, answer = registry.register("strict-value", BROKEN)
    check = "/compatibility/subjects/strict-value/versions"
    verbose = registry("POST", f"{check}/latest?verbose=true", {"schema": json.dumps(BROKEN)})[1]
    passing = registry("POST", check, {"schema": json.dumps(GROWN)})[1]

    assert (status, answer["error_code"]) == (409, 409)
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in answer["message"]
    assert verbose["is_compatible"] is False
    assert verbose["messages"][0].startswith("{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE'")
    assert verbose["messages"][1:] == [
        "{oldSchemaVersion: 1}",
        f"{{oldSchema: '{json.dumps(ORDER, separators=(',', ':'))}'}}",
        "{compatibility: 'BACKWARD'}",
    ]
    assert passing == {"is_compatible": True}


@pytest.mark.parametrize("level", ["NONE", "FORWARD"])
def test_the_level_of_a_subject_counts_before_that_of_all(registry: Rest, level: str) -> None:
    subject = f"level-{level}"
    registry.id_of(subject, ORDER)

    assert registry("GET", f"/config/{subject}")[1]["error_code"] == 40408
    assert registry("PUT", f"/config/{subject}", {"compatibility": level}) == (
        200,
        {"compatibility": level},
    )
    assert registry("GET", f"/config/{subject}")[1] == {"compatibilityLevel": level}
    assert registry.register(subject, BROKEN)[0] == 200
    assert registry("DELETE", f"/config/{subject}")[1] == {"compatibilityLevel": level}
    assert registry("GET", f"/config/{subject}?defaultToGlobal=true")[1] == {
        "compatibilityLevel": "BACKWARD"
    }


def test_deletes_are_soft_first_and_then_for_good(registry: Rest) -> None:
    number = registry.id_of("gone-value", '"bytes"')

    def code(method: str, path: str) -> int:
        answer: int = registry(method, path)[1]["error_code"]
        return answer

    assert code("DELETE", "/subjects/gone-value?permanent=true") == 40405
    assert code("DELETE", "/subjects/gone-value/versions/1?permanent=true") == 40407
    assert registry("DELETE", "/subjects/gone-value/versions/1") == (200, 1)
    assert code("DELETE", "/subjects/gone-value/versions/1") == 40406
    assert code("DELETE", "/subjects/gone-value") == 40404
    assert code("GET", "/subjects/gone-value/versions") == 40401
    assert registry("GET", "/subjects/gone-value/versions?deleted=true") == (200, [1])
    assert registry("GET", f"/schemas/ids/{number}")[0] == 200
    assert registry("DELETE", "/subjects/gone-value?permanent=true") == (200, [1])
    assert code("GET", f"/schemas/ids/{number}") == 40403
    assert registry.id_of("gone-value", '"bytes"') > number


def test_a_referenced_schema_cannot_go(registry: Rest) -> None:
    registry.id_of("part", ORDER)
    reference = {"name": "Order", "subject": "part", "version": 1}
    registry.id_of("all", {"type": "array", "items": "Order"}, references=[reference])

    assert registry("GET", "/subjects/part/versions/1/referencedby")[0] == 200
    assert registry("DELETE", "/subjects/part")[1]["error_code"] == 42206
    resolved = registry("GET", "/subjects/all/versions/1?format=resolved")[1]["schema"]
    assert json.loads(resolved)["items"]["name"] == "Order"
    missing = [{**reference, "version": 9}]
    assert registry.register("all", '"int"', references=missing)[1]["error_code"] == 42201


def test_ids_count_in_each_context(registry: Rest) -> None:
    inside = registry("POST", "/contexts/.mill/subjects/orders/versions", {"schema": '"long"'})[1]
    same = registry("POST", "/subjects/:.mill:orders/versions", {"schema": '"long"'})[1]

    assert inside["id"] == same["id"] == 1
    assert registry("GET", "/contexts")[1] == [".", ".mill"]
    assert registry("GET", "/contexts/.mill/subjects")[1] == [":.mill:orders"]
    assert registry("GET", "/contexts/.mill/schemas/ids/1")[1]["schema"] == '"long"'
    assert registry("GET", "/schemas/ids/1?subject=:.mill:")[1]["schema"] == '"long"'
    assert registry("PUT", "/contexts/.mill/config", {"compatibility": "FULL"})[0] == 200
    inherited = registry("GET", "/contexts/.mill/config/orders?defaultToGlobal=true")[1]
    assert inherited == {"compatibilityLevel": "FULL"}
    assert registry("DELETE", "/contexts/.mill")[1]["error_code"] == 42211


@pytest.mark.parametrize("subject", ["a/b", "with space", "naïve ☃", "", "a%2Fb", "x:y"])
def test_a_subject_is_any_text(registry: Rest, subject: str) -> None:
    if not subject:
        assert registry("GET", "/subjects//versions")[0] == 400
        return
    registry.id_of(subject, '"string"')

    path = f"/subjects/{quote(subject, safe='')}"
    assert registry("GET", f"{path}/versions/1")[1]["subject"] == subject
    assert subject in registry("GET", "/subjects")[1]


def test_modes_lock_subjects_and_let_ids_be_imported(registry: Rest) -> None:
    assert registry("PUT", "/mode/locked", {"mode": "READONLY"}) == (200, {"mode": "READONLY"})
    assert registry.register("locked", '"int"')[1]["error_code"] == 42205
    assert registry("DELETE", "/mode/locked")[0] == 200
    assert registry.register("locked", '"int"')[0] == 200
    assert registry("PUT", "/mode/locked", {"mode": "IMPORT"})[1]["error_code"] == 42205
    assert registry("PUT", "/mode/locked", {"mode": "FORWARD"})[1]["error_code"] == 42204

    assert registry("PUT", "/mode/imported", {"mode": "IMPORT"})[0] == 200
    body = {"schema": '"float"', "id": 5000, "version": 7}
    assert registry("POST", "/subjects/imported/versions", body)[1]["id"] == 5000
    assert registry("GET", "/subjects/imported/versions")[1] == [7]
    other = {**body, "schema": '"double"', "version": 8}
    assert registry("POST", "/subjects/imported/versions", other)[1]["error_code"] == 42207
    assert registry("GET", "/mode/imported")[1] == {"mode": "IMPORT"}
    assert registry.id_of("after-import", '"boolean"') == 5001


def test_an_alias_stands_for_its_subject(registry: Rest) -> None:
    number = registry.id_of("true-name", ORDER)
    assert registry("PUT", "/config/nickname", {"alias": "true-name"})[0] == 200

    assert registry("GET", "/subjects/nickname/versions/latest")[1]["id"] == number
    assert registry.id_of("nickname", ORDER) == number


def test_a_lookup_finds_the_version_or_says_what_is_missing(registry: Rest) -> None:
    registry.id_of("looked-up", ORDER)

    def look_up(subject: str, schema: Json) -> Json:
        return registry("POST", f"/subjects/{subject}", {"schema": json.dumps(schema)})[1]

    assert look_up("looked-up", ORDER)["version"] == 1
    assert look_up("looked-up", GROWN)["error_code"] == 40403
    assert look_up("nowhere", ORDER)["error_code"] == 40401


def test_json_and_protobuf_have_their_types_and_rules(registry: Rest) -> None:
    assert registry("GET", "/schemas/types") == (200, ["JSON", "PROTOBUF", "AVRO"])
    closed = {"type": "object", "properties": {}, "additionalProperties": False}
    number = registry.id_of("j", closed, schemaType="JSON")
    assert registry("GET", f"/schemas/ids/{number}")[1]["schemaType"] == "JSON"
    narrowed = {**closed, "required": ["a"]}
    assert registry.register("j", narrowed, schemaType="JSON")[0] == 409

    proto = 'syntax = "proto3"; message A { string a = 1; }'
    registry.id_of("p", proto, schemaType="PROTOBUF")
    assert registry.register("p", proto.replace("string", "int32"), schemaType="PROTOBUF")[0] == 409
    serialized = registry("GET", "/subjects/p/versions/1?format=serialized")[1]["schema"]
    again = registry.register("p", serialized, schemaType="PROTOBUF")[1]
    assert again["version"] == 1


def test_metadata_is_part_of_a_schema_and_finds_its_newest_version(registry: Rest) -> None:
    owned = {"properties": {"owner": "ann"}}
    first = registry.id_of("owned", ORDER)
    assert registry.id_of("owned", ORDER, metadata=owned) != first

    answer = registry("GET", "/subjects/owned/metadata?key=owner&value=ann")[1]
    assert (answer["version"], answer["metadata"]) == (2, owned)
    assert registry("GET", "/subjects/owned/metadata?key=owner&value=bob")[1]["error_code"] == 40403


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("GET", "/subjects/nowhere/versions", None, 40401),
        ("GET", "/subjects/nowhere/versions/1", None, 40401),
        ("GET", "/schemas/ids/99999", None, 40403),
        ("GET", "/subjects/x/versions/abc", None, 42202),
        ("GET", "/subjects/x/versions/0", None, 42202),
        ("POST", "/subjects/x/versions", {"schema": ""}, 42201),
        ("POST", "/subjects/x/versions", {"schema": "{"}, 42201),
        ("POST", "/subjects/x/versions", {"schema": '"int"', "schemaType": "XML"}, 42201),
        ("POST", "/subjects/x/versions", [], 400),
        ("PUT", "/config", {"compatibility": "SIDEWAYS"}, 42203),
        ("PUT", "/mode", {"mode": "SIDEWAYS"}, 42204),
        ("GET", "/mode/nowhere", None, 40409),
        ("GET", "/exporters", None, None),
        ("GET", "/subjects/a/b/c/d", None, 404),
        ("PATCH", "/subjects", None, 405),
    ],
)
def test_each_refusal_has_its_number(
    registry: Rest, method: str, path: str, body: Json, code: int | None
) -> None:
    status, answer = registry(method, path, body)

    assert answer.get("error_code") == code
    assert status == (404 if code is None else code if code < 1000 else code // 100)


def test_media_types_are_those_of_the_original(registry: Rest) -> None:
    assert registry("GET", "/subjects", None, {"Accept": "application/json"})[0] == 200
    assert registry.response.headers["Content-Type"] == "application/json"
    assert registry("GET", "/subjects", None, {"Accept": "image/png"})[0] == 406
    assert registry("POST", "/subjects/x", {}, {"Content-Type": "text/xml"})[0] == 415
    assert registry("GET", "/registry/subjects")[0] == 200
    assert registry("GET", "/")[1] == {}
    assert registry("GET", "/v1/metadata/id")[1]["scope"]["clusters"]["kafka-cluster"]


def test_clients_read_the_topic_of_schemas_and_do_not_write_it(
    registry: Rest, broker: BrokerProcess
) -> None:
    registry.id_of("topic-value", ORDER)

    with connect(broker.address) as client:
        with client.consumer(["_schemas"], group="reader", start="earliest") as consumer:
            record = next(iter(consumer))
        with client.producer() as producer, pytest.raises(ClientError, match="own"):
            producer.send("_schemas", b"x").result(30)

    assert json.loads(record.key or b"")["keytype"] in {"SCHEMA", "CONFIG", "MODE"}
