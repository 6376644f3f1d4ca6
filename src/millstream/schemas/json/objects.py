"""Differences of properties between two JSON Schemas.

What a property that one side does not name may hold is the content model of that side: open
(anything), closed (nothing), or partially open (what `patternProperties` and a schema of
`additionalProperties` say). A property that is added is judged by the model of the writer, one
that is removed by the model of the reader.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from millstream.schemas.definition import Difference
from millstream.schemas.json.document import Json, Place
from millstream.schemas.json.rules import difference

if TYPE_CHECKING:
    from millstream.schemas.json.compatibility import Comparison


def object_differences(
    comparison: "Comparison", old: Place, new: Place, path: str
) -> Iterator[Difference]:
    before, after = _keywords(old), _keywords(new)
    yield from _required(before, after, path)
    yield from _properties(comparison, old, new, path)
    yield from _patterns(comparison, old, new, path)
    yield from _additional(comparison, old, new, path)
    yield from _dependencies(comparison, old, new, path)


def _keywords(place: Place) -> dict[str, Json]:
    return place.schema if isinstance(place.schema, dict) else {}


def _part(place: Place, *keys: str) -> Place:
    schema = place.schema
    for key in keys:
        schema = schema[key]
    return Place(schema, place.document, place.base)


def _names(schema: dict[str, Json]) -> dict[str, Json]:
    properties = schema.get("properties")
    return properties if isinstance(properties, dict) else {}


def _has_default(schema: dict[str, Json], name: str) -> bool:
    declared = _names(schema).get(name)
    return isinstance(declared, dict) and "default" in declared


def _required(before: dict[str, Json], after: dict[str, Json], path: str) -> Iterator[Difference]:
    """Of properties that both sides name, or neither; one that is added is `_added`'s."""
    old, new = set(before.get("required") or ()), set(after.get("required") or ())
    for name in sorted(new - old):
        if name in _names(after) and name not in _names(before):
            continue
        with_default = "WITH_DEFAULT_" if _has_default(after, name) else ""
        yield difference(f"REQUIRED_ATTRIBUTE_{with_default}ADDED", f"{path}/required/{name}")
    for name in sorted(old - new):
        yield difference("REQUIRED_ATTRIBUTE_REMOVED", f"{path}/required/{name}")


def _properties(
    comparison: "Comparison", old: Place, new: Place, path: str
) -> Iterator[Difference]:
    before, after = _names(_keywords(old)), _names(_keywords(new))
    for name in sorted(before.keys() | after.keys()):
        at = f"{path}/properties/{name}"
        if name not in after:
            yield from _removed(comparison, old, new, name, at)
        elif name not in before:
            yield from _added(comparison, old, new, name, at)
        else:
            pair = _part(old, "properties", name), _part(new, "properties", name)
            yield from comparison.compare(*pair, at)


def _removed(
    comparison: "Comparison", old: Place, new: Place, name: str, path: str
) -> Iterator[Difference]:
    declared = _part(old, "properties", name)
    others = _unnamed(new, name)
    match _model(new):
        case "OPEN":
            yield difference("PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL", path)
        case "CLOSED" if declared.schema is False:
            yield difference("PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL", path)
        case "CLOSED":
            yield difference("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", path)
        case _:
            is_covered = all(comparison.passes(declared, each) for each in others)
            covered = "IS_COVERED" if is_covered else "NOT_COVERED"
            rule = f"PROPERTY_REMOVED_{covered}_BY_PARTIALLY_OPEN_CONTENT_MODEL"
            yield difference(rule, path)


def _added(
    comparison: "Comparison", old: Place, new: Place, name: str, path: str
) -> Iterator[Difference]:
    declared = _part(new, "properties", name)
    is_required = name in (_keywords(new).get("required") or ())
    was_required = name in (_keywords(old).get("required") or ())
    has_default = _has_default(_keywords(new), name)
    model = _model(old)
    if is_required and not was_required and not (model == "OPEN" and has_default):
        with_default = "WITH_DEFAULT_" if has_default else ""
        yield difference(f"REQUIRED_PROPERTY_{with_default}ADDED_TO_UNOPEN_CONTENT_MODEL", path)
    elif model == "CLOSED":
        yield difference("OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL", path)
    if model == "OPEN":
        is_empty = comparison.passes(Place(True, old.document, ""), declared)
        rule = "PROPERTY_WITH_EMPTY_SCHEMA_ADDED" if is_empty else "PROPERTY_ADDED"
        yield difference(f"{rule}_TO_OPEN_CONTENT_MODEL", path)
    elif model == "PARTIAL":
        # A document of the writer has to meet all of them, so one that implies it is enough.
        is_covered = any(comparison.passes(each, declared) for each in _unnamed(old, name))
        covered = "IS_COVERED" if is_covered else "NOT_COVERED"
        yield difference(f"PROPERTY_ADDED_{covered}_BY_PARTIALLY_OPEN_CONTENT_MODEL", path)


def _model(place: Place) -> str:
    schema = _keywords(place)
    additional = schema.get("additionalProperties", True)
    if schema.get("patternProperties"):
        return "PARTIAL"
    if additional is False:
        return "CLOSED"
    return "OPEN" if additional in (True, {}) else "PARTIAL"


def _unnamed(place: Place, name: str) -> list[Place]:
    """The schemas that a property meets which the object does not name."""
    import re2

    schema = _keywords(place)
    matched: list[Place] = []
    for pattern in schema.get("patternProperties") or {}:
        try:
            is_match = re2.search(pattern, name) is not None
        except re2.error:
            # Look-around: the pattern may match or not, so nothing can be shown.
            return [Place(False, place.document, place.base)]
        if is_match:
            matched.append(_part(place, "patternProperties", pattern))
    if matched:
        return matched
    return [Place(schema.get("additionalProperties", True), place.document, place.base)]


def _patterns(comparison: "Comparison", old: Place, new: Place, path: str) -> Iterator[Difference]:
    before = _keywords(old).get("patternProperties") or {}
    after = _keywords(new).get("patternProperties") or {}
    for pattern in sorted(after):
        at = f"{path}/patternProperties/{pattern}"
        declared = _part(new, "patternProperties", pattern)
        if pattern in before:
            yield from comparison.compare(_part(old, "patternProperties", pattern), declared, at)
        elif not comparison.passes(Place(True, old.document, ""), declared):
            yield difference("KEYWORD_ADDED", at)
    for pattern in sorted(before.keys() - after.keys()):
        at = f"{path}/patternProperties/{pattern}"
        declared = _part(old, "patternProperties", pattern)
        # Its properties fall to the other patterns, which are compared, or to the rest.
        others = Place(_keywords(new).get("additionalProperties", True), new.document, new.base)
        is_covered = not after and comparison.passes(declared, others)
        yield difference("KEYWORD_REMOVED" if is_covered else "KEYWORD_CHANGED", at)


def _additional(
    comparison: "Comparison", old: Place, new: Place, path: str
) -> Iterator[Difference]:
    before = _keywords(old).get("additionalProperties", True)
    after = _keywords(new).get("additionalProperties", True)
    before, after = (True if each == {} else each for each in (before, after))
    if before == after:
        return
    at = f"{path}/additionalProperties"
    if before is False:
        yield difference("ADDITIONAL_PROPERTIES_ADDED", at)
    elif after is False:
        yield difference("ADDITIONAL_PROPERTIES_REMOVED", at)
    elif before is True:
        yield difference("ADDITIONAL_PROPERTIES_NARROWED", at)
    elif after is True:
        yield difference("ADDITIONAL_PROPERTIES_EXTENDED", at)
    else:
        pair = _part(old, "additionalProperties"), _part(new, "additionalProperties")
        yield from comparison.compare(*pair, at)


def _dependencies(
    comparison: "Comparison", old: Place, new: Place, path: str
) -> Iterator[Difference]:
    before, after = _dependency_places(old), _dependency_places(new)
    for name in sorted(before.keys() | after.keys()):
        at = f"{path}/dependencies/{name}"
        was, now = before.get(name), after.get(name)
        if now is None:
            assert was is not None
            kind = "ARRAY" if isinstance(was.schema, list) else "SCHEMA"
            yield difference(f"DEPENDENCY_{kind}_REMOVED", at)
        elif was is None:
            kind = "ARRAY" if isinstance(now.schema, list) else "SCHEMA"
            yield difference(f"DEPENDENCY_{kind}_ADDED", at)
        elif isinstance(was.schema, list) and isinstance(now.schema, list):
            yield from _dependency_arrays(set(was.schema), set(now.schema), at)
        elif isinstance(was.schema, list) or isinstance(now.schema, list):
            yield difference("DEPENDENCY_ARRAY_CHANGED", at)
        else:
            yield from comparison.compare(was, now, at)


def _dependency_places(place: Place) -> dict[str, Place]:
    places: dict[str, Place] = {}
    for keyword in ("dependencies", "dependentRequired", "dependentSchemas"):
        for name in _keywords(place).get(keyword) or {}:
            places[name if keyword == "dependencies" else f"{keyword}/{name}"] = _part(
                place, keyword, name
            )
    return places


def _dependency_arrays(old: set[str], new: set[str], path: str) -> Iterator[Difference]:
    if old == new:
        return
    if old < new:
        yield difference("DEPENDENCY_ARRAY_EXTENDED", path)
    elif new < old:
        yield difference("DEPENDENCY_ARRAY_NARROWED", path)
    else:
        yield difference("DEPENDENCY_ARRAY_CHANGED", path)
