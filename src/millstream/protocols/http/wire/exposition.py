"""Encodes samples as Prometheus reads them: text format 0.0.4, and OpenMetrics 1.0.

The two differ in the names of counters, in numbers of buckets, in exemplars and in the last line.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from millstream.metrics import BOUNDS, DECLARED, Exemplar, Kind, Metric, Observed, Sample

TEXT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OPEN_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
OPEN_END: Final = "# EOF\n"

_NAMES = {metric.name for metric in DECLARED}
_BOUND_TEXTS = (*(f"{bound:g}" for bound in BOUNDS), "+Inf")
_OPEN_BOUND_TEXTS = (*(str(float(bound)) for bound in BOUNDS), "+Inf")


def head_lines(metric: Metric, *, is_open: bool) -> str:
    """What stands before the samples of a metric."""
    name, kind = metric.name, metric.kind.value
    if is_open:
        name, kind = _open_name(metric)
    return f"# HELP {name} {_escaped(metric.help, is_label=is_open)}\n# TYPE {name} {kind}\n"


def sample_lines(samples: Iterable[Sample], *, is_open: bool) -> Iterator[str]:
    """The text of each sample: a line, or those of a histogram."""
    for metric, labels, value, observed in samples:
        named = ",".join(
            f'{name}="{_escaped(text, is_label=True)}"'
            for name, text in zip(metric.labels, labels, strict=True)
        )
        if observed is not None:
            yield _histogram(metric.name, named, observed, is_open=is_open)
        elif named:
            yield f"{metric.name}{{{named}}} {value:.17g}\n"
        else:
            yield f"{metric.name} {value:.17g}\n"


def _histogram(name: str, named: str, observed: Observed, *, is_open: bool) -> str:
    lines = []
    comma = "," if named else ""
    count = 0
    bounds = _OPEN_BOUND_TEXTS if is_open else _BOUND_TEXTS
    exemplars = observed.exemplars if is_open else ()
    for at, (bound, bucket) in enumerate(zip(bounds, observed.counts, strict=True)):
        count += bucket
        exemplar = _exemplar(exemplars[at]) if exemplars else ""
        lines.append(f'{name}_bucket{{{named}{comma}le="{bound}"}} {count}{exemplar}\n')
    braced = f"{{{named}}}" if named else ""
    lines.append(f"{name}_sum{braced} {observed.total:.17g}\n{name}_count{braced} {count}\n")
    return "".join(lines)


def _exemplar(exemplar: Exemplar | None) -> str:
    if exemplar is None:
        return ""
    return f' # {{trace_id="{exemplar.trace_id}"}} {exemplar.value:.9g} {exemplar.at_s:.3f}'


def _open_name(metric: Metric) -> tuple[str, str]:
    """The name of the family. A counter's has no `_total`, unless a gauge has that name."""
    if metric.kind is not Kind.COUNTER:
        kind = "unknown" if metric.kind is Kind.UNTYPED else metric.kind.value
        return metric.name, kind
    name = metric.name.removesuffix("_total")
    return (metric.name, "unknown") if name in _NAMES else (name, "counter")


def _escaped(text: str, *, is_label: bool = False) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if is_label else text
