"""Health: every check, healthy, degraded and unhealthy; what probes see of a start and a stop."""

from dataclasses import replace

import pytest

from millstream.protocols.http.monitoring.checks import (
    CHECKS,
    HealthRecord,
    Status,
    Vitals,
    verdicts,
)
from tests.support.http import HttpClient, http_node

GIB = 2**30
WELL = Vitals(
    disk_free_bytes=500 * GIB, disk_total_bytes=1000 * GIB, partitions=4, certificate_days=90.0
)
ROWS: list[tuple[str, dict[str, object], Status]] = [
    ("disk", {"disk_free_bytes": 99 * GIB}, Status.DEGRADED),
    ("disk", {"disk_free_bytes": GIB, "disk_total_bytes": 4 * GIB}, Status.DEGRADED),
    ("disk", {"is_disk_full": True}, Status.UNHEALTHY),
    ("disk", {"is_reserve_used": True}, Status.UNHEALTHY),
    ("sync", {"slowest_sync_s": 1.2}, Status.DEGRADED),
    ("sync", {"has_sync_failed": True}, Status.UNHEALTHY),
    ("logs", {"damaged_logs": 1}, Status.DEGRADED),
    ("logs", {"unproven_s": 601.0}, Status.DEGRADED),
    ("logs", {"is_control_log_damaged": True}, Status.UNHEALTHY),
    ("partitions", {"leaderless": 1}, Status.DEGRADED),
    ("partitions", {"leaderless": 4}, Status.UNHEALTHY),
    ("loop", {"loop_late_s": 0.3}, Status.DEGRADED),
    ("loop", {"loop_late_s": 11.0}, Status.UNHEALTHY),
    ("memory", {"memory_bytes": 91, "memory_bytes_max": 100}, Status.DEGRADED),
    ("connections", {"connections": 91, "connections_max": 100}, Status.DEGRADED),
    ("coordinators", {"coordinators_loading_s": 31.0}, Status.DEGRADED),
    ("registry", {"registry_loading_s": 31.0}, Status.DEGRADED),
    ("delayed", {"delayed_late_s": 6.0}, Status.DEGRADED),
    ("clock", {"clock_step_s": -1.5}, Status.DEGRADED),
    ("certificates", {"certificate_days": 6.0}, Status.DEGRADED),
    ("certificates", {"certificate_days": 0.0}, Status.UNHEALTHY),
]


def test_a_sound_node_is_healthy_in_every_check() -> None:
    assert {verdict.status for verdict in verdicts(WELL)} == {Status.HEALTHY}


@pytest.mark.parametrize(("name", "figures", "status"), ROWS)
def test_a_check_has_its_limit(name: str, figures: dict[str, object], status: Status) -> None:
    wrong = {
        verdict.name: verdict.status
        for verdict in verdicts(replace(WELL, **figures))  # type: ignore[arg-type]
        if verdict.status is not Status.HEALTHY
    }

    assert wrong == {name: status}


def test_every_check_is_provoked() -> None:
    assert {row[0] for row in ROWS} == {verdict.name for verdict in verdicts(WELL)}
    assert len(CHECKS) == len(verdicts(WELL))


def test_a_check_keeps_its_time_until_it_changes() -> None:
    record = HealthRecord()
    late = verdicts(replace(WELL, loop_late_s=1.0))

    assert list(record.note(verdicts(WELL), 1)) == []
    assert [(verdict.name, before) for verdict, before in record.note(late, 2)] == [
        ("loop", Status.HEALTHY)
    ]
    assert list(record.note(late, 3)) == []
    assert (record.since_ms("loop"), record.since_ms("disk")) == (2, 1)


@pytest.mark.parametrize("path", ["/health", "/healthz", "/health/ready", "/readyz"])
def test_a_running_node_is_healthy(ask: HttpClient, path: str) -> None:
    answer = ask.get(path)
    statuses = {check["name"]: check["status"] for check in answer.json["checks"]}

    assert list(statuses) == [verdict.name for verdict in verdicts(WELL)]
    # The machine of a test may be busy with others: then the loop is late, and says so.
    machines = {statuses.pop("loop"), statuses.pop("sync")}
    assert set(statuses.values()) == {"healthy"}
    is_good = machines == {"healthy"} or path in {"/health/ready", "/readyz"}
    assert answer.status == (200 if is_good else 503), answer.text


def test_a_live_node_says_so(ask: HttpClient) -> None:
    assert ask.get("/livez").json["status"] == "ready"


def test_a_failed_sync_is_unhealthy_until_a_restart() -> None:
    with http_node() as node:
        node.broker.call(lambda broker: broker._running.node.hub.commits._fail(OSError("gone")))

        ready = node.ask.get("/health/ready")
        checks = {check["name"]: check["status"] for check in ready.json["checks"]}
        assert (ready.status, ready.json["status"]) == (503, "unhealthy")
        assert checks["sync"] == "unhealthy"
        assert node.ask.get("/health/live").status == 200


def test_a_loop_that_stood_still_degrades_health_and_stays_ready() -> None:
    with http_node() as late:
        late.broker.call(lambda broker: broker._running._monitor.note(0.3))

        assert late.ask.get("/health").json["status"] == "degraded"
        assert late.ask.get("/health").status == 503
        assert late.ask.get("/health/ready").status == 200
