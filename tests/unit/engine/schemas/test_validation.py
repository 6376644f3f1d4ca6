"""Records are checked against the registry before they are written, where a topic asks for it."""

import json
import struct
from collections.abc import Awaitable, Callable
from io import BytesIO

import fastavro
import pytest

from millstream.codec.encoding import encode_batch
from millstream.codec.records import Record
from millstream.engine.partitions.slices import Want
from millstream.engine.schemas.parsing import Draft
from millstream.errors import InvalidRecords, RequestError
from millstream.internal_topics.schemas import SchemaText, guid
from millstream.model import Acks, TopicPartition
from millstream.schemas.definition import SchemaType
from millstream.server.node import Node
from tests.support.nodes import NOW_MS, ORDERS, SESSION, batch, running_node, values_of
from tests.support.virtual_loop import run

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}
AVRO = Draft(SchemaType.AVRO, json.dumps(ORDER))
JSON = Draft(SchemaType.JSON, '{"type":"object","required":["id"],"title":"Order"}')
PROTO = Draft(SchemaType.PROTOBUF, 'syntax="proto3"; message A { string id = 1; }')
DEAD = TopicPartition("orders.dlq", 0)


def framed(number: int, payload: bytes) -> bytes:
    return struct.pack(">bi", 0, number) + payload


def avro_bytes() -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(ORDER), {"id": "a"})
    return out.getvalue()


Check = Callable[[Node, int], Awaitable[None]]


def with_topic(check: Check, draft: Draft = AVRO, **settings: str) -> None:
    async def main() -> None:
        async with running_node() as node:
            assert node.schema_changes is not None
            names = {f"schema_{name}": value for name, value in settings.items()}
            await node.topics.create(SESSION, "orders", settings=names)
            subject = "Order" if names.get("schema_subject_strategy") else "orders-value"
            value = await node.schema_changes.register(SESSION, subject, draft)
            await check(node, value.id)

    run(main())


async def send(node: Node, *values: bytes | None) -> None:
    await node.partitions.append(SESSION, ORDERS, batch(*values), Acks.ALL)


async def stored(node: Node, target: TopicPartition = ORDERS) -> list[bytes | None]:
    (part,) = await node.partitions.read(SESSION, [Want(target, 0, 2**20)])
    return values_of(part)


@pytest.mark.parametrize("mode", ["id", "full"])
def test_records_of_a_live_version_pass_and_null_passes(mode: str) -> None:
    async def check(node: Node, number: int) -> None:
        good = framed(number, avro_bytes())
        await send(node, good, None, good)
        await send(node, good)
        assert await stored(node) == [good, None, good, good]

    with_topic(check, validation_value=mode)


@pytest.mark.parametrize(
    ("draft", "good", "bad"),
    [
        (AVRO, avro_bytes(), avro_bytes() + b"x"),
        (JSON, b'{"id":1}', b'{"other":1}'),
        (PROTO, b"\x00\x0a\x01x", b"\x00\x0a\x05x"),
        (PROTO, b"\x02\x00\x0a\x01x", b"\x02\x04\x0a\x01x"),
    ],
)
def test_full_reads_the_bytes_to_their_end(draft: Draft, good: bytes, bad: bytes) -> None:
    async def check(node: Node, number: int) -> None:
        await send(node, framed(number, good))
        with pytest.raises(InvalidRecords) as refused:
            await send(node, framed(number, good), framed(number, bad))
        assert list(refused.value.indexes) == [1]
        assert len(await stored(node)) == 1

    with_topic(check, draft, validation_value="full")


def test_unknown_ids_and_records_without_one_are_refused() -> None:
    async def check(node: Node, number: int) -> None:
        for value in (framed(99, b""), b"plain", b"\0\0"):
            with pytest.raises(InvalidRecords, match="schema"):
                await send(node, value)
        assert await stored(node) == []

    with_topic(check, validation_value="id")


def test_records_without_a_schema_may_be_accepted() -> None:
    async def check(node: Node, number: int) -> None:
        await send(node, b"plain")
        with pytest.raises(InvalidRecords):
            await send(node, framed(99, b""))

    with_topic(check, validation_value="id", validation_unframed="accept")


def test_a_deleted_version_is_refused_from_then_on() -> None:
    async def check(node: Node, number: int) -> None:
        assert node.schema_changes is not None
        await send(node, framed(number, avro_bytes()))
        await node.schema_changes.delete_subject(SESSION, "orders-value")
        with pytest.raises(InvalidRecords, match="no version of"):
            await send(node, framed(number, avro_bytes()))

    with_topic(check, validation_value="id")


def test_dead_letters_take_what_does_not_fit() -> None:
    async def check(node: Node, number: int) -> None:
        good, bad = framed(number, avro_bytes()), framed(number, b"\x80")
        await send(node, good, bad, good)
        await send(node, bad)
        assert await stored(node) == [good, good]
        assert await stored(node, DEAD) == [bad, bad]

    with_topic(check, validation_value="full", validation_action="dead-letter")


def test_a_warning_lets_records_pass() -> None:
    async def check(node: Node, number: int) -> None:
        await send(node, b"plain")
        assert await stored(node) == [b"plain"]

    with_topic(check, validation_value="full", validation_action="warn")


def test_the_subject_may_be_the_name_of_the_record() -> None:
    async def check(node: Node, number: int) -> None:
        await send(node, framed(number, avro_bytes()))

    with_topic(check, validation_value="id", subject_strategy="record")


def test_a_guid_in_a_header_names_the_schema() -> None:
    async def check(node: Node, number: int) -> None:
        text = SchemaText(SchemaType.AVRO, json.dumps(ORDER, separators=(",", ":")))
        header = ("__value_schema_id", b"\x01" + guid(text).bytes)
        for payload, fits in ((avro_bytes(), True), (b"", False)):
            data = encode_batch([Record(0, NOW_MS, None, payload, (header,))])
            if fits:
                await node.partitions.append(SESSION, ORDERS, data, Acks.ALL)
            else:
                with pytest.raises(InvalidRecords):
                    await node.partitions.append(SESSION, ORDERS, data, Acks.ALL)

    with_topic(check, validation_value="full")


def test_a_large_batch_is_checked_in_steps() -> None:
    async def check(node: Node, number: int) -> None:
        good = framed(number, avro_bytes())
        await send(node, *[good] * 2_000)
        with pytest.raises(InvalidRecords) as refused:
            await send(node, *[good] * 1_999, b"plain")
        assert list(refused.value.indexes) == [1_999]

    with_topic(check, validation_value="full")


def test_a_node_without_a_registry_refuses_what_it_cannot_check() -> None:
    from millstream.config import Config, Registry

    async def main() -> None:
        async with running_node(Config(registry=Registry(enabled=False))) as node:
            settings = {"schema_validation_value": "id"}
            await node.topics.create(SESSION, "orders", settings=settings)
            with pytest.raises(RequestError, match=r"registry\.enabled"):
                await send(node, b"a")

    run(main())
