"""Apache Kafka itself, one process that is broker and controller."""

import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.interop.java.releases import RELEASES

HOST = "127.0.0.1"
START_SECONDS_MAX = 120
CLUSTER_ID = "bWlsbHN0cmVhbS10ZXN0cw"
SETTINGS = """
process.roles=broker,controller
node.id=1
controller.listener.names=CONTROLLER
inter.broker.listener.name=INSIDE
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""


@contextmanager
def apache_kafka(
    home: Path,
    *,
    protocol: str = "PLAINTEXT",
    settings: str = "",
    format_options: Sequence[str] = (),
) -> Iterator[int]:
    """The port of its listener `OUTSIDE`, which speaks `protocol`."""
    release = RELEASES[-1]
    release.install()
    inside, controller, outside = free_ports(3)
    properties = home / "server.properties"
    properties.write_text(
        f"{SETTINGS}{settings}\n"
        "listener.security.protocol.map="
        f"CONTROLLER:PLAINTEXT,INSIDE:PLAINTEXT,OUTSIDE:{protocol}\n"
        f"listeners=INSIDE://{HOST}:{inside},CONTROLLER://{HOST}:{controller},"
        f"OUTSIDE://{HOST}:{outside}\n"
        f"log.dirs={home / 'data'}\n"
        f"controller.quorum.voters=1@{HOST}:{controller}\n",
        encoding="utf-8",
    )
    form = release.tool_command("kafka.tools.StorageTool")
    subprocess.run(
        [*form, "format", "-t", CLUSTER_ID, "-c", str(properties), *format_options],
        check=True,
        capture_output=True,
        timeout=START_SECONDS_MAX,
    )
    with (home / "kafka.log").open("wb") as log:
        process = subprocess.Popen(
            [*release.tool_command("kafka.Kafka"), str(properties)], stdout=log, stderr=log
        )
    try:
        _wait_for(outside, process, home / "kafka.log")
        yield outside
    finally:
        process.kill()
        process.wait()


def free_ports(count: int) -> list[int]:
    servers = [socket.create_server((HOST, 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in servers]
    for server in servers:
        server.close()
    return ports


def _wait_for(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection((HOST, port), 1).close()
        except OSError:
            time.sleep(0.2)
        else:
            return
    pytest.fail(f"Apache Kafka did not start:\n{log.read_text(encoding='utf-8')[-2_000:]}")
