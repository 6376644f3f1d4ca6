"""Every check of health, provoked on a running node: what it holds leads to the status it has."""

import asyncio
import http.client
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from millstream.embedding.broker import Broker
from millstream.errors import DamagedLog, NoSpace
from millstream.model import CONTROL_LOG
from millstream.server.monitoring.vitals import VitalSigns
from millstream.server.node import Node
from millstream.server.system.machine import DiskSpace
from tests.support.http import http_node

GIB = 2**30
Provoke = Callable[[Node, VitalSigns], Awaitable[None]]


async def little_space(node: Node, vitals: VitalSigns) -> None:
    vitals._disk_space = lambda: DiskSpace(GIB, 4 * GIB)
    await vitals.refresh()


async def no_space(node: Node, vitals: VitalSigns) -> None:
    node.hub.replicas[CONTROL_LOG].refused(NoSpace("the disk is full"))


async def reserve_in_use(node: Node, vitals: VitalSigns) -> None:
    vitals._disk_space = lambda: DiskSpace(900 * GIB, 1000 * GIB)
    await vitals.refresh()
    node._reserve.is_kept = False


async def slow_sync(node: Node, vitals: VitalSigns) -> None:
    node.hub.commits.slow_rounds.note(asyncio.get_running_loop().time(), 1.5)


async def failed_sync(node: Node, vitals: VitalSigns) -> None:
    node.hub.commits._fail(OSError("gone"))


async def damage(node: Node, vitals: VitalSigns) -> None:
    other = next(log_id for log_id in node.hub.replicas if log_id != CONTROL_LOG)
    node.hub.damaged[other] = DamagedLog("a bit flipped")


async def damaged_control_log(node: Node, vitals: VitalSigns) -> None:
    node.hub.damaged[CONTROL_LOG] = DamagedLog("a bit flipped")


async def unproven_index(node: Node, vitals: VitalSigns) -> None:
    vitals._unproven_since[CONTROL_LOG] = vitals._elapsed_s() - 700


async def a_partition_without_leader(node: Node, vitals: VitalSigns) -> None:
    other = next(log_id for log_id in node.hub.replicas if log_id != CONTROL_LOG)
    node.hub.replicas[other].failure = DamagedLog("stopped")
    vitals.vitals()
    vitals._leaderless_since[other] -= 11


async def no_leader_at_all(node: Node, vitals: VitalSigns) -> None:
    for replica in node.hub.replicas.values():
        replica.failure = DamagedLog("stopped")
    vitals.vitals()
    for log_id in vitals._leaderless_since:
        vitals._leaderless_since[log_id] -= 11


async def late_loop(node: Node, vitals: VitalSigns) -> None:
    vitals._monitor.note(0.3)


async def stuck_loop(node: Node, vitals: VitalSigns) -> None:
    vitals._monitor.note(11.0)


async def full_memory(node: Node, vitals: VitalSigns) -> None:
    vitals._listeners._clients.memory._total = node.config.limits.request_bytes_max


async def loading_coordinators(node: Node, vitals: VitalSigns) -> None:
    node.are_coordinators_loading = lambda: True  # type: ignore[method-assign]
    vitals._loading_since["coordinators"] = vitals._elapsed_s() - 31


async def loading_registry(node: Node, vitals: VitalSigns) -> None:
    node.is_registry_loading = lambda: True  # type: ignore[method-assign]
    vitals._loading_since["registry"] = vitals._elapsed_s() - 31


async def late_delayed_record(node: Node, vitals: VitalSigns) -> None:
    node.delayed_late_ms = lambda: 6_000  # type: ignore[method-assign]


async def stepped_clock(node: Node, vitals: VitalSigns) -> None:
    vitals._look_at_clock()
    assert vitals._clock_ahead_s is not None
    vitals._clock_ahead_s -= 5
    vitals._look_at_clock()


async def certificate_ends_soon(node: Node, vitals: VitalSigns) -> None:
    vitals._certificate_ends_s = lambda: 6 * 24 * 60 * 60.0
    await vitals.refresh()


async def certificate_has_ended(node: Node, vitals: VitalSigns) -> None:
    vitals._certificate_ends_s = lambda: -1.0
    await vitals.refresh()


ROWS: list[tuple[Provoke, str, str]] = [
    (little_space, "disk", "degraded"),
    (no_space, "disk", "unhealthy"),
    (reserve_in_use, "disk", "unhealthy"),
    (slow_sync, "sync", "degraded"),
    (failed_sync, "sync", "unhealthy"),
    (damage, "logs", "degraded"),
    (damaged_control_log, "logs", "unhealthy"),
    (unproven_index, "logs", "degraded"),
    (a_partition_without_leader, "partitions", "degraded"),
    (no_leader_at_all, "partitions", "unhealthy"),
    (late_loop, "loop", "degraded"),
    (stuck_loop, "loop", "unhealthy"),
    (full_memory, "memory", "degraded"),
    (loading_coordinators, "coordinators", "degraded"),
    (loading_registry, "registry", "degraded"),
    (late_delayed_record, "delayed", "degraded"),
    (stepped_clock, "clock", "degraded"),
    (certificate_ends_soon, "certificates", "degraded"),
    (certificate_has_ended, "certificates", "unhealthy"),
]


@pytest.mark.parametrize(
    ("provoke", "check", "status"), ROWS, ids=[row[0].__name__ for row in ROWS]
)
def test_a_check_follows_what_the_node_holds(provoke: Provoke, check: str, status: str) -> None:
    async def statuses(broker: Broker) -> dict[str, str]:
        service = broker._running
        assert service.vitals is not None
        await provoke(service.node, service.vitals)
        service.vitals._last = []  # A look of a moment ago would do else.
        return {each.verdict.name: each.verdict.status.word for each in service.vitals.checks()}

    with http_node() as node:
        assert node.ask.post("/v1/topics", {"name": "orders"}).status == 201
        assert node.broker.call(statuses)[check] == status


def test_connections_near_their_limit_degrade_health() -> None:
    with http_node() as node:

        async def lowered(broker: Broker) -> str:
            running = broker._running.node
            limits = replace(running.config.limits, connections_max=1)
            running.config = replace(running.config, limits=limits)
            vitals = broker._running.vitals
            assert vitals is not None
            (status,) = (
                each.verdict.status.word
                for each in vitals.checks()
                if each.verdict.name == "connections"
            )
            return status

        kept = http.client.HTTPConnection("127.0.0.1", node.ask.port, timeout=30)
        try:
            kept.request("GET", "/livez")
            kept.getresponse().read()
            assert node.broker.call(lowered) == "degraded"
        finally:
            kept.close()
