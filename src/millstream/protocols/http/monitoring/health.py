"""`/health`, `/health/live`, `/health/ready` and their short names, for probes and people.

Open before the node is ready and until it has stopped. Codes are FlyMQ's: `/health` is 503 unless
healthy; ready is 503 only while the node starts, stops or is unhealthy.
"""

from http import HTTPStatus

import msgspec

from millstream import __version__
from millstream.protocols.http.calls import Call, iso_time
from millstream.protocols.http.context import State
from millstream.protocols.http.monitoring.checks import Status
from millstream.protocols.http.router import JSON_TYPE, Needs, Params, RawReply, Route


class CheckResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    status: str
    message: str
    since: str
    value: float | None = None
    limit: float | None = None
    latency_ms: float | None = None


class Health(msgspec.Struct, frozen=True, kw_only=True):
    status: str  # healthy, degraded, unhealthy, starting or stopping.
    timestamp: str
    version: str
    checks: list[CheckResult]


def health(call: Call, params: Params) -> RawReply:
    report = report_of(call)
    return _answer(report, report.status == Status.HEALTHY.word)


def ready(call: Call, params: Params) -> RawReply:
    report = report_of(call)
    return _answer(report, report.status in {Status.HEALTHY.word, Status.DEGRADED.word})


def live(call: Call, params: Params) -> RawReply:
    """Answering is the proof that the loop turns."""
    state = call.services.state().value
    now = iso_time(call.services.clock.now_ms())
    return _answer(Health(status=state, timestamp=now, version=__version__, checks=[]), True)


def report_of(call: Call) -> Health:
    services = call.services
    now_ms, state = services.clock.now_ms(), services.state()
    shows_numbers = call.is_known
    checks = []
    worst = Status.HEALTHY
    for verdict, since_ms, latency_s in services.health():
        worst = max(worst, verdict.status)
        checks.append(
            CheckResult(
                name=verdict.name,
                status=verdict.status.word,
                message=verdict.message,
                since=iso_time(since_ms),
                value=verdict.value if shows_numbers else None,
                limit=verdict.limit if shows_numbers else None,
                latency_ms=round(latency_s * 1000, 3) if shows_numbers else None,
            )
        )
    word = worst.word if state is State.READY else state.value
    return Health(status=word, timestamp=iso_time(now_ms), version=__version__, checks=checks)


def _answer(report: Health, is_good: bool) -> RawReply:
    status = HTTPStatus.OK if is_good else HTTPStatus.SERVICE_UNAVAILABLE
    return RawReply(msgspec.json.encode(report), JSON_TYPE, status)


ROUTES = tuple(
    Route(
        method="GET",
        path=path,
        handler=handler,
        summary=summary,
        reply=Health,
        needs=Needs.NOTHING,
        is_raw=True,
    )
    for handler, summary, paths in (
        (health, "The health of the node, check by check", ("/health", "/healthz")),
        (live, "Whether the process lives", ("/health/live", "/livez")),
        (ready, "Whether clients are served", ("/health/ready", "/readyz")),
    )
    for path in paths
)
