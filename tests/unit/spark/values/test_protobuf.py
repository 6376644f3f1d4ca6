"""Protobuf values: the types of a message, and what is in bytes of it."""

import base64
import builtins
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from millstream.spark.errors import InvalidOption, LibraryMissing
from millstream.spark.values.decoding import one_by_one
from millstream.spark.values.protobuf import protobuf_decode, protobuf_type

Field = descriptor_pb2.FieldDescriptorProto


def field(name: str, number: int, kind: int, **more: Any) -> Field:  # type: ignore[valid-type]
    label = more.pop("label", Field.LABEL_OPTIONAL)
    return Field(name=name, number=number, type=kind, label=label, **more)


def files() -> descriptor_pb2.FileDescriptorSet:
    """What protoc would write for a shop with orders, and for what it imports."""
    shop = descriptor_pb2.FileDescriptorProto(
        name="shop.proto",
        package="shop",
        syntax="proto3",
        dependency=["google/protobuf/timestamp.proto"],
    )
    kind = shop.enum_type.add(name="Kind")
    kind.value.add(name="NEW", number=0)
    kind.value.add(name="PAID", number=1)
    order = shop.message_type.add(name="Order")
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.extend([field("key", 1, Field.TYPE_STRING), field("value", 2, Field.TYPE_INT32)])
    order.oneof_decl.add(name="_note")
    repeated = Field.LABEL_REPEATED
    order.field.extend(
        [
            field("id", 1, Field.TYPE_INT64),
            field("note", 2, Field.TYPE_STRING, proto3_optional=True, oneof_index=0),
            field("kind", 3, Field.TYPE_ENUM, type_name=".shop.Kind"),
            field("tags", 4, Field.TYPE_STRING, label=repeated),
            field(
                "counts", 5, Field.TYPE_MESSAGE, label=repeated, type_name=".shop.Order.CountsEntry"
            ),
            field("at", 6, Field.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp"),
            field("big", 7, Field.TYPE_UINT64),
            field("part", 8, Field.TYPE_UINT32),
            field("raw", 9, Field.TYPE_BYTES),
            field("lines", 10, Field.TYPE_MESSAGE, label=repeated, type_name=".shop.Line"),
        ]
    )
    shop.message_type.add(name="Line").field.append(field("sku", 1, Field.TYPE_STRING))
    tree = shop.message_type.add(name="Tree")
    tree.field.append(field("below", 1, Field.TYPE_MESSAGE, type_name=".shop.Tree"))
    shop.message_type.add(name="Empty")
    stamps = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(stamps)
    return descriptor_pb2.FileDescriptorSet(file=[stamps, shop])


SCHEMA = base64.b64encode(files().SerializeToString()).decode()


def message(name: str) -> Any:
    pool = descriptor_pool.DescriptorPool()
    for file in files().file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


TYPE = (
    "struct<`id`:bigint,`note`:string,`kind`:string,`tags`:array<string>,"
    "`counts`:map<string,int>,`at`:timestamp,`big`:decimal(20,0),`part`:bigint,`raw`:binary,"
    "`lines`:array<struct<`sku`:string>>>"
)
ARROW = pa.struct(
    [
        ("id", pa.int64()),
        ("note", pa.string()),
        ("kind", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("counts", pa.map_(pa.string(), pa.int32())),
        ("at", pa.timestamp("us", "UTC")),
        ("big", pa.decimal128(20, 0)),
        ("part", pa.int64()),
        ("raw", pa.binary()),
        ("lines", pa.list_(pa.struct([("sku", pa.string())]))),
    ]
)


def test_every_type_of_protobuf_has_one_of_spark() -> None:
    assert protobuf_type(SCHEMA, "shop.Order") == TYPE


def test_values_are_what_was_written() -> None:
    order = message("shop.Order")(
        id=7, note="n", kind=1, tags=["x"], counts={"a": 1}, big=2**64 - 1, part=2**32 - 1, raw=b"r"
    )
    order.at.seconds, order.at.nanos = 5, 6_007
    order.lines.add(sku="s")

    value = order.SerializeToString()
    rows = one_by_one(protobuf_decode(SCHEMA, "shop.Order"), ARROW)(pa.array([value]))

    (row,) = rows.column.to_pylist()
    assert row.pop("at").timestamp() == 5.000006
    assert row == {
        "id": 7,
        "note": "n",
        "kind": "PAID",
        "tags": ["x"],
        "counts": [("a", 1)],
        "big": Decimal(2**64 - 1),
        "part": 2**32 - 1,
        "raw": b"r",
        "lines": [{"sku": "s"}],
    }
    assert rows.failures == []


def test_what_was_not_set_is_null_if_that_is_known_and_else_the_default() -> None:
    row = protobuf_decode(SCHEMA, "shop.Order")(b"")

    assert (row["note"], row["at"]) == (None, None)
    assert (row["id"], row["kind"], row["tags"], row["counts"]) == (0, "NEW", [], {})


def test_a_name_that_is_not_known_yet_stays_a_number() -> None:
    value = message("shop.Order")(kind=9).SerializeToString()

    assert protobuf_decode(SCHEMA, "shop.Order")(value)["kind"] == "9"


def test_bytes_that_are_no_message_are_bad() -> None:
    read = one_by_one(protobuf_decode(SCHEMA, "shop.Order"), ARROW)

    records = read(pa.array([b"\x08\x01", b"\xff\xff", None]))

    assert [failure.at for failure in records.failures] == [1]
    assert [row and row["id"] for row in records.column.to_pylist()] == [1, None, None]


@pytest.mark.parametrize(
    ("schema", "name", "sentence"),
    [
        ("/no/such/file", "shop.Order", "no file that there is, and no descriptor set in base64"),
        ("AAAA", "shop.Order", "no descriptor set in base64"),
        (SCHEMA, "shop.Nothing", "the descriptor set has .*shop.Empty, shop.Line, shop.Order"),
        (SCHEMA, "shop.Tree", "shop.Tree.below is a shop.Tree in a shop.Tree, which has no end"),
        (SCHEMA, "shop.Empty", "shop.Empty is a message without fields"),
    ],
)
def test_what_has_no_type_is_named(schema: str, name: str, sentence: str) -> None:
    with pytest.raises(InvalidOption, match=sentence):
        protobuf_type(schema, name)


def test_without_the_library_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    known = builtins.__import__

    def missing(name: str, *names: Any) -> object:
        if name == "google.protobuf":
            raise ModuleNotFoundError(name)
        return known(name, *names)

    monkeypatch.setattr(builtins, "__import__", missing)

    with pytest.raises(LibraryMissing, match=r"pip install 'millstream\[protobuf\]'"):
        protobuf_type(SCHEMA, "shop.Order")
