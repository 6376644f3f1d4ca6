"""The table `[tracing]` of a node's configuration."""

from dataclasses import dataclass

from millstream.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracing:
    """Traces of requests, sent to a collector of OpenTelemetry."""

    endpoint: str = setting(
        "", "Where spans are sent by OTLP over HTTP, such as `http://localhost:4318`. Empty: off."
    )
    sample_rate: float = setting(
        0.0, "Share of requests without a trace that begin one, 0 to 1. 0: only clients' traces."
    )
    spans_per_s_max: int = setting(1_000, "Spans of one second. Beyond, they are dropped.")
    service_name: str = setting(
        "", "The name of the broker in traces. Empty: `OTEL_SERVICE_NAME`, else `millstream`."
    )

    def __post_init__(self) -> None:
        if self.endpoint and not self.endpoint.startswith(("http://", "https://")):
            raise ValueError(f"tracing.endpoint = {self.endpoint!r} is no http or https address")
        if not 0 <= self.sample_rate <= 1:
            raise ValueError(f"tracing.sample_rate = {self.sample_rate} is not 0 to 1")
        if self.spans_per_s_max < 1:
            raise ValueError(f"tracing.spans_per_s_max = {self.spans_per_s_max} is less than 1")
