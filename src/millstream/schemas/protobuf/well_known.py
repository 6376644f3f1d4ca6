"""Files that every Protobuf schema may import without a reference.

Google's come with its library for Python, which has their descriptors; `protoc` has no copy of its
own where only the program is installed. The two of `confluent/` are what its serializers refer to.
"""

import re
from collections.abc import Iterable
from importlib import import_module

from millstream.schemas.protobuf.text import file_text

GOOGLE = "google/protobuf/"
GOOGLE_FILES = frozenset(
    f"{GOOGLE}{name}.proto"
    for name in (
        "any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct",
        "timestamp", "type", "wrappers",
    )
)  # fmt: skip
CONFLUENT_FILES = {
    "confluent/meta.proto": """syntax = "proto3";
package confluent;
import "google/protobuf/descriptor.proto";
message Meta {
  string doc = 1;
  map<string, string> params = 2;
  repeated string tags = 3;
}
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
""",
    "confluent/type/decimal.proto": """syntax = "proto3";
package confluent.type;
message Decimal {
  bytes value = 1;
  uint32 precision = 2;
  int32 scale = 3;
}
""",
}
_IMPORT = re.compile(r'\bimport\s+(?:public\s+|weak\s+)?"([^"]+)"')


def well_known_files(texts: Iterable[str], known: Iterable[str]) -> dict[str, str]:
    """The texts of the files that `texts` import, and theirs; but for those that are `known`."""
    files: dict[str, str] = {}
    waiting = [name for text in texts for name in _IMPORT.findall(text)]
    taken = set(known)
    while waiting:
        name = waiting.pop()
        text = None if name in taken else _text(name)
        taken.add(name)
        if text is not None:
            files[name] = text
            waiting += _IMPORT.findall(text)
    return files


def _text(name: str) -> str | None:
    if name in GOOGLE_FILES:
        module = import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
        from google.protobuf.descriptor_pb2 import FileDescriptorProto

        return file_text(FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb))
    return CONFLUENT_FILES.get(name)
