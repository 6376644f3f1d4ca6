"""Whether documents of one JSON Schema stay valid under another.

A schema is a conjunction of constraints: its own keywords, each member of `allOf`, and each of
`anyOf` and `oneOf`, `not` and `$ref` as one. Every constraint of the reader must follow from the
writer's schema: from its own keywords, from one of its conjuncts, or from each branch of one of its
sums. What cannot be shown to follow breaks: the verdict errs on the side of refusing.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from millstream.schemas.definition import Difference, Nodes
from millstream.schemas.json.arrays import array_differences
from millstream.schemas.json.document import Json, Place, bare_reference
from millstream.schemas.json.objects import object_differences
from millstream.schemas.json.rules import difference
from millstream.schemas.json.values import value_differences

SUMS = ("anyOf", "oneOf")


class _Parts(NamedTuple):
    """A schema cut into the constraints that all hold."""

    base: Place  # The keywords but for those below.
    products: list[Place]  # Members of `allOf`, and what `$ref` names.
    sums: list[tuple[str, list[Place]]]
    negation: Place | None


def incompatibilities(reader: Place, writer: Place) -> list[Difference]:
    """All differences between the two, those that pass among them."""
    return list(Comparison().compare(writer, reader, ""))


class Comparison:
    """Compares pairs of schemas once each: schemas may be cyclic through references."""

    def __init__(self) -> None:
        self._compared: dict[tuple[int, int], Sequence[Difference]] = {}
        self._kept: list[Json] = []  # Keeps what `id` names alive.
        self._nodes = Nodes()

    def compare(self, old: Place, new: Place, path: str) -> Sequence[Difference]:
        """What documents of `old` meet when `new` reads them."""
        old, new = old.document.follow(old), new.document.follow(new)
        pair = (id(old.schema), id(new.schema))
        if pair not in self._compared:
            self._nodes.enter(path.count("/") // 2, path)
            self._kept += [old.schema, new.schema]
            self._compared[pair] = ()
            self._compared[pair] = self._different(old, new, path)
        return self._compared[pair]

    def passes(self, old: Place, new: Place) -> bool:
        return not any(each.breaks for each in self.compare(old, new, ""))

    def _different(self, old: Place, new: Place, path: str) -> Sequence[Difference]:
        if is_empty(new.schema) or is_never(old.schema):
            return [] if is_empty(old.schema) else [difference("SCHEMA_REMOVED", path)]
        if is_never(new.schema):
            return [difference("TYPE_CHANGED", path)]
        if is_empty(old.schema) and not has_combination(new.schema):
            return [difference("SCHEMA_ADDED", path)]
        before, after = _parts(old), _parts(new)
        return [
            *self._base(before, after, path),
            *self._products(old, before, after, path),
            *self._sums(old, before, after, path),
            *self._negations(before, after, path),
        ]

    def _base(self, before: _Parts, after: _Parts, path: str) -> Iterator[Difference]:
        own = list(self._keywords(before.base, after.base, path))
        if not any(each.breaks for each in own):
            yield from own
        elif any(self.passes(each, after.base) for each in before.products):
            yield difference("PRODUCT_TYPE_NARROWED", path)
        elif any(
            all(self.passes(branch, after.base) for branch in branches)
            for _, branches in before.sums
        ):
            yield difference("COMBINED_TYPE_EXTENDED", path)
        else:
            yield from own

    def _keywords(self, old: Place, new: Place, path: str) -> Iterator[Difference]:
        yield from value_differences(old.schema, new.schema, path)
        yield from object_differences(self, old, new, path)
        yield from array_differences(self, old, new, path)

    def _products(
        self, old: Place, before: _Parts, after: _Parts, path: str
    ) -> Iterator[Difference]:
        if len(before.products) > len(after.products):
            yield difference("PRODUCT_TYPE_NARROWED", f"{path}/allOf")
        for index, member in enumerate(after.products):
            if any(self.passes(each, member) for each in before.products):
                continue
            if self.passes(old, member):
                continue
            grown = len(after.products) > len(before.products)
            rule = "PRODUCT_TYPE_EXTENDED" if grown else "COMBINED_TYPE_SUBSCHEMAS_CHANGED"
            yield difference(rule, f"{path}/allOf/{index}")

    def _sums(self, old: Place, before: _Parts, after: _Parts, path: str) -> Iterator[Difference]:
        for criterion, branches in after.sums:
            at = f"{path}/{criterion}"
            if any(
                before_criterion == criterion or criterion == "anyOf"
                for before_criterion, _ in before.sums
            ):
                yield from self._matched(criterion, before.sums, branches, at)
            elif any(self.passes(old, branch) for branch in branches):
                yield difference("SUM_TYPE_EXTENDED", at)
            else:
                yield difference("COMBINED_TYPE_CHANGED", at)

    def _matched(
        self,
        criterion: str,
        before: list[tuple[str, list[Place]]],
        branches: list[Place],
        path: str,
    ) -> Iterator[Difference]:
        """Each branch of the writer is read by a branch of the reader."""
        problems: list[Difference] = []
        for before_criterion, written in before:
            if before_criterion != criterion and criterion != "anyOf":
                continue
            unread = [
                branch
                for branch in written
                if not any(self.passes(branch, each) for each in branches)
            ]
            if not unread:
                if len(branches) > len(written):
                    yield difference("SUM_TYPE_EXTENDED", path)
                if before_criterion != criterion:
                    yield difference("COMBINED_TYPE_EXTENDED", path)
                return
            fewer = len(branches) < len(written)
            rule = "SUM_TYPE_NARROWED" if fewer else "COMBINED_TYPE_SUBSCHEMAS_CHANGED"
            problems.append(difference(rule, path))
        yield from problems

    def _negations(self, before: _Parts, after: _Parts, path: str) -> Iterator[Difference]:
        if after.negation is None:
            return
        at = f"{path}/not"
        if before.negation is not None and self.passes(after.negation, before.negation):
            if not self.passes(before.negation, after.negation):
                yield difference("NOT_TYPE_NARROWED", at)
        else:
            yield difference("NOT_TYPE_EXTENDED", at)


def is_empty(schema: Json) -> bool:
    """Whether every document is valid: `true`, or no keyword but annotations."""
    return schema is True or (isinstance(schema, dict) and not set(schema) - ANNOTATIONS)


def is_never(schema: Json) -> bool:
    return schema is False or (isinstance(schema, dict) and is_empty(schema.get("not", False)))


def has_combination(schema: Json) -> bool:
    return isinstance(schema, dict) and not {"allOf", "not", "$ref", *SUMS}.isdisjoint(schema)


ANNOTATIONS = frozenset(
    {
        "$schema", "$id", "id", "$comment", "title", "description", "default", "examples",
        "definitions", "$defs", "readOnly", "writeOnly", "deprecated", "$anchor", "$vocabulary",
    }
)  # fmt: skip


def _parts(place: Place) -> _Parts:
    schema = place.schema
    if not isinstance(schema, dict):
        return _Parts(place, [], [], None)

    def at(part: Json) -> Place:
        return Place(part, place.document, place.base)

    base = {key: value for key, value in schema.items() if key not in _COMBINING}
    products = [at(each) for each in schema.get("allOf", ())]
    if isinstance(schema.get("$ref"), str) and bare_reference(schema) is None:
        products.append(place.document.resolve(schema["$ref"], place.base))
    sums: list[tuple[str, list[Place]]] = []
    for criterion in SUMS:
        branches = [at(each) for each in schema.get(criterion, ())]
        if len(branches) == 1:  # A sum of one is its only branch.
            products.append(branches[0])
        elif branches:
            sums.append((criterion, branches))
    negation = at(schema["not"]) if "not" in schema else None
    return _Parts(at(base), products, sums, negation)


_COMBINING = frozenset({"allOf", "anyOf", "oneOf", "not", "$ref"})
