"""Differences of array items between two JSON Schemas.

An array has a list of schemas by position, and one for the rest. The drafts spell that as
`items` with `additionalItems`, or as `prefixItems` with `items`.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from millstream.schemas.definition import Difference
from millstream.schemas.json.document import Json, Place
from millstream.schemas.json.rules import difference

if TYPE_CHECKING:
    from millstream.schemas.json.compatibility import Comparison


class _Items(NamedTuple):
    prefix: list[Place]
    others: Place

    @property
    def model(self) -> str:
        if self.others.schema is False:
            return "CLOSED"
        return "OPEN" if self.others.schema in (True, {}) else "PARTIAL"


def array_differences(
    comparison: "Comparison", old: Place, new: Place, path: str
) -> Iterator[Difference]:
    yield from _unique(old.schema, new.schema, path)
    before, after = _items(old), _items(new)
    for index in range(max(len(before.prefix), len(after.prefix))):
        at = f"{path}/items/{index}"
        if index >= len(after.prefix):
            yield difference(_removed(comparison, before.prefix[index], after), at)
        elif index >= len(before.prefix):
            yield difference(_added(comparison, after.prefix[index], before), at)
        else:
            yield from comparison.compare(before.prefix[index], after.prefix[index], at)
    yield from _others(comparison, before, after, path)


def _unique(old: Json, new: Json, path: str) -> Iterator[Difference]:
    was = isinstance(old, dict) and old.get("uniqueItems") is True
    now = isinstance(new, dict) and new.get("uniqueItems") is True
    if was != now:
        yield difference(f"UNIQUE_ITEMS_{'ADDED' if now else 'REMOVED'}", f"{path}/uniqueItems")


def _items(place: Place) -> _Items:
    schema = place.schema if isinstance(place.schema, dict) else {}

    def at(part: Json) -> Place:
        return Place(part, place.document, place.base)

    items = schema.get("items", True)
    if "prefixItems" in schema:
        return _Items([at(each) for each in schema["prefixItems"]], at(items))
    if isinstance(items, list):
        return _Items([at(each) for each in items], at(schema.get("additionalItems", True)))
    return _Items([], at(items))


def _added(comparison: "Comparison", declared: Place, before: _Items) -> str:
    match before.model:
        case "CLOSED":
            return "ITEM_ADDED_TO_CLOSED_CONTENT_MODEL"
        case "OPEN" if comparison.passes(before.others, declared):
            return "ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL"
        case "OPEN":
            return "ITEM_ADDED_TO_OPEN_CONTENT_MODEL"
        case _:
            covered = "IS" if comparison.passes(before.others, declared) else "NOT"
            return f"ITEM_ADDED_{covered}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"


def _removed(comparison: "Comparison", declared: Place, after: _Items) -> str:
    match after.model:
        case "OPEN":
            return "ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL"
        case "CLOSED" if declared.schema is False:
            return "ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL"
        case "CLOSED":
            return "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL"
        case _:
            covered = "IS" if comparison.passes(declared, after.others) else "NOT"
            return f"ITEM_REMOVED_{covered}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"


def _others(
    comparison: "Comparison", before: _Items, after: _Items, path: str
) -> Iterator[Difference]:
    if not before.prefix and not after.prefix:
        yield from comparison.compare(before.others, after.others, f"{path}/items")
        return
    at = f"{path}/additionalItems"
    if before.model == after.model and before.model != "PARTIAL":
        return
    if before.model == "CLOSED":
        yield difference("ADDITIONAL_ITEMS_ADDED", at)
    elif after.model == "CLOSED":
        yield difference("ADDITIONAL_ITEMS_REMOVED", at)
    elif before.model == "OPEN":
        yield difference("ADDITIONAL_ITEMS_NARROWED", at)
    elif after.model == "OPEN":
        yield difference("ADDITIONAL_ITEMS_EXTENDED", at)
    else:
        yield from comparison.compare(before.others, after.others, at)
