"""Reads the options that turn the column `value` into structs.

Pure. Owns the names of the formats and what each needs. The schema comes with the query, or from a
schema registry, whose clients put the id of a schema before each value.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from millstream.spark.errors import InvalidOption


class ValueFormat(Enum):
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryOptions:
    """Where schemas are, and which of them is that of the query."""

    url: str
    subject: str
    version: str  # A number, or `latest`.
    user_info: str = field(default="", repr=False)  # `user:password`.


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueOptions:
    """The format of values. `schema` is DDL, a Spark or Avro schema, or a descriptor set.

    With a registry, values have the id of a schema before them, and an empty `schema` is looked up.
    """

    form: ValueFormat
    schema: str
    message: str | None = None  # Of the descriptor set; only for Protobuf.
    registry: RegistryOptions | None = None


REGISTRY_OPTIONS = (
    "schemaRegistryUrl",
    "valueSubject",
    "valueSchemaVersion",
    "schemaRegistryUserInfo",
)
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
        own = [(schema, "valueSchema"), (message, "valueMessage")]
        own += [(options.get(option.lower(), ""), option) for option in REGISTRY_OPTIONS]
        for text, option in own:
            if text:
                raise InvalidOption(f"{option} means nothing without valueFormat")
        return None
    forms = {form.value: form for form in ValueFormat}
    if name not in forms:
        raise InvalidOption(f"valueFormat is {name!r}, expected one of {', '.join(forms)}")
    form = forms[name]
    registry = _registry(options)
    is_looked_up = registry is not None and form is not ValueFormat.PROTOBUF
    if not schema and not is_looked_up:
        raise InvalidOption(f"valueFormat {name} needs valueSchema, for example {_EXAMPLES[form]}")
    if form is ValueFormat.PROTOBUF and not message:
        raise InvalidOption(
            "valueFormat protobuf needs valueMessage, the full name of a message, for example "
            "shop.Order"
        )
    if form is not ValueFormat.PROTOBUF and message:
        raise InvalidOption(f"valueMessage means nothing with valueFormat {name}")
    return ValueOptions(form=form, schema=schema, message=message or None, registry=registry)


def _registry(options: Mapping[str, str]) -> RegistryOptions | None:
    texts = {name: options.get(name.lower(), "").strip() for name in REGISTRY_OPTIONS}
    url, subject, version, user_info = texts.values()
    if not url:
        for name, text in texts.items():
            if text:
                raise InvalidOption(f"{name} means nothing without schemaRegistryUrl")
        return None
    if not url.startswith(("http://", "https://")):
        raise InvalidOption(f"schemaRegistryUrl is {url!r}, expected http://host:port")
    topics = [topic.strip() for topic in options.get("subscribe", "").split(",") if topic.strip()]
    if not subject and len(topics) != 1:
        raise InvalidOption(
            "schemaRegistryUrl needs valueSubject, the name of a subject: it is <topic>-value "
            "where one topic is subscribed to"
        )
    if version and version != "latest" and not (version.isdecimal() and int(version) > 0):
        raise InvalidOption(f"valueSchemaVersion is {version!r}, expected latest or a number")
    return RegistryOptions(
        url=url.rstrip("/"),
        subject=subject or f"{topics[0]}-value",
        version=version or "latest",
        user_info=user_info,
    )
