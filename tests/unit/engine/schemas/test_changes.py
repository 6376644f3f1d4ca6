"""Registering and deleting: one id for one schema, and no id twice."""

import asyncio
import json

import pytest

from millstream.engine.schemas.changes import SchemaChanges
from millstream.engine.schemas.parsing import Draft
from millstream.engine.schemas.service import Schemas
from millstream.errors import InvalidRecords
from millstream.errors.schemas import SchemaErrorCode, SchemaRefused
from millstream.model import Acks
from millstream.schemas.definition import SchemaType
from millstream.server.node import Node
from millstream.storage.files.memory import MemoryFiles
from tests.support.nodes import ORDERS, SESSION, batch, running_node
from tests.support.virtual_loop import run

TYPES = ("int", "long", "string", "bytes", "float", "double", "boolean")


def services(node: Node) -> tuple[Schemas, SchemaChanges]:
    assert node.schemas is not None
    assert node.schema_changes is not None
    return node.schemas, node.schema_changes


def draft(name: str) -> Draft:
    return Draft(SchemaType.AVRO, json.dumps(name))


def test_clients_that_register_at_once_get_one_id_for_one_schema() -> None:
    async def main() -> None:
        async with running_node() as node:
            _, changes = services(node)
            values = await asyncio.gather(
                *(changes.register(SESSION, f"s{at}", draft("int")) for at in range(20)),
                *(
                    changes.register(SESSION, f"t{at}", draft(name))
                    for at, name in enumerate(TYPES)
                ),
            )
            assert {value.id for value in values[:20]} == {values[20].id}
            assert len({value.id for value in values}) == len(TYPES)

    run(main())


def test_a_registration_that_was_cancelled_half_way_does_not_lend_its_id() -> None:
    async def main() -> None:
        async with running_node() as node:
            schemas, changes = services(node)
            await changes.register(SESSION, "first", draft("int"))
            for turns in range(12):
                task = asyncio.ensure_future(
                    changes.register(
                        SESSION, f"a{turns}", Draft(SchemaType.JSON, f'{{"a":{turns}}}')
                    )
                )
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait({task})
                other = Draft(SchemaType.JSON, f'{{"b":{turns}}}')
                value = await changes.register(SESSION, f"b{turns}", other)
                known = await schemas.by_id(SESSION, value.id)
                assert known.schema.text == other.text

    run(main())


def test_an_id_that_was_deleted_for_good_is_kept_in_the_control_log() -> None:
    files = MemoryFiles()

    async def first() -> None:
        async with running_node(files=files) as node:
            _, changes = services(node)
            await changes.register(SESSION, "a", draft("int"))
            await changes.register(SESSION, "b", draft("long"))
            await changes.delete_subject(SESSION, "b")
            await changes.delete_subject(SESSION, "b", permanent=True)
            assert node._controller.state.schema_ids == {".": 2}

    async def second() -> None:
        async with running_node(files=files) as node:
            _, changes = services(node)
            assert node._controller.state.schema_ids == {".": 2}
            assert (await changes.register(SESSION, "c", draft("string"))).id == 3

    run(first())
    run(second())


@pytest.mark.parametrize(
    ("text", "schema_type", "problem"),
    [
        ("[" * 5_000 + "]" * 5_000, SchemaType.JSON, ""),
        ('{"type":"array","items":' * 150 + '"int"' + "}" * 150, SchemaType.AVRO, "deeper"),
        (json.dumps({"allOf": [{"type": "object"}] * 30_000}), SchemaType.JSON, "nodes"),
        ('{"$ref":"http://127.0.0.1:1/evil.json"}', SchemaType.JSON, "fetched"),
        ('{"$ref":"file:///etc/passwd"}', SchemaType.JSON, ""),
        ('syntax="proto3"; import "/etc/passwd"; message A {}', SchemaType.PROTOBUF, "passwd"),
        ('syntax="proto3"; import "../../secret.proto"; message A {}', SchemaType.PROTOBUF, ""),
        ("x" * (2**20 + 1), SchemaType.AVRO, "bytes"),
    ],
)
def test_hostile_schemas_are_refused_with_a_sentence(
    text: str, schema_type: SchemaType, problem: str
) -> None:
    async def main() -> None:
        async with running_node() as node:
            _, changes = services(node)
            with pytest.raises(SchemaRefused) as refused:
                await changes.register(SESSION, "a", Draft(schema_type, text))
            codes = {SchemaErrorCode.INVALID_SCHEMA, SchemaErrorCode.TOO_LARGE}
            assert refused.value.code in codes
            assert problem in str(refused.value)

    run(main())


def test_a_pattern_that_backtracks_for_ever_is_bounded() -> None:
    async def main() -> None:
        async with running_node() as node:
            _, changes = services(node)
            bomb = json.dumps({"type": "string", "pattern": "^(a+)+(?=b)$"})
            await node.topics.create(
                SESSION, "orders", settings={"schema_validation_value": "full"}
            )
            value = await changes.register(SESSION, "orders-value", Draft(SchemaType.JSON, bomb))
            data = b"\0" + value.id.to_bytes(4, "big") + b'"' + b"a" * 200 + b'"'
            with pytest.raises(InvalidRecords):
                await node.partitions.append(SESSION, ORDERS, batch(data), Acks.ALL)

    run(main())
