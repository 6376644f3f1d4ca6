"""The table of ready-made pipelines, by the names that users write.

A ready-made pipeline is a module with `Parameters`, `run` and, where they need no broker,
`transform`, `reads` and `writes`. It is imported when it is used.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from pyspark.sql import DataFrame

from millstream.spark.options.kafka import nearest
from millstream.spark.pipelines.failures import InvalidPipeline
from millstream.spark.pipelines.queries import Context
from millstream.spark.pipelines.spec import converted
from millstream.spark.pipelines.summaries import Summary

_PACKAGE = "millstream.spark.pipelines.ready"

# name: module, and what it is for.
_TABLE: dict[str, tuple[str, str]] = {
    "archive": ("archive", "topic to partitioned Parquet files"),
    "replay": ("replay", "archive back to a topic"),
    "validate": ("validate", "good rows on, bad rows to the dead letters"),
    "aggregate": ("aggregate", "figures of event-time windows"),
    "dedup": ("dedup", "each event once"),
    "watch": ("watch", "keys that fall silent, and those that are back"),
    "enrich": ("enrich", "join with a table or another stream"),
    "dlq-report": ("dlq_report", "dead letters by reason, topic and time"),
    "redrive": ("redrive", "dead letters back to where they came from"),
    "traffic": ("traffic", "rates, sizes, latencies and key skew of topics"),
}

# Each pipeline has parameters of its own type, and functions of that type.
Parameters = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyMade:
    name: str
    parameters: type
    run: Callable[[Context, Parameters], Summary]
    transform: Callable[[Mapping[str, DataFrame], Parameters], DataFrame] | None
    reads: Callable[[Parameters], list[str]]
    writes: Callable[[Parameters], list[str]]

    def checked(self, content: Mapping[str, object], where: str) -> Parameters:
        """Parameters from a file, or one sentence that names the place."""
        return converted(dict(content), self.parameters, where)


def names() -> dict[str, str]:
    """All names, and what each is for."""
    return {name: purpose for name, (_, purpose) in _TABLE.items()}


def find(name: str) -> ReadyMade:
    """Raises `InvalidPipeline` if there is none of this name."""
    if name not in _TABLE:
        raise InvalidPipeline(
            f"there is no ready-made pipeline {name!r}; {nearest(name, list(_TABLE))}"
        )
    module = import_module(f"{_PACKAGE}.{_TABLE[name][0]}")
    return ReadyMade(
        name=name,
        parameters=module.Parameters,
        run=module.run,
        transform=getattr(module, "transform", None),
        reads=getattr(module, "reads", _nothing),
        writes=getattr(module, "writes", _nothing),
    )


def _nothing(_: Parameters) -> list[str]:
    return []
