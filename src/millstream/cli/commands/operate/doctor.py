"""`millstream doctor`: checks what a client needs, and says what is wrong in plain words.

Checks from near to far: versions, configuration, disk, keys, address, connection, TLS, certificate,
mechanisms, protocol, the addresses that the broker advertises. Each finding has advice.
`cli.doctor` has the checks.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from millstream.cli.connection import Target, connection_options
from millstream.cli.render import Answer, answered

if TYPE_CHECKING:
    from millstream.cli.doctor.findings import Finding

_SIGNS = {"ok": "ok  ", "warning": "warn", "problem": "FAIL"}


@click.command()
@click.option("--config", "path", metavar="FILE", help="The node's configuration file.")
@click.option("--data-dir", metavar="DIR", help="The node's data directory.  [as configured]")
@click.option("--url", metavar="URL", help="A node's HTTP, whose health is asked for as well.")
@answered
@connection_options
def doctor(target: Target, path: str | None, data_dir: str | None, url: str | None) -> Answer:
    """Find out why it does not work: versions, configuration, disk, address, TLS, login, protocol.

    The exit code is 1 if something is wrong; a warning is not.
    """
    findings = list(_examine(target, path, data_dir))
    if url is not None:
        findings += _node_health(url)
    lines = []
    for finding in findings:
        lines.append(f"{_SIGNS[finding.verdict]}  {finding.check}: {finding.said}")
        if finding.advice:
            lines.append(f"      {finding.advice}")
    is_fine = all(finding.verdict != "problem" for finding in findings)
    return Answer([finding._asdict() for finding in findings], "\n".join(lines), is_fine)


def _node_health(url: str) -> Iterator["Finding"]:
    from millstream.cli.doctor import probes

    yield from probes.node_health(url)


def _examine(target: Target, path: str | None, data_dir: str | None) -> Iterator["Finding"]:
    from millstream.cli.doctor import probes, security

    yield from probes.versions()
    config, finding = probes.configuration(path, data_dir)
    yield finding
    yield from probes.disk(config)
    yield from security.keys(config)
    yield from probes.limits(config)
    yield from security.connections(config)
    is_reachable = False
    for address in target.bootstrap.split(","):
        of_address = list(probes.address(address.strip(), target))
        is_reachable |= all(finding.verdict != "problem" for finding in of_address)
        yield from of_address
    if is_reachable:
        yield from probes.broker(target)
