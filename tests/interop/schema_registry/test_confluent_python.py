"""confluent-kafka's SchemaRegistryClient and its serializers: register, evolve, refuse, decode."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

from tests.support.broker_process import BrokerProcess

pytest.importorskip("confluent_kafka.schema_registry", exc_type=ImportError)

from confluent_kafka.schema_registry import (
    ConfigCompatibilityLevel,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    ServerConfig,
    header_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}
GROWN = {**ORDER, "fields": [*ORDER["fields"], {"name": "kg", "type": "int", "default": 7}]}
BROKEN = {**ORDER, "fields": [*ORDER["fields"], {"name": "price", "type": "int"}]}


@pytest.fixture
def client(url: str) -> Iterator[SchemaRegistryClient]:
    yield from opened(url)


def opened(url: str) -> Iterator[SchemaRegistryClient]:
    """Their client has no way to close its connections."""
    client = SchemaRegistryClient({"url": url})
    yield client
    client._rest_client.session.close()


def avro(schema: object) -> Schema:
    return Schema(json.dumps(schema), "AVRO")


def value_of(topic: str, headers: list[Any] | None = None) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE, headers)


def test_avro_is_written_evolved_refused_and_read(client: SchemaRegistryClient) -> None:
    old = AvroSerializer(client, json.dumps(ORDER))
    data = old({"id": "a"}, value_of("avro"))

    grown = client.register_schema("avro-value", avro(GROWN))
    with pytest.raises(SchemaRegistryError) as refused:
        client.register_schema("avro-value", avro(BROKEN))

    assert data[:1] == b"\0"
    assert AvroDeserializer(client, json.dumps(GROWN))(data, value_of("avro")) == {
        "id": "a",
        "kg": 7,
    }
    assert (refused.value.http_status_code, refused.value.error_code) == (409, 409)
    assert client.get_latest_version("avro-value").schema_id == grown
    assert client.get_versions("avro-value") == [1, 2]
    assert client.lookup_schema("avro-value", avro(ORDER)).version == 1
    assert client.test_compatibility("avro-value", avro(BROKEN)) is False
    assert "avro-value" in client.get_subjects()


def test_json_is_written_and_read(client: SchemaRegistryClient) -> None:
    schema = json.dumps(
        {"title": "Order", "type": "object", "properties": {"id": {"type": "string"}}}
    )
    write = JSONSerializer(schema, client)

    data = write({"id": "a"}, value_of("json"))

    assert JSONDeserializer(schema, schema_registry_client=client)(data, value_of("json")) == {
        "id": "a"
    }


def message_class() -> Any:
    from google.protobuf.descriptor_pool import Default
    from google.protobuf.message_factory import GetMessageClass

    text = FieldDescriptorProto.TYPE_STRING
    file = FileDescriptorProto(name="interop_order.proto", package="mill", syntax="proto3")
    message = file.message_type.add(name="Order")
    message.field.add(name="id", number=1, type=text, label=1)
    Default().Add(file)
    return GetMessageClass(Default().FindMessageTypeByName("mill.Order"))


def test_protobuf_is_written_and_read(client: SchemaRegistryClient) -> None:
    order = message_class()
    write = ProtobufSerializer(order, client, {"use.deprecated.format": False})

    data = write(order(id="a"), value_of("proto"))
    read = ProtobufDeserializer(order, {"use.deprecated.format": False}, client)

    assert read(data, value_of("proto")).id == "a"
    assert "message Order" in str(client.get_latest_version("proto-value").schema.schema_str)


def test_references_settings_and_deletes(client: SchemaRegistryClient) -> None:
    client.register_schema("part", avro(ORDER))
    whole = Schema(
        json.dumps({"type": "array", "items": "Order"}),
        "AVRO",
        [SchemaReference("Order", "part", 1)],
    )
    number = client.register_schema("whole", whole)

    assert [each.subject for each in client.get_schema(number).references or ()] == ["part"]
    client.set_config("whole", ServerConfig(compatibility=ConfigCompatibilityLevel.FULL))
    assert client.get_config("whole").compatibility_level == "FULL"
    assert client.delete_subject("whole") == [1]
    assert client.delete_subject("whole", permanent=True) == [1]


def test_a_guid_in_a_header_names_the_schema(client: SchemaRegistryClient) -> None:
    settings = {"schema.id.serializer": header_schema_id_serializer}
    headers: list[Any] = []
    data = AvroSerializer(client, json.dumps(ORDER), conf=settings)(
        {"id": "abcdefgh"}, value_of("headers", headers)
    )

    assert headers
    read = AvroDeserializer(client)
    assert read(data, value_of("headers", headers)) == {"id": "abcdefgh"}


def test_a_client_that_starts_anew_finds_what_was_registered(
    registry: BrokerProcess, url: str, client: SchemaRegistryClient
) -> None:
    number = client.register_schema("kept-value", avro(ORDER))

    registry.kill()
    registry.start()

    for again in opened(url):
        assert json.loads(again.get_schema(number).schema_str or "") == ORDER
        assert again.register_schema("kept-value", avro(ORDER)) == number
