"""Values to bytes and back, by name, by type and by hand."""

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from millstream.client.errors import BadData, NotSupported, Refused
from millstream.client.serde import Serdes, SerdeSpec


class Model(BaseModel):
    order: int
    item: str


class Struct(msgspec.Struct):
    order: int
    item: str


@dataclass
class Data:
    order: int
    item: str


class Upper:
    def encode(self, value: Any) -> bytes:
        return str(value).upper().encode()

    def decode(self, data: bytes) -> Any:
        return data.decode().lower()


def there_and_back(spec: SerdeSpec, value: object) -> object:
    serdes = Serdes()
    serdes.set(spec, key=spec)
    key, data = serdes.encode("orders", value, value)
    assert key == data
    return serdes.decode("orders", key, data)[1]


@pytest.mark.parametrize(
    ("spec", "value"),
    [
        ("bytes", b"\xff\0"),
        ("string", "grüße"),
        ("json", {"order": 1, "kg": [1.5, None, True]}),
        ("int", -(2**63)),
        (bytes, b"x"),
        (str, "x"),
        (int, 2**63 - 1),
        (Model, Model(order=1, item="flour")),
        (Struct, Struct(order=1, item="flour")),
        (Data, Data(order=1, item="flour")),
        (Upper(), "abc"),
    ],
)
def test_what_is_encoded_is_decoded(spec: SerdeSpec, value: object) -> None:
    assert there_and_back(spec, value) == value


@given(st.recursive(st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(), st.lists))
def test_json_takes_what_json_has(value: object) -> None:
    assert there_and_back("json", value) == value


@pytest.mark.parametrize("spec", ["bytes", "string", "json", "int", Model, Struct, Data])
def test_none_is_no_value_for_every_serde(spec: SerdeSpec) -> None:
    serdes = Serdes()
    serdes.set(spec, key=spec)

    assert serdes.encode("orders", None, None) == (None, None)
    assert serdes.decode("orders", None, None) == (None, None)


def test_without_a_serde_bytes_and_text_are_taken_and_bytes_come_back() -> None:
    serdes = Serdes()

    assert serdes.encode("orders", "key", memoryview(b"value")) == (b"key", b"value")
    assert serdes.decode("orders", b"key", b"value") == (b"key", b"value")


def test_a_topic_may_have_its_own() -> None:
    serdes = Serdes()
    serdes.set("json", key=None)
    serdes.set("string", key=None, topic="logs")

    assert serdes.encode("orders", None, "x")[1] == b'"x"'
    assert serdes.encode("logs", None, "x")[1] == b"x"


@pytest.mark.parametrize(
    ("spec", "value", "said"),
    [
        ("bytes", {"a": 1}, "set_serde"),
        ("string", 1, "not a str"),
        ("int", 2**63, "encode"),
        ("json", object(), "encode"),
        (Model, {"order": 1}, "not a Model"),
        (Data, Model(order=1, item="x"), "not a Data"),
    ],
)
def test_a_value_that_does_not_fit_is_told(spec: SerdeSpec, value: object, said: str) -> None:
    with pytest.raises(BadData, match=said):
        there_and_back(spec, value)


@pytest.mark.parametrize(
    ("spec", "data"),
    [
        ("string", b"\xff"),
        ("json", b"{"),
        ("int", b"\0"),
        (Model, b'{"order": "x"}'),
        (Struct, b'{"order": 1}'),
        (Data, b"[]"),
    ],
)
def test_bytes_that_do_not_fit_are_told(spec: SerdeSpec, data: bytes) -> None:
    serdes = Serdes()
    serdes.set(spec, key=None)

    with pytest.raises(BadData, match="cannot decode the value of a record of 'orders'"):
        serdes.decode("orders", None, data)


@pytest.mark.parametrize("name", ["avro", "protobuf"])
def test_formats_with_schemas_say_where_their_serdes_are_made(name: str) -> None:
    with pytest.raises(NotSupported, match=r"Registry\(url\)"):
        Serdes().set(name, key=None)


def test_an_unknown_serde_is_refused_with_the_known_ones() -> None:
    with pytest.raises(Refused, match="bytes, int, json, string"):
        Serdes().set("jsn", key=None)
    with pytest.raises(Refused, match="no Pydantic model"):
        Serdes().set(object, key=None)


def test_a_serde_may_be_given_a_name_but_not_that_of_another() -> None:
    serdes = Serdes()
    serdes.register("upper", Upper())
    serdes.set("upper", key=None)

    assert serdes.encode("orders", None, "abc") == (None, b"ABC")
    with pytest.raises(Refused, match="built in"):
        serdes.register("json", Upper())


def test_a_choice_for_one_consumer_leaves_the_others_alone() -> None:
    serdes = Serdes()
    chosen = serdes.with_choice("json", None)

    assert chosen.decode("orders", b"1", b"1") == (b"1", 1)
    assert serdes.decode("orders", b"1", b"1") == (b"1", b"1")
