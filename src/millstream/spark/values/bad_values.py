"""Handles rows whose values can't be decoded, as the option onError says.

Good rows cost nothing here: their values were decoded as a column.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias, assert_never

import numpy as np
import pyarrow as pa

from millstream.spark.errors import UnreadableValue
from millstream.spark.options.source import OnError
from millstream.spark.read.arrow import Array, gather
from millstream.spark.read.offset_ranges import OffsetRange
from millstream.spark.read.rows import Rows
from millstream.spark.values.dead_letters import DeadLetters
from millstream.spark.values.decoding import Failure, ValueReader

_SHOWN_BYTES_MAX = 80


class DecodedRows(NamedTuple):
    """The rows that are passed on, and their values."""

    rows: Rows
    values: Array


class ValueDecoder:
    """Decodes the values of one range. Bad rows go to `letters` if `on_error` is DLQ."""

    def __init__(
        self,
        offset_range: OffsetRange,
        read: ValueReader,
        on_error: OnError,
        letters: DeadLetters | None = None,
    ) -> None:
        assert (letters is not None) == (on_error is OnError.DLQ)
        self._range = offset_range
        self._read = read
        self._on_error = on_error
        self._letters = letters

    def decode(self, rows: Rows) -> DecodedRows:
        """Decode the values; raise `UnreadableValue` for a bad one if `on_error` is FAIL."""
        raw = gather(rows.data, rows.values)
        column, failures = self._read(raw)
        if not failures:
            return DecodedRows(rows, column)
        match self._on_error:
            case OnError.FAIL:
                raise self._problem(rows, raw, failures[0])
            case OnError.NULL:
                return DecodedRows(rows, column)
            case OnError.DLQ:
                assert self._letters is not None
                bad = np.array([at for at, _ in failures])
                self._letters.add(rows.part(bad), [why for _, why in failures])
                good = np.setdiff1d(np.arange(len(rows.offsets)), bad)
                return DecodedRows(rows.part(good), column.take(pa.array(good)))
            case other:
                assert_never(other)

    def finish(self) -> None:
        """Write the dead letters that are left, after all rows of the range."""
        if self._letters is not None:
            self._letters.finish()

    def _problem(self, rows: Rows, raw: Array, bad: Failure) -> UnreadableValue:
        shown = raw[bad.at].as_py()[:_SHOWN_BYTES_MAX]
        return UnreadableValue(
            f"the value {shown!r} at offset {rows.offsets[bad.at]} of {self._range.target} is "
            f"not of the valueSchema ({bad.why}); set onError to null to read such values as "
            "null, or to dlq to put such records aside"
        )


DecoderMaker: TypeAlias = Callable[[OffsetRange], ValueDecoder]
