"""Protobuf schemas: the text of a file is its own, and each rule breaks or passes by its name."""

import pytest

from millstream.schemas.protobuf.schema import ProtobufSchema
from millstream.schemas.protobuf.well_known import GOOGLE_FILES, well_known_files
from millstream.server.system.protoc import Protoc

HEAD = 'syntax = "proto3"; package mill; '


@pytest.fixture
def compiled() -> "Compiler":
    return Compiler()


class Compiler:
    def __call__(self, text: str) -> ProtobufSchema:
        files = {"a.proto": text, **well_known_files([text], ())}
        return ProtobufSchema(Protoc().compile(files, "a.proto"), text)


WHOLE = """
syntax = "proto3";
package mill.orders;
import "google/protobuf/timestamp.proto";
option java_package = "org.mill";
message Order {
  reserved 5, 9 to 11, 100 to max;
  reserved "old";
  string id = 1;
  optional int32 count = 2 [deprecated = true];
  map<string, Line> lines = 3;
  oneof payment { string card = 4; bytes token = 6; }
  google.protobuf.Timestamp at = 7 [json_name = "when"];
  repeated State states = 8 [packed = false];
  message Line { double kg = 1; }
  enum State { option allow_alias = true; NEW = 0; FRESH = 0; DONE = 1; reserved 7 to max; }
}
enum Top { A = 0; }
service Mill { rpc Grind (Order) returns (stream Order); }
"""


def test_the_text_of_a_file_says_all_of_it(compiled: Compiler) -> None:
    schema = compiled(WHOLE)

    again = compiled(schema.canonical_text)

    assert again.canonical_text == schema.canonical_text
    assert again.file == schema.file


def test_comments_spaces_and_normalised_order_do_not_count(compiled: Compiler) -> None:
    first = compiled(HEAD + "message A { string a = 1; int32 b = 2; }")
    second = compiled("// A comment.\n" + HEAD + "\nmessage A {\n int32 b = 2; string a = 1; }")

    assert first.canonical_text != second.canonical_text
    assert first.normalized_text() == second.normalized_text()


@pytest.mark.parametrize(
    ("old", "new", "rules"),
    [
        ("message A { string a = 1; }", "message A { string a = 1; int32 b = 2; }", []),
        ("message A { string a = 1; int32 b = 2; }", "message A { string a = 1; }", []),
        ("message A { string a = 1; }", "message A { bytes other = 1; }", []),
        ("message A { int32 a = 1; }", "message A { uint64 a = 1; }", []),
        ("message A { E a = 1; } enum E { X = 0; }", "message A { int32 a = 1; }", []),
        (
            "message A { int32 a = 1; }",
            "message A { sint32 a = 1; }",
            ["FIELD_SCALAR_KIND_CHANGED"],
        ),
        (
            "message A { int32 a = 1; }",
            "message A { B a = 1; } message B {}",
            ["FIELD_KIND_CHANGED"],
        ),
        (
            "message A { B a = 1; } message B {} message C {}",
            "message A { C a = 1; } message B {} message C {}",
            ["FIELD_NAMED_TYPE_CHANGED"],
        ),
        ("message A {} message B {}", "message A {}", ["MESSAGE_REMOVED"]),
        (
            "message A { int32 a = 1; }",
            "message A { repeated int32 a = 1; }",
            ["FIELD_NUMERIC_LABEL_CHANGED"],
        ),
        ("message A { string a = 1; }", "message A { repeated string a = 1; }", []),
        (
            "message A { oneof o { string a = 1; string b = 2; } }",
            "message A { oneof o { string a = 1; } }",
            ["ONEOF_FIELD_REMOVED"],
        ),
        ("message A { string a = 1; }", "message A { oneof o { string a = 1; } }", []),
        (
            "message A { string a = 1; string b = 2; }",
            "message A { oneof o { string a = 1; string b = 2; } }",
            ["MULTIPLE_FIELDS_MOVED_TO_ONEOF"],
        ),
        (
            "message A { string a = 1; oneof o { string b = 2; } }",
            "message A { oneof o { string a = 1; string b = 2; } }",
            ["FIELD_MOVED_TO_EXISTING_ONEOF"],
        ),
        (
            "message A { map<string, int32> m = 1; }",
            "message A { map<string, double> m = 1; }",
            ["FIELD_SCALAR_KIND_CHANGED"],
        ),
        (
            "message A { B b = 1; message B { int32 x = 1; } }",
            "message A { B b = 1; message B { float x = 1; } }",
            ["FIELD_SCALAR_KIND_CHANGED"],
        ),
    ],
)
def test_a_change_breaks_readers_by_its_rule(
    compiled: Compiler, old: str, new: str, rules: list[str]
) -> None:
    writer, reader = compiled(HEAD + old), compiled(HEAD + new)

    assert [each.rule for each in reader.differences(writer) if each.breaks] == rules


def test_a_required_field_must_not_come_or_go(compiled: Compiler) -> None:
    head = 'syntax = "proto2"; '
    without = compiled(head + "message A { optional int32 a = 1; }")
    with_it = compiled(head + "message A { optional int32 a = 1; required int32 b = 2; }")

    added = [each.rule for each in with_it.differences(without) if each.breaks]
    removed = [each.rule for each in without.differences(with_it) if each.breaks]

    assert (added, removed) == (["REQUIRED_FIELD_ADDED"], ["REQUIRED_FIELD_REMOVED"])


def test_a_package_must_not_change(compiled: Compiler) -> None:
    old, new = compiled(HEAD + "message A {}"), compiled('syntax = "proto3"; message A {}')

    assert [each.rule for each in new.differences(old) if each.breaks] == ["PACKAGE_CHANGED"]


@pytest.mark.parametrize("name", sorted([*GOOGLE_FILES, "confluent/meta.proto"]))
def test_files_that_every_schema_may_import_are_there(compiled: Compiler, name: str) -> None:
    schema = compiled(f'syntax = "proto3"; import "{name}"; message A {{ string a = 1; }}')

    assert list(schema.file.dependency) == [name]


def test_options_that_a_file_defines_are_kept(compiled: Compiler) -> None:
    text = (
        'syntax = "proto3"; import "confluent/meta.proto"; '
        'message A { string a = 1 [(confluent.field_meta).doc = "a name"]; }'
    )

    assert "a name" in compiled(text).canonical_text


def test_values_are_checked_against_a_message_by_its_indexes(compiled: Compiler) -> None:
    schema = compiled(HEAD + "message A { string a = 1; message B { int32 b = 1; } }")

    schema.value_checker([0])(b"\x0a\x01x")
    schema.value_checker([0, 0])(b"\x08\x01")

    with pytest.raises(ValueError, match="parsing"):
        schema.value_checker([0])(b"\x0a\x05x")
    with pytest.raises(ValueError, match="no message"):
        schema.value_checker([1])
