"""Types and helpers that the decoders of all value formats share.

Pure. A reader never raises for a value: it reports the values that it can't decode, with the
reason, and leaves null in their place. `bad_values` handles those.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from millstream.spark.errors import RegistryFailed
from millstream.spark.read.arrow import Array

WHY_LENGTH_MAX = 300


class Failure(NamedTuple):
    """The index of a value that can't be decoded, and the reason."""

    at: int  # Among the values.
    why: str


class Decoded(NamedTuple):
    """As many structs as there were values; null for those that failed, which come in order."""

    column: Array
    failures: list[Failure]


# How the bytes of values become a column of structs.
ValueReader: TypeAlias = Callable[[Array], Decoded]
# Decodes one value for Arrow. Raises any exception for bytes that are no such value.
Decode: TypeAlias = Callable[[bytes], dict[str, object]]


def failure(at: int, why: object) -> Failure:
    return Failure(at, " ".join(str(why).split())[:WHY_LENGTH_MAX])


def one_by_one(decode: Decode, kind: Any) -> ValueReader:  # An Arrow struct type.
    """Read values with a library that takes one at a time."""

    def read(values: Array) -> Decoded:
        rows: list[dict[str, object] | None] = []
        failures: list[Failure] = []
        for index, value in enumerate(values.to_pylist()):
            try:
                rows.append(None if value is None else decode(value))
            except RegistryFailed:
                raise  # The value may be good; the task is tried again.
            except Exception as problem:  # Libraries raise all sorts of things for bad bytes.
                rows.append(None)
                failures.append(failure(index, f"{type(problem).__name__}: {problem}"))
        try:
            return Decoded(pa.array(rows, kind), failures)
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            return _row_by_row(rows, kind, failures)

    return read


def _row_by_row(
    rows: list[dict[str, object] | None], kind: Any, failures: list[Failure]
) -> Decoded:
    """Build the column piece by piece, because at least one row does not fit the type."""
    columns, failed = [], {bad.at: bad for bad in failures}
    for index, row in enumerate(rows):
        try:
            columns.append(pa.array([row], kind))
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as problem:
            columns.append(pa.nulls(1, kind))
            failed[index] = failure(index, problem)
    return Decoded(pa.concat_arrays(columns), [failed[index] for index in sorted(failed)])


def quoted(name: str) -> str:
    """The name of a field, as Spark's DDL takes any."""
    return "`" + name.replace("`", "``") + "`"


def struct(fields: list[tuple[str, str]]) -> str:
    """The DDL of a struct with fields of these types."""
    return f"struct<{','.join(f'{quoted(name)}:{kind}' for name, kind in fields)}>"
