"""What a node loads before its first client comes: libraries that few nodes need wait for them.

Each takes milliseconds of every start and memory of every idle node. `docs/performance.md` has the
figures.
"""

import subprocess
import sys

import pytest

# The library, and what loads it.
DEFERRED = {
    "confluent_kafka": "the SDK",
    "cramjam": "the first batch in snappy or zstd",
    "cryptography": "encryption and certificates",
    "difflib": "a name that is not known, to suggest another",
    "fastavro": "an Avro schema",
    "google.protobuf": "a Protobuf schema",
    "jsonschema": "a JSON schema",
    "millstream.peers.greeting": "a cluster",
    "opentelemetry": "an endpoint for traces",
    "pyspark": "the connector",
    "re2": "the first large batch, the first filter with a pattern",
    "shutil": "a topic that is deleted",
    "stringprep": "a password, a host name beyond ASCII",
    "tempfile": "a Protobuf schema",
    "tomllib": "a configuration file",
}

NODE = """
import asyncio, sys
from dataclasses import replace
from millstream.cli import main, serving
from millstream.config import Config
from millstream.server.service import Service
from millstream.server.system.real_ports import real_ports

async def live():
    config = Config(storage="memory", port=0, flux_port=0, classic_port=0, http_port=0)
    config = replace(config, listeners=(*config.listeners, "http"))
    service = Service(config, real_ports(config))
    life = asyncio.create_task(service.run())
    await service.opened.wait()
    print(*sys.modules)
    service.stop()
    await life

asyncio.run(live())
"""


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    node = subprocess.run(
        [sys.executable, "-c", NODE], capture_output=True, text=True, timeout=60, check=True
    )
    return set(node.stdout.split())


@pytest.mark.parametrize("library", DEFERRED)
def test_a_node_starts_without(loaded: set[str], library: str) -> None:
    assert library not in loaded, f"it waits for {DEFERRED[library]}"


def test_a_node_has_loaded_its_listeners(loaded: set[str]) -> None:
    assert {"millstream.protocols.kafka.router", "millstream.server.net.listener"} <= loaded
