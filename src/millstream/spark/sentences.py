"""Puts the sentence of an error where a user sees it: at the top, without the traceback.

Spark reports an error of a Python worker with the worker's traceback, which for an error of ours
says nothing that its sentence does not. A worker that raised ends, so hiding the traceback in its
environment hides that of no other error.
"""

import os
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, TypeVar

from millstream.errors import MillstreamError

_HIDE = "SPARK_HIDE_TRACEBACK"  # What spark.sql.execution.pyspark.udf.hideTraceback.enabled sets.
_ITERATED = "read"  # Its errors come while Spark takes the rows.
_METHODS = (
    "schema",
    "reader",
    "streamReader",
    "writer",
    "streamWriter",
    "partitions",
    _ITERATED,
    "initialOffset",
    "latestOffset",
    "prepareForTriggerAvailableNow",
    "write",
    "commit",
    "abort",
)

_C = TypeVar("_C", bound=type)


def with_sentences(cls: _C) -> _C:
    """Decorate a class of Spark's data source API: errors of ours show their sentence alone."""
    for name in _METHODS:
        method = cls.__dict__.get(name)
        if method is not None:
            setattr(cls, name, _iterated(method) if name == _ITERATED else _called(method))
    return cls


# Any: methods of Spark's classes, of any signature.
def _called(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return method(*args, **kwargs)
        except MillstreamError:
            os.environ[_HIDE] = "1"
            raise

    return call


def _iterated(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def iterate(*args: Any, **kwargs: Any) -> Iterator[Any]:
        try:
            yield from method(*args, **kwargs)
        except MillstreamError:
            os.environ[_HIDE] = "1"
            raise

    return iterate
