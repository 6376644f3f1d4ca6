"""The text of an Avro type as Avro's Java library prints it.

Registries tell schemas apart by this text, so that a schema which moves between registries, or
comes with other spaces, keeps its id. Order of members: record `type name namespace doc fields
others aliases`; field `name type doc default order aliases others`; enum `type name namespace doc
symbols default others aliases`; `{"type": "string"}` is `"string"`.
"""

import json
import re
from collections.abc import Iterable

from millstream.schemas.avro.types import ORDERS, UNSET, Field, Json, Type

_CONTROL = re.compile(r"\\u00([0-9a-f]{2})")
# Java prints a double plainly within these bounds, and with an exponent outside of them.
_PLAIN_MIN, _PLAIN_MAX = 1e-3, 1e7


def canonical_text(declared: Type, *, known: Iterable[str] = (), sort: bool = False) -> str:
    """`known` are full names that references define: they are printed as names only.

    With `sort` the properties that Avro does not know are printed in the order of their names.
    """
    return _Printer(set(known), is_sorted=sort).type(declared, "")


class _Printer:
    def __init__(self, printed: set[str], *, is_sorted: bool) -> None:
        self._printed = printed
        self._is_sorted = is_sorted

    def type(self, declared: Type, namespace: str) -> str:
        if declared.kind == "union":
            return "[" + ",".join(self.type(t, namespace) for t in declared.branches) + "]"
        if declared.name:
            return self._named(declared, namespace)
        members = [f'"type":{json_text(declared.kind)}']
        if declared.branches:
            key = "items" if declared.kind == "array" else "values"
            members.append(f'"{key}":{self.type(declared.branches[0], namespace)}')
        elif not declared.properties:
            return json_text(declared.kind)
        return _joined([*members, *self._others(declared.properties)])

    def _named(self, declared: Type, namespace: str) -> str:
        full_name = declared.full_name
        if full_name in self._printed:
            is_near = declared.namespace in {"", namespace}
            return json_text(declared.name if is_near else full_name)
        self._printed.add(full_name)
        members = [f'"type":{json_text(declared.kind)}', f'"name":{json_text(declared.name)}']
        if declared.namespace != namespace:
            members.append(f'"namespace":{json_text(declared.namespace)}')
        if declared.doc is not None:
            members.append(f'"doc":{json_text(declared.doc)}')
        match declared.kind:
            case "enum":
                members.append(f'"symbols":{json_text(list(declared.symbols))}')
                if declared.enum_default is not None:
                    members.append(f'"default":{json_text(declared.enum_default)}')
            case "fixed":
                members.append(f'"size":{declared.size}')
            case _:
                fields = (self._field(each, declared.namespace) for each in declared.fields)
                members.append(f'"fields":[{",".join(fields)}]')
        members += self._others(declared.properties)
        if declared.aliases:
            members.append(f'"aliases":{json_text(_near(declared))}')
        return _joined(members)

    def _field(self, declared: Field, namespace: str) -> str:
        members = [f'"name":{json_text(declared.name)}']
        members.append(f'"type":{self.type(declared.type, namespace)}')
        if declared.doc is not None:
            members.append(f'"doc":{json_text(declared.doc)}')
        if declared.default is not UNSET:
            members.append(f'"default":{json_text(declared.default)}')
        if declared.order != ORDERS[0]:
            members.append(f'"order":{json_text(declared.order)}')
        if declared.aliases:
            members.append(f'"aliases":{json_text(list(declared.aliases))}')
        return _joined([*members, *self._others(declared.properties)])

    def _others(self, properties: dict[str, Json]) -> list[str]:
        names = sorted(properties) if self._is_sorted else properties
        return [f"{json_text(name)}:{json_text(properties[name])}" for name in names]


def _joined(members: list[str]) -> str:
    return "{" + ",".join(members) + "}"


def _near(declared: Type) -> list[str]:
    """Aliases of the type's own namespace are printed without it."""
    prefix = f"{declared.namespace}." if declared.namespace else ""
    return [
        alias.removeprefix(prefix) if "." not in alias.removeprefix(prefix) else alias
        for alias in declared.aliases
    ]


def json_text(value: Json) -> str:
    """JSON without spaces, with numbers and control characters as Java's Jackson writes them."""
    match value:
        case float():
            return _java_double(value)
        case list():
            return "[" + ",".join(map(json_text, value)) + "]"
        case dict():
            return _joined([f"{json_text(key)}:{json_text(item)}" for key, item in value.items()])
        case str():
            text = json.dumps(value, ensure_ascii=False)
            return _CONTROL.sub(lambda escape: f"\\u00{escape[1].upper()}", text)
        case _:
            return json.dumps(value)


def _java_double(value: float) -> str:
    if value == 0 or _PLAIN_MIN <= abs(value) < _PLAIN_MAX:
        return repr(value)
    digits, _, exponent = f"{value!r}".partition("e")
    if not exponent:  # Python prints plainly up to 1e16.
        digits, _, exponent = _scientific(value).partition("e")
    if "." not in digits:
        digits += ".0"
    return f"{digits}E{int(exponent)}"


def _scientific(value: float) -> str:
    for places in range(17):
        text = f"{value:.{places}e}"
        if float(text) == value:
            return text
    return f"{value:.17e}"
