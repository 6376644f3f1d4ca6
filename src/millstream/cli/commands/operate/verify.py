"""`millstream verify`: whether a running cluster keeps what it promises, while it is disturbed."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from millstream.cli.connection import Target, connection_options, open_client
from millstream.cli.options import pairs
from millstream.cli.render import Answer, Refused, answered, card, progress, to_json

if TYPE_CHECKING:
    from millstream.client import Client
    from millstream.verify.faults import Fault
    from millstream.verify.run import Report

FINDINGS_SHOWN = 10


@click.command()
@click.option("--seconds", default=30, show_default=True, help="How long clients write.")
@click.option("--partitions", default=3, show_default=True)
@click.option("--writers", default=2, show_default=True, help="Idempotent producers.")
@click.option("--readers", default=2, show_default=True, help="Consumers, beside one group.")
@click.option("--rate", default=200, show_default=True, help="Records a second, of all writers.")
@click.option("--replicas", type=int, help="Of the topic; else as the cluster decides.")
@click.option(
    "--fault",
    "commands",
    multiple=True,
    metavar="NAME=COMMAND",
    help="Run it meanwhile; {node} and {address} are a node's, another each time; repeatable.",
)
@click.option("--drain", "drains", is_flag=True, help="Drain the nodes in turn, and undrain them.")
@click.option("--every", default=10.0, show_default=True, help="Seconds between two faults.")
@click.option("--history", "history_file", metavar="FILE", help="Write all that clients saw.")
@answered
@connection_options
def verify(
    target: Target,
    commands: tuple[str, ...],
    drains: bool,
    history_file: str | None,
    rate: int,
    every: float,
    **options: int,
) -> Answer:
    """Write and read a topic of its own for a while, disturb the cluster, and check every answer.

    Nothing may be lost, doubled, reordered, skipped or old. The exit code is 1 if something was
    found, or if the run could not show anything. The topic is deleted if all was well.
    """
    from millstream.verify.faults import command_fault
    from millstream.verify.run import VerifyConfig
    from millstream.verify.run import verify as run_verification

    try:
        config = VerifyConfig(records_per_s=rate, fault_every_s=every, **options)
    except ValueError as problem:
        raise click.UsageError(f"{problem}.") from None
    faults = [command_fault(name, text) for name, text in pairs(commands, "--fault").items()]
    settings = {"bootstrap.servers": target.bootstrap, "log_level": "0", **target.settings}
    with (
        open_client(target) as client,
        progress("verifying", config.seconds) as advance,
    ):
        if drains:
            faults.append(_draining(client, every))
        report = run_verification(
            client, settings, config, faults=faults, on_second=lambda: advance(1)
        )
    if history_file is not None:
        try:
            Path(history_file).write_text(to_json(report.history.to_json()), encoding="utf-8")
        except OSError as problem:
            raise Refused(f"cannot write {history_file}: {problem.strerror}") from None
    return Answer(_data(report), _text(report), report.verdict == "holds")


def _draining(client: "Client", every_s: float) -> "Fault":
    import time

    from millstream.base_error import MillstreamError
    from millstream.verify.faults import Fault, Node

    def drain(node: Node) -> str:
        try:
            client.cluster.drain(node.node_id)
            time.sleep(every_s / 2)
            client.cluster.undrain(node.node_id)
        except MillstreamError as problem:
            raise RuntimeError(str(problem)) from problem
        return "drained and back"

    return Fault("drain", drain)


def _data(report: "Report") -> dict[str, object]:
    data = {name: value for name, value in asdict(report).items() if name != "history"}
    data["findings"] = [finding._asdict() for finding in report.findings]
    data["faults"] = [happened._asdict() for happened in report.faults]
    return data


def _text(report: "Report") -> str:
    counts = {name: count for name, count in report.counts.items() if count}
    done = sum(happened.is_done for happened in report.faults)
    lines = {
        "verdict": f"{report.verdict}: {report.reason}" if report.reason else report.verdict,
        "topic": report.topic + (" (deleted)" if report.verdict == "holds" else " (kept)"),
        "records": f"{report.sent:,} sent, {report.acknowledged:,} acknowledged, "
        f"{report.read:,} there",
        "longest wait": f"{report.longest_gap_s:.2f} s for an acknowledgement",
        "faults": f"{done} done, {len(report.faults) - done} failed",
        "errors": ", ".join(f"{name} {count}" for name, count in report.errors.items()) or "none",
        "found": ", ".join(f"{name} {count}" for name, count in counts.items()) or "nothing",
    }
    details = [
        f"  {each.check} in partition {each.partition}: {each.text}"
        for each in report.findings[:FINDINGS_SHOWN]
    ]
    failed = [
        f"  {each.fault} of node {each.node_id} failed: {each.outcome}"
        for each in report.faults
        if not each.is_done
    ]
    untested = "Not tested: " + "; ".join(report.not_tested) + "."
    return "\n".join([card(lines), *details, *failed[:FINDINGS_SHOWN], untested])
