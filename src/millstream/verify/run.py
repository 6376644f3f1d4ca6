"""One verification: workload and faults for some time, then the checkers, then a report."""

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from millstream.verify.checks import CHECKS, Finding, check_all
from millstream.verify.faults import Fault, Happened, Nemesis, Node
from millstream.verify.history import History
from millstream.verify.workload import Load, Workload

if TYPE_CHECKING:
    from millstream.client import Client

SECONDS_MAX = 7 * 24 * 3600
PARTITIONS_MAX, CLIENTS_MAX, RATE_MAX = 100, 50, 10_000
TOPIC_PREFIX = "millstream-verify-"

Verdict = Literal["holds", "violated", "unknown"]

# Said with every verdict: a run shows only that nothing was seen.
NOT_TESTED = (
    "faults that were not injected during the run",
    "order between partitions: none is promised",
    "transactions, compacted topics, delayed records and push subscriptions",
    "producers without idempotence, and acks other than all",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyConfig:
    seconds: int = 30
    partitions: int = 3
    writers: int = 2
    readers: int = 2
    records_per_s: int = 200  # Of all writers.
    replicas: int | None = None  # None: as the cluster decides.
    fault_every_s: float = 10.0

    def __post_init__(self) -> None:
        for name, low, high in (
            ("seconds", 1, SECONDS_MAX),
            ("partitions", 1, PARTITIONS_MAX),
            ("writers", 1, CLIENTS_MAX),
            ("readers", 1, CLIENTS_MAX),
            ("records_per_s", self.writers, RATE_MAX),
            ("fault_every_s", 0.1, SECONDS_MAX),
        ):
            if not low <= getattr(self, name) <= high:
                raise ValueError(f"{name} = {getattr(self, name)} is not in {low} to {high}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """`unknown`: the run could not show anything, and `reason` says why."""

    verdict: Verdict
    reason: str
    topic: str
    seconds: float
    sent: int
    acknowledged: int
    read: int
    longest_gap_s: float
    counts: dict[str, int]
    findings: list[Finding]
    errors: dict[str, int]
    faults: list[Happened]
    not_tested: tuple[str, ...] = NOT_TESTED
    history: History = field(repr=False)


def verify(
    client: "Client",
    settings: Mapping[str, Any],
    config: VerifyConfig,
    *,
    faults: Sequence[Fault] = (),
    on_second: Callable[[], object] = lambda: None,
) -> Report:
    """Run against the cluster of `client`, on a topic of its own that is deleted unless something
    was found in it. `settings` are librdkafka's."""
    run = secrets.token_hex(6)
    topic = TOPIC_PREFIX + run
    nodes = [
        Node(node.node_id, f"{node.host}:{node.port}")
        for node in client.admin.describe_cluster().nodes
    ]
    client.admin.create_topic(
        topic, partitions=config.partitions, replication_factor=config.replicas
    )
    load = Load(
        topic=topic,
        run=run,
        partitions=config.partitions,
        writers=config.writers,
        readers=config.readers,
        records_per_s=max(1, config.records_per_s // config.writers),
        settings=settings,
    )
    workload, nemesis = Workload(load), Nemesis(faults, nodes, config.fault_every_s)
    began_s = time.monotonic()
    with workload.running():
        nemesis.start()
        try:
            while time.monotonic() < began_s + config.seconds and not workload.is_full:
                time.sleep(1)
                on_second()
        finally:
            nemesis.stop()
    report = _report(workload, nemesis, time.monotonic() - began_s)
    if report.verdict == "holds":
        client.admin.delete_topic(topic)
    return report


def _report(workload: Workload, nemesis: Nemesis, seconds: float) -> Report:
    history = workload.history
    acknowledged = sum(1 for _ in history.acknowledged)
    reason = ""
    if not acknowledged:
        reason = "no record was acknowledged"
    elif not history.is_final_whole:
        reason = "the topic could not be read to its end"
    counts, findings = dict.fromkeys((check.name for check in CHECKS), 0), list[Finding]()
    if not reason:
        counts, findings = check_all(history)
    verdict: Verdict = "unknown" if reason else "violated" if findings else "holds"
    return Report(
        verdict=verdict,
        reason=reason,
        topic=workload.load.topic,
        seconds=seconds,
        sent=len(history.sends),
        acknowledged=acknowledged,
        read=len(history.final),
        longest_gap_s=workload.longest_gap_s,
        counts=counts,
        findings=findings,
        errors=dict(workload.errors),
        faults=nemesis.happened,
        history=history,
    )
