"""Reads the options that turn the column `value` into structs.

Pure. Owns the names of the formats and what each needs. The schema comes with the query: the schema
number that some producers put before a value is not looked up.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from millstream.spark.errors import InvalidOption


class ValueFormat(Enum):
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueOptions:
    """The format of values. `schema` is DDL, a Spark or Avro schema, or a descriptor set."""

    form: ValueFormat
    schema: str
    message: str | None = None  # Of the descriptor set; only for Protobuf.


_EXAMPLES = {
    ValueFormat.JSON: "'id bigint, at string'",
    ValueFormat.AVRO: "the JSON of an Avro schema, or a file that has it",
    ValueFormat.PROTOBUF: "a file that protoc --include_imports --descriptor_set_out wrote, or "
    "its bytes in base64",
}


def value_options(options: Mapping[str, str]) -> ValueOptions | None:
    """Read the format of values from options with names in lower case; None: they stay bytes."""
    name = options.get("valueformat", "").strip().lower()
    schema = options.get("valueschema", "").strip()
    message = options.get("valuemessage", "").strip()
    if not name:
        for text, option in ((schema, "valueSchema"), (message, "valueMessage")):
            if text:
                raise InvalidOption(f"{option} means nothing without valueFormat")
        return None
    forms = {form.value: form for form in ValueFormat}
    if name not in forms:
        raise InvalidOption(f"valueFormat is {name!r}, expected one of {', '.join(forms)}")
    form = forms[name]
    if not schema:
        raise InvalidOption(f"valueFormat {name} needs valueSchema, for example {_EXAMPLES[form]}")
    if form is ValueFormat.PROTOBUF and not message:
        raise InvalidOption(
            "valueFormat protobuf needs valueMessage, the full name of a message, for example "
            "shop.Order"
        )
    if form is not ValueFormat.PROTOBUF and message:
        raise InvalidOption(f"valueMessage means nothing with valueFormat {name}")
    return ValueOptions(form=form, schema=schema, message=message or None)
