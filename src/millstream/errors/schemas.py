"""Errors of the schema registry, by the numbers that its clients know."""

from collections.abc import Sequence
from enum import IntEnum

from millstream.errors import RequestError


class SchemaErrorCode(IntEnum):
    """The first three digits are the status of the HTTP response."""

    INCOMPATIBLE = 409
    NO_SUBJECT = 40401
    NO_VERSION = 40402
    NO_SCHEMA = 40403
    SUBJECT_SOFT_DELETED = 40404
    SUBJECT_NOT_SOFT_DELETED = 40405
    VERSION_SOFT_DELETED = 40406
    VERSION_NOT_SOFT_DELETED = 40407
    NO_OWN_COMPATIBILITY = 40408
    NO_OWN_MODE = 40409
    INVALID_SCHEMA = 42201
    INVALID_VERSION = 42202
    INVALID_COMPATIBILITY = 42203
    INVALID_MODE = 42204
    NOT_PERMITTED = 42205
    REFERENCED = 42206
    ID_MISMATCH = 42207
    INVALID_SUBJECT = 42208
    TOO_LARGE = 42209
    INVALID_RULES = 42210
    CONTEXT_NOT_EMPTY = 42211

    @property
    def status(self) -> int:
        return self.value if self.value < 1000 else self.value // 100


class SchemaRefused(RequestError):
    """The registry refuses. `messages` are the differences of an incompatible schema."""

    def __init__(self, code: SchemaErrorCode, message: str, messages: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.error_code = code.value
        self.messages = messages


def unknown_subject(subject: str) -> SchemaRefused:
    return SchemaRefused(SchemaErrorCode.NO_SUBJECT, f"Subject '{subject}' not found.")


def unknown_version(version: object) -> SchemaRefused:
    return SchemaRefused(SchemaErrorCode.NO_VERSION, f"Version {version} not found.")


def unknown_schema(schema: object = "") -> SchemaRefused:
    name = f"Schema {schema}" if schema != "" else "Schema"
    return SchemaRefused(SchemaErrorCode.NO_SCHEMA, f"{name} not found")


def invalid_schema(problem: str) -> SchemaRefused:
    return SchemaRefused(SchemaErrorCode.INVALID_SCHEMA, f"Invalid schema: {problem}")


def not_permitted(problem: str) -> SchemaRefused:
    return SchemaRefused(SchemaErrorCode.NOT_PERMITTED, problem)
