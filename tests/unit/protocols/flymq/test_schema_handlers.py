"""FlyMQ's schemas are subjects of the registry; messages are checked, bare or framed."""

import struct

import pytest

from millstream.engine.partitions.slices import Want
from millstream.model import TopicPartition
from millstream.protocols.flymq.wire import bodies
from millstream.protocols.flymq.wire.frames import Opcode
from tests.support.flymq import Refused
from tests.support.nodes import SESSION, records_of
from tests.support.virtual_loop import run
from tests.unit.protocols.flymq.asking import open_listener

JSON = b'{"type":"object","required":["id"],"properties":{"id":{"type":"integer"}}}'
WIDER = b'{"type":"object","properties":{"id":{"type":"integer"}}}'
AVRO = b'{"type":"record","name":"A","fields":[{"name":"id","type":"string"}]}'
PROTO = b'syntax="proto3"; message A { string id = 1; }'


def test_schemas_are_registered_told_and_deleted() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = listener.connect()

            async def register(kind: str, text: bytes) -> object:
                request = bodies.RegisterSchema("order", kind, text)
                return await client.ask(Opcode.REGISTER_SCHEMA, request, bodies.Schema)

            async def listed(name: str = "") -> object:
                request = bodies.SchemaNameOrAll(name)
                return (await client.ask(Opcode.LIST_SCHEMAS, request, bodies.Schemas)).schemas

            assert await register("json", JSON) == ("order", "json", 1)
            assert await register("json", JSON) == ("order", "json", 1)
            assert await register("json", WIDER) == ("order", "json", 2)
            with pytest.raises(Refused, match="unsupported schema type: xml"):
                await register("xml", JSON)
            with pytest.raises(Refused, match="incompatible"):
                await register("json", b'{"type":"string"}')
            request = bodies.SchemaVersion("order", 0)
            latest = await client.ask(Opcode.GET_SCHEMA, request, bodies.Schemas)
            assert latest.schemas == (("order", "json", 2),)
            assert await listed() == (("order", "json", 1), ("order", "json", 2))
            assert await listed("other") == ()
            await client.ask(Opcode.DELETE_SCHEMA, bodies.SchemaVersion("order", 1), bodies.Message)
            assert await listed("order") == (("order", "json", 2),)
            await client.ask(Opcode.DELETE_SCHEMA, request, bodies.Message)
            assert await listed() == ()
            with pytest.raises(Refused, match="deleted"):
                await client.ask(Opcode.DELETE_SCHEMA, request, bodies.Message)

    run(main())


@pytest.mark.parametrize(
    ("kind", "text", "good", "bad", "frame"),
    [
        ("json", JSON, b'{"id":1}', b'{"id":"a"}', b""),
        ("avro", AVRO, b"\x04ab", b"\x04a", b""),
        ("proto", PROTO, b"\x0a\x01x", b"\x0a\x05x", b"\0"),
    ],
)
def test_messages_are_checked_and_written_as_they_came(
    kind: str, text: bytes, good: bytes, bad: bytes, frame: bytes
) -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = listener.connect()

            async def validated(message: bytes, name: str = "order") -> bodies.Validated:
                request = bodies.Validate(name, message)
                return await client.ask(Opcode.VALIDATE, request, bodies.Validated)

            async def produce(value: bytes) -> bodies.RecordMetadata:
                request = bodies.ProduceWithSchema("orders", "order", value)
                return await client.ask(Opcode.PRODUCE_WITH_SCHEMA, request, bodies.RecordMetadata)

            register = bodies.RegisterSchema("order", kind, text)
            await client.ask(Opcode.REGISTER_SCHEMA, register, bodies.Schema)
            framed = struct.pack(">bi", 0, 1) + frame + good

            assert await validated(good) == (True, ())
            assert await validated(framed) == (True, ())
            is_valid, errors = await validated(bad)
            assert not is_valid
            assert errors
            with pytest.raises(Refused, match="not found"):
                await validated(good, "unknown")
            await produce(good)
            await produce(framed)
            with pytest.raises(Refused, match="schema validation failed"):
                await produce(bad)
            (part,) = await listener.node.partitions.read(
                SESSION, [Want(TopicPartition("orders", 0), 0, 2**20)]
            )
            bare, in_frame = records_of(part)
            assert (bare.value, in_frame.value) == (good, framed)
            [(name, value)] = bare.headers
            assert name == "__value_schema_id"
            assert value is not None
            assert (value[0], value[17:]) == (1, frame)
            assert in_frame.headers == ()

    run(main())
