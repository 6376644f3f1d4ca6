"""The checks of `millstream doctor`: each looks at one thing and returns a finding.

Invariant: a check never raises, an error is its finding. Nothing is changed, on this machine or on
the broker.
"""

import os
import platform
import resource
import shutil
import socket
import ssl
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from millstream import __version__
from millstream.cli.connection import Target, open_client
from millstream.cli.doctor import security
from millstream.cli.doctor.findings import CONNECT_SECONDS_MAX, Finding
from millstream.cli.render import Refused
from millstream.config import Config
from millstream.config_sources import load
from millstream.errors import StartupError

if TYPE_CHECKING:
    from millstream.client import Client

FREE_BYTES_MIN = 2**30
FULL_BYTES_MAX = 2 * 2**20
_MIB = 2**20


def versions() -> Iterator[Finding]:
    text = f"Millstream {__version__}, Python {platform.python_version()}, {platform.system()}"
    try:
        import confluent_kafka
    except ImportError as problem:
        advice = "Install it again: pip install --force-reinstall confluent-kafka"
        yield Finding("versions", "problem", f"{text}; no client library: {problem}", advice)
        return
    library = f"confluent-kafka {confluent_kafka.__version__} on librdkafka"
    yield Finding("versions", "ok", f"{text}, {library} {confluent_kafka.libversion()[0]}")


def configuration(path: str | None, data_dir: str | None) -> tuple[Config, Finding]:
    """The node's configuration as this shell would start it, or the defaults if it is wrong."""
    try:
        config = load(path=path, flags={"data_dir": data_dir})
    except StartupError as problem:
        advice = "`millstream config keys` lists every key with what it takes."
        return Config(), Finding("configuration", "problem", str(problem), advice)
    return config, Finding("configuration", "ok", f"readable, data_dir is {config.data_dir}")


def disk(config: Config) -> Iterator[Finding]:
    if config.storage == "memory":
        yield Finding("disk", "warning", "storage is memory", "Records are gone after a restart.")
        return
    path = Path(config.data_dir)
    existing = next(
        candidate for candidate in (path, *path.absolute().parents) if candidate.exists()
    )
    if not existing.is_dir():
        yield Finding("disk", "problem", f"{existing} is a file", "Choose another data_dir.")
        return
    if not os.access(existing, os.W_OK):
        advice = "Change its permissions or choose another data_dir."
        yield Finding("disk", "problem", f"{existing} is closed to this user", advice)
        return
    usage = shutil.disk_usage(existing)
    text = f"{path} has {usage.free // _MIB} of {usage.total // _MIB} MiB free"
    if usage.free < FULL_BYTES_MAX:
        advice = "Free some space: a broker there takes no records."
        yield Finding("disk", "problem", f"the disk is full: {text}", advice)
    elif usage.free < FREE_BYTES_MIN:
        advice = "Free some space, or shorten retention.ms of the largest topics."
        yield Finding("disk", "warning", text, advice)
    else:
        yield Finding("disk", "ok", text if path.exists() else f"{text}; nothing was kept yet")


def limits(config: Config) -> Iterator[Finding]:
    """Segments and connections each take a file descriptor."""
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    text = f"this shell allows {allowed} open files"
    if allowed != resource.RLIM_INFINITY and allowed < config.limits.open_files_max:
        advice = f"With many clients, raise it before `millstream serve`: ulimit -n {65_536}"
        yield Finding("open files", "warning", text, advice)
    else:
        yield Finding("open files", "ok", text)


def address(text: str, target: Target) -> Iterator[Finding]:
    """Resolve, connect, and see whether the port speaks TLS when it should, or should not."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        advice = "Write it as localhost:9092."
        yield Finding("address", "problem", f"{text!r} is not HOST:PORT ({target.origin})", advice)
        return
    host = host.strip("[]")
    try:
        infos = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as problem:
        advice = "Check the spelling, or your name server."
        yield Finding("address", "problem", f"{host} has no address: {problem}", advice)
        return
    shown = ", ".join(dict.fromkeys(str(info[4][0]) for info in infos))
    yield Finding("address", "ok", f"{text} is {shown} ({target.origin})")
    reached = connection(host, int(port))
    yield reached
    if reached.verdict != "ok":
        return
    is_wanted = _wants_tls(target)
    agreed = tls(host, int(port), is_wanted=is_wanted)
    yield agreed
    if agreed.verdict == "ok":
        if is_wanted:
            yield security.certificate(host, int(port), target)
        yield from security.mechanisms(host, int(port), target, is_tls=is_wanted)


def connection(host: str, port: int, check: str = "connection") -> Finding:
    place = f"{host}:{port}"
    try:
        socket.create_connection((host, port), timeout=CONNECT_SECONDS_MAX).close()
    except ConnectionRefusedError:
        advice = f"Start a broker there (`millstream serve --port {port}`), or correct the port."
        return Finding(check, "problem", f"nothing listens at {place}", advice)
    except TimeoutError:
        advice = "A firewall may be dropping packets, or the machine is off."
        return Finding(check, "problem", f"{place} does not answer", advice)
    except (OSError, OverflowError) as problem:
        return Finding(check, "problem", f"{place} cannot be reached: {problem}")
    return Finding(check, "ok", f"{place} accepts connections")


def tls(host: str, port: int, *, is_wanted: bool) -> Finding:
    """Whether the port speaks TLS as the client does, or neither does.

    A port that answers a plain Kafka request is not tried with TLS, which a broker would log.
    """
    is_plain = not is_wanted and _answers_plainly(host, port)
    spoken = None if is_plain else _tls_version(host, port)
    match spoken, is_wanted:
        case None, False:
            return Finding("TLS", "ok", "not used, neither here nor there")
        case None, True:
            advice = "Leave security.protocol away, or use the broker's TLS port."
            return Finding("TLS", "problem", "asked for, but the port does not speak it", advice)
        case _, False:
            advice = "Add it: millstream context add NAME HOST:PORT --set security.protocol=SSL"
            return Finding(
                "TLS", "problem", f"the port speaks {spoken}, but it is off here", advice
            )
    return Finding("TLS", "ok", f"both sides speak {spoken}")


def _answers_plainly(host: str, port: int) -> bool:
    """Whether the port answers an ApiVersions request of version 0, as every Kafka broker does."""
    api_key, version, correlation_id, no_client_id = 18, 0, 0x6D696C6C, -1
    request = struct.pack(">hhih", api_key, version, correlation_id, no_client_id)
    try:
        with socket.create_connection((host, port), timeout=CONNECT_SECONDS_MAX) as plain:
            plain.sendall(struct.pack(">i", len(request)) + request)
            head = b""
            while len(head) < 8 and (more := plain.recv(8 - len(head))):
                head += more
    except OSError:
        return False
    return head[4:] == struct.pack(">i", correlation_id)


def _tls_version(host: str, port: int) -> str | None:
    """The TLS version that the port speaks; None if it hangs up or waits for more bytes."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # Only whether TLS answers: the client checks certificates.
    try:
        with (
            socket.create_connection((host, port), timeout=CONNECT_SECONDS_MAX) as plain,
            context.wrap_socket(plain, server_hostname=host) as secure,
        ):
            return secure.version()
    except OSError:
        return None


def node_health(url: str) -> Iterator[Finding]:
    """What the checks of a node say, over HTTP."""
    from millstream.cli.monitoring.scrape import readiness

    try:
        _, report = readiness(url)
    except Refused as problem:
        advice = "`millstream serve` prints the address of http when it is ready."
        yield Finding("health", "problem", problem.message, advice)
        return
    for check in report["checks"]:
        if check["status"] == "degraded":
            yield Finding(f"health {check['name']}", "warning", check["message"])
        elif check["status"] != "healthy":
            yield Finding(f"health {check['name']}", "problem", check["message"])
    is_up = report["status"] in {"healthy", "degraded"}
    yield Finding(
        "health", "ok" if is_up else "problem", f"the node at {url} is {report['status']}"
    )


def broker(target: Target) -> Iterator[Finding]:
    """Check that it is a broker, and that the addresses it advertises lead to it."""
    from millstream.client import ClientError

    try:
        with open_client(target) as client:
            cluster = client.admin.check()
            reason = _storage_problem(client)
    except ClientError as problem:
        advice = "Something listens there, but is it a Kafka port? Millstream's is 9092."
        yield Finding("protocol", "problem", str(problem), advice)
        return
    yield Finding("protocol", "ok", f"a broker answers, cluster {cluster.cluster_id}")
    if reason:
        yield Finding("storage", "problem", reason, "`millstream health` lists the partitions.")
    for node in cluster.nodes:
        finding = connection(node.host, node.port, check=f"node {node.node_id}")
        if finding.verdict != "ok":
            advice = "Clients are sent there: set advertised_host and advertised_port of the node."
            finding = finding._replace(advice=advice)
        yield finding


def _storage_problem(client: "Client") -> str:
    from millstream.client import NotSupported
    from millstream.client.extensions.stalls import sentence

    try:
        return sentence(client.address, client.storage_problems())
    except NotSupported:
        return ""  # Only Millstream has this API.


def _wants_tls(target: Target) -> bool:
    return "SSL" in target.settings.get("security.protocol", "").upper().split("_")[-1]
