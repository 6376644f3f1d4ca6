"""Whether a reader's Avro schema resolves a writer's: Avro's rules of schema resolution.

The names of the rules, the paths and the texts are those that registry clients know. A pair of
types is compared once: types may be cyclic, and a pair that is being compared counts as compatible
until a difference says otherwise.
"""

from collections.abc import Mapping, Sequence

from millstream.schemas.avro.types import UNSET, Field, Type
from millstream.schemas.definition import Difference, Nodes

PROMOTIONS = {
    "long": {"int"},
    "float": {"int", "long"},
    "double": {"int", "long", "float"},
    "bytes": {"string"},
    "string": {"bytes"},
}

_Path = tuple[str, ...]


def incompatibilities(reader: Type, writer: Type) -> list[Difference]:
    """Why `reader` cannot read what `writer` wrote; empty if it can."""
    return list(_Comparison().compare(reader, writer, ()))


class _Comparison:
    def __init__(self) -> None:
        # The result of each pair that was compared; of one under way, what is known so far.
        self._compared: dict[tuple[int, int], Sequence[Difference]] = {}
        self._nodes = Nodes()

    def compare(self, reader: Type, writer: Type, path: _Path) -> Sequence[Difference]:
        pair = (id(reader), id(writer))
        if pair not in self._compared:
            self._nodes.enter(len(path) // 4, _place(path))
            self._compared[pair] = ()
            self._compared[pair] = self._different(reader, writer, path)
        return self._compared[pair]

    def _different(self, reader: Type, writer: Type, path: _Path) -> Sequence[Difference]:
        if _kind(reader) == _kind(writer):
            return self._same_kind(reader, writer, path)
        if writer.kind == "union":
            return [
                each for branch in writer.branches for each in self.compare(reader, branch, path)
            ]
        if reader.kind == "union":
            return self._union_reads(reader, writer, path)
        if writer.kind in PROMOTIONS.get(reader.kind, ()):
            return []
        return [_type_mismatch(reader, writer, path)]

    def _same_kind(self, reader: Type, writer: Type, path: _Path) -> Sequence[Difference]:
        match _kind(reader):
            case "array":
                return self.compare(reader.branches[0], writer.branches[0], (*path, "items"))
            case "map":
                return self.compare(reader.branches[0], writer.branches[0], (*path, "values"))
            case "fixed":
                return [*_name_mismatch(reader, writer, path), *_sizes(reader, writer, path)]
            case "enum":
                return [*_name_mismatch(reader, writer, path), *_symbols(reader, writer, path)]
            case "record":
                mismatch = _name_mismatch(reader, writer, path)
                return [*mismatch, *self._fields(reader, writer, path)]
            case "union":
                return self._unions(reader, writer, path)
            case _:
                return []

    def _unions(self, reader: Type, writer: Type, path: _Path) -> list[Difference]:
        differences: list[Difference] = []
        for index, branch in enumerate(writer.branches):
            if self.compare(reader, branch, ()):
                differences.append(_missing_branch(branch, (*path, str(index))))
        return differences

    def _union_reads(self, reader: Type, writer: Type, path: _Path) -> Sequence[Difference]:
        for branch in reader.branches:
            if not self.compare(branch, writer, ()):
                return []
        return [_missing_branch(writer, path)]

    def _fields(self, reader: Type, writer: Type, path: _Path) -> list[Difference]:
        differences: list[Difference] = []
        by_name = {each.name: each for each in writer.fields}
        for index, declared in enumerate(reader.fields):
            at = (*path, "fields", str(index))
            written = _written(by_name, declared)
            if written is not None:
                differences += self.compare(declared.type, written.type, (*at, "type"))
            elif declared.default is UNSET:
                differences.append(_missing_default(declared, at))
        return differences


def _written(by_name: Mapping[str, Field], declared: Field) -> Field | None:
    """The writer's field of this name, or of one of its aliases."""
    for name in (declared.name, *declared.aliases):
        if name in by_name:
            return by_name[name]
    return None


def _kind(declared: Type) -> str:
    return "record" if declared.kind == "error" else declared.kind


def _place(path: _Path) -> str:
    return "/" + "/".join(path)


def _type_mismatch(reader: Type, writer: Type, path: _Path) -> Difference:
    return Difference(
        _place(path),
        "TYPE_MISMATCH",
        True,
        f"The type (path '{_place(path)}') of a field in the {{reader}} schema does not match "
        "with the {writer} schema",
        f"reader type: {reader.java_kind} not compatible with writer type: {writer.java_kind}",
    )


def _missing_branch(writer: Type, path: _Path) -> Difference:
    return Difference(
        _place(path),
        "MISSING_UNION_BRANCH",
        True,
        f"The {{reader}} schema is missing a type inside a union field at path '{_place(path)}' "
        "in the {writer} schema",
        f"reader union lacking writer type: {writer.java_kind}",
    )


def _missing_default(declared: Field, path: _Path) -> Difference:
    return Difference(
        _place(path),
        "READER_FIELD_MISSING_DEFAULT_VALUE",
        True,
        f"The field '{declared.name}' at path '{_place(path)}' in the {{reader}} schema has no "
        "default value and is missing in the {writer}",
        declared.name,
    )


def _name_mismatch(reader: Type, writer: Type, path: _Path) -> list[Difference]:
    if reader.name == writer.name or writer.full_name in reader.aliases:
        return []
    place = _place((*path, "name"))
    return [
        Difference(
            place,
            "NAME_MISMATCH",
            True,
            f"The name of the schema has changed (path '{place}')",
            f"expected: {writer.full_name}",
        )
    ]


def _sizes(reader: Type, writer: Type, path: _Path) -> list[Difference]:
    if reader.size == writer.size:
        return []
    place = _place((*path, "size"))
    return [
        Difference(
            place,
            "FIXED_SIZE_MISMATCH",
            True,
            f"The size of FIXED type field at path '{place}' in the {{reader}} schema does not "
            "match with the {writer} schema",
            f"expected: {writer.size}, found: {reader.size}",
        )
    ]


def _symbols(reader: Type, writer: Type, path: _Path) -> list[Difference]:
    missing = [symbol for symbol in writer.symbols if symbol not in reader.symbols]
    if not missing or reader.enum_default is not None:
        return []
    place, listed = _place((*path, "symbols")), f"[{', '.join(missing)}]"
    return [
        Difference(
            place,
            "MISSING_ENUM_SYMBOLS",
            True,
            f"The {{reader}} schema is missing enum symbols '{listed}' at path '{place}' in the "
            "{writer} schema",
            listed,
        )
    ]
