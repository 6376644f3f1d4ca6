"""Avro and Protobuf through a registry: the frame, the schemas, and what is refused."""

import json
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from millstream.client import BadData, NotSupported, Refused, Registry, Unreachable
from tests.support.registry import RegistryServer, running_registry

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "item", "type": "string"}, {"name": "kg", "type": "int", "default": 1}],
}
OLD = {"type": "record", "name": "Order", "fields": [{"name": "item", "type": "string"}]}


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with running_registry() as running:
        yield running


def _messages(*, dependency: str | None = None) -> list[Any]:
    """What protoc would generate: two messages, and one within the second."""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    first, second = file.message_type.add(name="Zeta"), file.message_type.add(name="Alpha")
    for message in (first, second, second.nested_type.add(name="Inner")):
        message.field.add(name="item", number=1, type=9, label=1)
    pool = descriptor_pool.DescriptorPool()
    if dependency is not None:
        pool.Add(descriptor_pb2.FileDescriptorProto(name=dependency))
        file.dependency.append(dependency)
    pool.Add(file)
    names = ("shop.Zeta", "shop.Alpha", "shop.Alpha.Inner")
    return [message_factory.GetMessageClass(pool.FindMessageTypeByName(name)) for name in names]


def test_an_avro_value_stands_behind_the_number_of_its_schema(server: RegistryServer) -> None:
    serde = Registry(server.url).avro(ORDER, subject="orders-value")

    spelled = serde.encode({"item": "flour", "kg": 25})

    assert spelled == b"\0" + (1).to_bytes(4) + b"\x0aflour\x32"
    assert serde.decode(spelled) == {"item": "flour", "kg": 25}
    assert json.loads(server.schemas[0]["schema"]) == ORDER


def test_a_schema_is_asked_for_once(server: RegistryServer) -> None:
    serde = Registry(server.url).avro(ORDER, subject="orders-value")
    for kg in range(5):
        assert serde.decode(serde.encode({"item": "rye", "kg": kg}))["kg"] == kg

    assert server.asked == ["POST /subjects/orders-value/versions", "GET /schemas/ids/1"]


def test_what_was_written_with_an_older_schema_is_read_as_the_new_one(
    server: RegistryServer,
) -> None:
    registry = Registry(server.url)
    old = registry.avro(json.dumps(OLD), subject="orders-value").encode({"item": "oats"})

    read = registry.avro(ORDER, subject="orders-value").decode(old)

    assert read == {"item": "oats", "kg": 1}


def test_a_linked_list_is_read_as_far_as_it_is_safe(server: RegistryServer) -> None:
    """Deeper ones are refused: Avro's library would end the process."""
    node = {"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]}
    serde = Registry(server.url).avro(node, subject="lists-value")

    def linked(length: int) -> dict[str, Any]:
        head: dict[str, Any] = {"next": None}
        for _ in range(length):
            head = {"next": head}
        return head

    frame = serde.encode(linked(100))[:5]

    assert serde.decode(serde.encode(linked(100))) == linked(100)
    with pytest.raises(BadData, match="nested deeper than 500"):
        serde.encode(linked(600))
    with pytest.raises(BadData, match="nested deeper than 500"):
        serde.decode(frame + b"\x02" * 100_000 + b"\0")


@pytest.mark.parametrize(
    ("index", "path"), [(0, b"\0"), (1, b"\x02\x02"), (2, b"\x04\x02\x00")], ids=str
)
def test_a_protobuf_value_says_which_message_of_its_file_it_is(
    server: RegistryServer, index: int, path: bytes
) -> None:
    message = _messages()[index]
    serde = Registry(server.url).protobuf(message, subject="orders-value")

    spelled = serde.encode(message(item="flour"))

    assert spelled == b"\0" + (1).to_bytes(4) + path + b"\x0a\x05flour"
    assert serde.decode(spelled) == message(item="flour")


def test_another_message_of_the_file_is_not_taken_for_it(server: RegistryServer) -> None:
    registry = Registry(server.url)
    first, second, _ = _messages()
    first_format, second_format = (registry.protobuf(kind, subject="s") for kind in (first, second))

    with pytest.raises(BadData, match="another message"):
        first_format.decode(second_format.encode(second(item="a")))
    with pytest.raises(TypeError, match="is not a Zeta"):
        first_format.encode(second(item="a"))


def test_a_file_that_needs_others_is_refused(server: RegistryServer) -> None:
    with pytest.raises(NotSupported, match="must stand alone"):
        Registry(server.url).protobuf(_messages(dependency="other.proto")[0], subject="s")
    with pytest.raises(Refused, match="no class that protoc generated"):
        Registry(server.url).protobuf(dict, subject="s")


@pytest.mark.parametrize("data", [b"", b"\0\0\0", b"\x01\0\0\0\x01abc", b'{"item": 1}'], ids=repr)
def test_bytes_without_a_number_are_refused(server: RegistryServer, data: bytes) -> None:
    with pytest.raises(BadData, match="id of a schema"):
        Registry(server.url).avro(ORDER, subject="s").decode(data)


def test_bytes_behind_a_value_are_refused(server: RegistryServer) -> None:
    serde = Registry(server.url).avro(ORDER, subject="s")

    with pytest.raises(BadData, match="2 bytes are left"):
        serde.decode(serde.encode({"item": "a", "kg": 1}) + b"xx")


def test_what_the_registry_refuses_is_said(server: RegistryServer) -> None:
    registry = Registry(server.url)
    with pytest.raises(Refused, match="it breaks its readers"):
        registry.avro(ORDER, subject="forbidden").encode({"item": "a", "kg": 1})
    with pytest.raises(Refused, match="Schema not found"):
        registry.avro(ORDER, subject="s").decode(b"\0\0\0\0\x63a")
    with pytest.raises(Refused, match="no Avro schema"):
        registry.avro('{"type": "nonsense"}', subject="s")


def test_an_address_without_a_registry_is_named() -> None:
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1"):
        Registry("http://127.0.0.1:1").avro(ORDER, subject="s").encode({"item": "a", "kg": 1})
    with pytest.raises(Refused, match="no address of a registry"):
        Registry("localhost:8081")


def test_a_login_goes_along(server: RegistryServer) -> None:
    Registry(server.url, user="mill", password="stream").register("s", "{}", "AVRO")

    assert server.logins == {"Basic bWlsbDpzdHJlYW0="}


# -- through confluent-kafka's own client ----------------------------------------------------------


class ConfluentClient:
    """The two methods of `SchemaRegistryClient`, with its error and its schema."""

    class Schema(NamedTuple):
        schema_str: str
        schema_type: str

    class Error(Exception):
        http_status_code = 409

    def __init__(self) -> None:
        self.schemas: list[ConfluentClient.Schema] = []

    def register_schema(self, subject: str, schema: "ConfluentClient.Schema") -> int:
        if subject == "forbidden":
            raise ConfluentClient.Error("it breaks its readers")
        self.schemas.append(schema)
        return len(self.schemas)

    def get_schema(self, schema_id: int) -> "ConfluentClient.Schema":
        if schema_id > len(self.schemas):
            raise OSError("no route to the registry")
        return self.schemas[schema_id - 1]


@pytest.fixture
def theirs(monkeypatch: pytest.MonkeyPatch) -> ConfluentClient:
    """Their package needs 14 others that are not installed here."""
    package = ModuleType("confluent_kafka.schema_registry")
    package.Schema = ConfluentClient.Schema  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "confluent_kafka.schema_registry", package)
    return ConfluentClient()


def test_schemas_go_through_the_client_that_the_program_has(theirs: ConfluentClient) -> None:
    serde = Registry(theirs).avro(ORDER, subject="orders-value")  # type: ignore[arg-type]

    encoded = serde.encode({"item": "flour", "kg": 25})

    assert encoded == b"\0" + (1).to_bytes(4) + b"\x0aflour\x32"
    assert serde.decode(encoded) == {"item": "flour", "kg": 25}
    assert [schema.schema_type for schema in theirs.schemas] == ["AVRO"]


def test_errors_of_that_client_become_ours(theirs: ConfluentClient) -> None:
    registry = Registry(theirs)  # type: ignore[arg-type]

    with pytest.raises(Refused, match="it breaks its readers") as refused:
        registry.register("forbidden", "{}", "AVRO")
    with pytest.raises(Unreachable, match="no route to the registry"):
        registry.schema(99)
    with pytest.raises(Refused, match="nor a SchemaRegistryClient"):
        Registry(object())  # type: ignore[arg-type]

    assert refused.value.code == "409"


def test_their_real_client_speaks_to_the_same_registry(server: RegistryServer) -> None:
    package = pytest.importorskip("confluent_kafka.schema_registry", exc_type=ImportError)
    registry = Registry(package.SchemaRegistryClient({"url": server.url}))
    serde = registry.avro(ORDER, subject="orders-value")

    assert serde.decode(serde.encode({"item": "rye", "kg": 2})) == {"item": "rye", "kg": 2}
    with pytest.raises(Refused, match="it breaks its readers"):
        registry.avro(ORDER, subject="forbidden").encode({"item": "a", "kg": 1})
