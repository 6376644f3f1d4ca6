"""Checks the Python types of what a program passes to an embedded broker.

Annotations do not stop a program from passing an int for text. Each check raises a `TypeError` or
`ValueError` that names the argument, the value and what is taken, before the engine sees it.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import fields
from enum import Enum
from typing import TypeAlias

from millstream.embedding.values import NewRecord
from millstream.settings import Switch, TopicSettings

# What a setting may be given as. A name is taken with `_` or, as Kafka spells it, with `.`.
Scalar: TypeAlias = str | int | float | bool | Enum
Settings: TypeAlias = Mapping[str, Scalar]

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

_SWITCHES = frozenset(
    field.name for field in fields(TopicSettings) if isinstance(field.default, Switch)
)
_SHOWN_LENGTH_MAX = 80


def text(argument: str, value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{argument} is {_shown(value)}, it takes text (str)")
    return value


def whole_number(argument: str, value: object, low: int, high: int = INT64_MAX) -> int:
    # A bool is an int to Python, but never a number that is meant.
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{argument} is {_shown(value)}, it takes a whole number (int)")
    if not low <= value <= high:
        raise ValueError(f"{argument} = {_shown(value)} is not in {low} to {high}")
    return value


def settings_text(settings: object) -> dict[str, str]:
    """Settings of a topic by their own names, each as the text that the control log keeps."""
    if settings is None:
        return {}
    if not isinstance(settings, Mapping):
        raise TypeError(f"settings is {_shown(settings)}, it takes a dict")
    texts: dict[str, str] = {}
    for spelled, value in settings.items():
        name = text("the name of a setting", spelled).replace(".", "_")
        if name in texts:
            raise ValueError(f"the setting {name} is given twice, as {spelled!r} and otherwise")
        texts[name] = _setting_text(name, value)
    return texts


def records(values: object) -> list[NewRecord]:
    if isinstance(values, (str, bytes, NewRecord)) or not isinstance(values, Iterable):
        raise TypeError(f"records is {_shown(values)}, it takes a list of NewRecord")
    return [_record(at, value) for at, value in enumerate(values)]


def _record(at: int, record: object) -> NewRecord:
    place = f"records[{at}]"
    if not isinstance(record, NewRecord):
        raise TypeError(f"{place} is {_shown(record)}, it takes a NewRecord")
    headers = []
    if not isinstance(record.headers, (tuple, list)):
        raise TypeError(f"{place}.headers is {_shown(record.headers)}, it takes a tuple of pairs")
    for header in record.headers:
        name, value = _pair(place, header)
        headers.append(
            (text(f"a header's name in {place}", name), _data(f"header {name!r} of {place}", value))
        )
    if record.timestamp_ms is not None:
        whole_number(f"{place}.timestamp_ms", record.timestamp_ms, -1)
    return NewRecord(
        _data(f"{place}.value", record.value),
        _data(f"{place}.key", record.key),
        tuple(headers),
        record.timestamp_ms,
    )


def _pair(place: str, header: object) -> tuple[object, object]:
    if isinstance(header, (tuple, list)) and len(header) == len(("name", "value")):
        return header[0], header[1]
    raise TypeError(f"{place}.headers has {_shown(header)}, it takes (name, value) pairs")


def _data(argument: str, value: object) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    advice = "; encode it, as in 'text'.encode()" if isinstance(value, str) else ""
    raise TypeError(f"{argument} is {_shown(value)}, it takes bytes or None{advice}")


def _setting_text(name: str, value: object) -> str:
    match value:
        case str():
            return value
        case Enum():
            return str(value.value)
        case bool():
            words = ("off", "on") if name in _SWITCHES else ("false", "true")
            return words[value]
        case int():
            return str(value)
        case float() if math.isfinite(value):
            return str(int(value)) if value.is_integer() else repr(value)
        case float():
            raise ValueError(f"the setting {name} is {value}, it takes a finite number")
    raise TypeError(f"the setting {name} is {_shown(value)}, it takes str, int, float or bool")


def _shown(value: object) -> str:
    shown = repr(value)
    if len(shown) > _SHOWN_LENGTH_MAX:
        shown = f"{shown[:_SHOWN_LENGTH_MAX]}..."
    return f"{shown} ({type(value).__name__})"
