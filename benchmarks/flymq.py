"""How fast one FlyMQ client is that waits for every reply.

    python -m benchmarks.flymq [--seconds N]

One synchronous client in Python, values of 128 B, one topic with one partition. It does nothing but
send a frame that it spelled once and read the reply, so the time is the broker's, the system's and
the loopback's. Beside it the same client against a bare uvloop server that answers at once: what no
broker on this machine could go below at this moment.
"""

import argparse
import os
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.report import Figure, publish

GOAL_PER_SECOND = 10_000
WARM_UP_REQUESTS = 500
MILLSTREAM = str(Path(sys.executable).parent / "millstream")
DOORS = ["--flux-port", "0", "--classic-port", "0", "--http-port", "0"]
HEAD = struct.Struct(">BBBBI")
PRODUCE = 0x01

ECHO = """
import asyncio, uvloop
class Echo(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport
    def data_received(self, data):
        self.transport.write(bytes.fromhex("af01010100000021") + bytes(33))
async def main():
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", 0)
    print("kafka=%s:%d " % server.sockets[0].getsockname()[:2], flush=True)
    await asyncio.get_running_loop().create_future()
uvloop.run(main())
"""


def produce_frame(topic: bytes, value: bytes) -> bytes:
    payload = struct.pack(f">H{len(topic)}sII", len(topic), topic, 0, len(value))
    payload += value + struct.pack(">i", -1)
    return HEAD.pack(0xAF, 1, PRODUCE, 1, len(payload)) + payload


def round_trips(address: tuple[str, int], seconds: float) -> list[float]:
    """How long each request took, one after the other."""
    frame = produce_frame(b"bench", bytes(128))
    taken = []
    with socket.create_connection(address) as link:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        end = time.perf_counter() + seconds
        while (started := time.perf_counter()) < end or len(taken) <= WARM_UP_REQUESTS:
            link.sendall(frame)
            reply = link.recv(4096)
            taken.append(time.perf_counter() - started)
            assert reply[2] == PRODUCE, reply
    return taken[WARM_UP_REQUESTS:]


@contextmanager
def serving(command: list[str], **settings: str) -> Iterator[tuple[str, int]]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("MILLSTREAM_")}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=inherited | settings)
    try:
        assert process.stdout is not None
        host, _, port = process.stdout.readline().split("kafka=")[1].split()[0].rpartition(":")
        yield host, int(port)
    finally:
        process.kill()
        process.communicate()


def figures(taken: list[float], what: str, settings: str, goal: int | None = None) -> list[Figure]:
    rate = len(taken) / sum(taken)
    p50, p99 = statistics.median(taken), statistics.quantiles(taken, n=100)[98]
    wanted = "" if goal is None else f"{goal:,}/s"
    return [
        Figure(what, rate, "/s", settings, wanted, None if goal is None else rate >= goal),
        Figure(f"{what}, p50", p50 * 1e6, "µs", settings),
        Figure(f"{what}, p99", p99 * 1e6, "µs", settings),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="One FlyMQ client that waits for every reply.")
    parser.add_argument("--seconds", type=float, default=5.0)
    seconds = parser.parse_args().seconds
    found: list[Figure] = []
    with serving([sys.executable, "-c", ECHO]) as address:
        found += figures(round_trips(address, seconds), "a server that does nothing", "uvloop")
    for durability, goal in (("write", GOAL_PER_SECOND), ("sync", None)):
        with tempfile.TemporaryDirectory() as directory:
            command = [MILLSTREAM, "serve", "--port", "0", *DOORS, "--data-dir", directory]
            with serving(command, MILLSTREAM_DURABILITY=durability) as address:
                taken = round_trips(address, seconds)
        found += figures(taken, "PRODUCE of 128 B", f"durability {durability}", goal)
    publish("flymq", f"python -m benchmarks.flymq --seconds {seconds:g}", found)


if __name__ == "__main__":
    main()
