"""`GET /metrics`: all samples in Prometheus' text format, rendered in steps."""

from collections.abc import Generator

from millstream.engine.gate import Operation
from millstream.metrics import Sample
from millstream.protocols.http.calls import Call
from millstream.protocols.http.router import Params, RawReply, Right, Route
from millstream.protocols.http.wire.responses import METRICS_TYPE, metric_lines

STEP_SAMPLES = 256  # Between two turns of the loop: about half a millisecond.


def metrics(call: Call, params: Params) -> Generator[None, None, RawReply]:
    """All metrics. The samples of a metric must stand together, in the order of their names."""
    if not call.services.config.security.public_metrics:
        call.services.topics.admit_to_cluster(call.session, Operation.DESCRIBE)
    samples: list[Sample] = []
    for sample in call.services.metrics.samples():
        samples.append(sample)
        if len(samples) % STEP_SAMPLES == 0:
            yield
    samples.sort(key=lambda sample: sample.metric.name)
    lines: list[str] = []
    for line in metric_lines(iter(samples)):
        lines.append(line)
        if len(lines) % STEP_SAMPLES == 0:
            yield
    return RawReply("".join(lines).encode(), METRICS_TYPE)


ROUTES = (
    Route(
        method="GET",
        path="/metrics",
        handler=metrics,
        summary="All metrics, as Prometheus reads them",
        rights=(Right("DESCRIBE", "cluster"),),
        sends="text/plain",
        is_raw=True,
    ),
)
