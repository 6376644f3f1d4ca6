"""A JSON Schema document: its bounds, its references, and the schema that a `$ref` names.

Nothing is fetched: a reference names a part of the document, or a document that was registered
as a reference of this one.
"""

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, NamedTuple
from urllib.parse import unquote, urljoin

from millstream.schemas.definition import InvalidSchema, Nodes

# JSON of any shape.
Json = Any

BACKTRACK_MAX = 10_000  # Steps of a pattern with look-around, for one text.
REFERENCE_STEPS_MAX = 100  # A `$ref` that leads to a `$ref` that leads to …


class Place(NamedTuple):
    """A schema and the document it stands in, by which its references are resolved."""

    schema: Json
    document: "Document"
    base: str


class Document:
    """Raises `InvalidSchema` for a text that no draft allows."""

    def __init__(self, text: str, references: Mapping[str, str], *, name: str = "") -> None:
        self.root: Json = load(text)
        self._name = name
        self._by_id: dict[str, Place] = {}
        self._others = {key: Document(other, {}, name=key) for key, other in references.items()}
        for other in self._others.values():
            # References may use each other, whatever their order.
            other._others = self._others
        if not isinstance(self.root, dict | bool):
            raise InvalidSchema("a JSON schema is an object or a boolean")
        self._index(self.root, name, Nodes(), "", 0)
        # Any: the library has no types. None: this document is referenced by another one.
        self.validator: Any = None
        if not name:
            others = {key: other.root for key, other in self._others.items()}
            self.validator = _validator(self.root, others)

    def place(self) -> Place:
        return self._by_id.get("#", Place(self.root, self, self._name))

    def follow(self, place: Place) -> Place:
        """The schema itself, behind any number of references.

        Beside other keywords a `$ref` counts as one more schema, which the comparison sees to.
        """
        for _ in range(REFERENCE_STEPS_MAX):
            reference = bare_reference(place.schema)
            if reference is None:
                return place
            place = place.document.resolve(reference, place.base)
        raise InvalidSchema(f"more than {REFERENCE_STEPS_MAX} references in a row")

    def resolve(self, reference: str, base: str) -> Place:
        target, _, fragment = urljoin(base, reference).partition("#")
        place = self._by_id.get(target) if target != self._name else None
        document = self
        if place is None and target in self._others:
            document = self._others[target]
            place = document.place()
        elif place is None and target in {"", self._name}:
            place = Place(self.root, self, self._name)
        if place is None:
            raise InvalidSchema(f"the reference {reference!r} is not one of the references given")
        if not fragment:
            return place
        if fragment.startswith("/"):
            return Place(_point(place.schema, fragment, reference), place.document, place.base)
        anchored = document._by_id.get(f"{target}#{fragment}")
        if anchored is None:
            raise InvalidSchema(f"the reference {reference!r} leads nowhere")
        return anchored

    def _index(self, source: Json, base: str, nodes: Nodes, place: str, depth: int) -> None:
        nodes.enter(depth, place)
        if isinstance(source, list):
            for index, item in enumerate(source):
                self._index(item, base, nodes, f"{place}/{index}", depth + 1)
        if not isinstance(source, dict):
            return
        identifier = source.get("$id", source.get("id"))
        if isinstance(identifier, str):
            absolute, _, anchor = urljoin(base, identifier).partition("#")
            if anchor:
                self._by_id[f"{absolute}#{anchor}"] = Place(source, self, base)
            elif not place.endswith("/properties"):
                base = absolute
                self._by_id[absolute] = Place(source, self, base)
                if not place:
                    self._by_id["#"] = Place(source, self, base)
        for key in ("$anchor", "$dynamicAnchor"):
            if isinstance(source.get(key), str):
                self._by_id[f"{base}#{source[key]}"] = Place(source, self, base)
        for key, item in source.items():
            if key not in {"enum", "const", "default", "examples"}:
                self._index(item, base, nodes, f"{place}/{key}", depth + 1)


def load(text: str) -> Json:
    try:
        return json.loads(text, parse_float=Decimal, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as problem:
        raise InvalidSchema(f"not JSON: {problem}") from None


def text_of(value: Json, *, sort: bool = False) -> str:
    """JSON without spaces. Numbers keep their digits."""
    match value:
        case Decimal():
            return str(value)
        case list():
            return "[" + ",".join(text_of(item, sort=sort) for item in value) + "]"
        case dict():
            names = sorted(value) if sort else value
            members = (
                f"{json.dumps(name, ensure_ascii=False)}:{text_of(value[name], sort=sort)}"
                for name in names
            )
            return "{" + ",".join(members) + "}"
        case _:
            return json.dumps(value, ensure_ascii=False)


def bare_reference(schema: Json) -> str | None:
    """The `$ref` of a schema that has no other constraint."""
    if not isinstance(schema, dict) or not isinstance(schema.get("$ref"), str):
        return None
    return schema["$ref"] if set(schema) <= _ANNOTATIONS else None


_ANNOTATIONS = {
    "$ref", "$schema", "$id", "id", "$comment", "title", "description", "default", "examples",
    "definitions", "$defs", "readOnly", "writeOnly", "deprecated", "$anchor",
}  # fmt: skip


def _refuse_constant(text: str) -> Json:
    raise ValueError(f"{text} is no JSON value")


def _point(schema: Json, pointer: str, reference: str) -> Json:
    for part in unquote(pointer).split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(schema, dict) and key in schema:
            schema = schema[key]
        elif isinstance(schema, list) and key.isdigit() and int(key) < len(schema):
            schema = schema[int(key)]
        else:
            raise InvalidSchema(f"the reference {reference!r} leads nowhere")
    return schema


def _validator(schema: Json, others: dict[str, Json]) -> Any:
    import jsonschema_rs

    def refuse(uri: str) -> Json:
        if uri in others:
            return others[uri]
        raise ValueError(f"{uri} is not one of the references given; nothing is fetched")

    try:
        return jsonschema_rs.validator_for(
            schema,
            retriever=refuse,
            pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=BACKTRACK_MAX),
        )
    except (ValueError, jsonschema_rs.ValidationError) as problem:
        raise InvalidSchema(str(problem).splitlines()[0]) from None
