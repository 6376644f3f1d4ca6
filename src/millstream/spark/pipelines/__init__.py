"""Pipelines: topics to topics and tables on Spark, described rather than programmed.

`from millstream.spark.pipelines import validate` gives a ready-made pipeline, `examples` runs the
examples of a pipeline file; both are imported on first use.
"""

from importlib import import_module
from types import ModuleType

_READY = (
    "aggregate",
    "archive",
    "dedup",
    "enrich",
    "redrive",
    "replay",
    "traffic",
    "validate",
    "watch",
)
# The names under which users know these modules.
_MODULES = {
    **{name: f"ready.{name}" for name in _READY},
    "dead_letters": "ready.dlq_report",
    "examples": "spec_tests",
}


def __getattr__(name: str) -> ModuleType:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{_MODULES[name]}")
