"""Logins over TLS, and the memory of TLS connections."""

import tempfile
from pathlib import Path

from benchmarks.hot_path import create, fetch_frame, frames_of, pump
from benchmarks.kafka.peers import Server
from benchmarks.report import Figure
from benchmarks.security.cells import CELLS, LARGE
from benchmarks.security.client import SecuredClient, idle_sockets
from benchmarks.security.peers import SASL_TLS, TLS, Files, ours

LOGINS = 20  # In a turn.
LOGIN_TURNS = 10
CONNECTIONS = 200
SENT_FRAMES = 5  # Of 64 KiB, by each busy connection.
FILLED_FRAMES = 40  # Before any of them: more than a fetch of 1 MiB takes.
FETCHES = 3


def figures(files: Files) -> list[Figure]:
    with tempfile.TemporaryDirectory() as directory:
        return [
            *_logins(files, Path(directory) / "logins"),
            *_memory(files, Path(directory) / "memory"),
        ]


def _logins(files: Files, directory: Path) -> list[Figure]:
    variant = ours(SASL_TLS, files)
    with Server(variant.peer, directory, "write") as server:
        rates = {}
        for mechanism in ("SCRAM-SHA-256", "PLAIN"):
            SecuredClient(server.port, variant, files.ca, mechanism).close()
            turns = []
            for _ in range(LOGIN_TURNS):
                before = server.cpu_seconds()
                for _ in range(LOGINS):
                    SecuredClient(server.port, variant, files.ca, mechanism).close()
                turns.append(server.cpu_seconds() - before)
            rates[mechanism] = LOGINS / min(turns)
    settings = f"TLS handshake included; best of {LOGIN_TURNS} turns, by the CPU of the broker"
    unit, scram = "a second of a core", rates["SCRAM-SHA-256"]
    return [
        Figure("logins by SCRAM-SHA-256", scram, unit, settings, ">= 500", scram >= 500),
        Figure("logins by PLAIN, the same password again", rates["PLAIN"], unit, settings),
    ]


def _memory(files: Files, directory: Path) -> list[Figure]:
    variant = ours(TLS, files)
    (cell,) = [cell for cell in CELLS if cell.name == LARGE]
    with Server(variant.peer, directory, "write") as server:
        first = SecuredClient(server.port, variant, files.ca)
        create(first, 1, cell.topic)
        pump(first, iter(frames_of(cell) * FILLED_FRAMES), is_answered=True)
        fetches = [fetch_frame(0, 0, cell.topic)] * FETCHES
        pump(first, iter(fetches), is_answered=True)
        before = server.rss_bytes()
        idle = idle_sockets(server.port, CONNECTIONS, files.ca)
        idle_bytes = (server.rss_bytes() - before) / CONNECTIONS
        for connection in idle:
            connection.close()
        before = server.rss_bytes()
        busy = []
        for _ in range(CONNECTIONS):
            client = SecuredClient(server.port, variant, files.ca)
            pump(client, iter(frames_of(cell) * SENT_FRAMES), is_answered=True)
            busy.append(client)
        busy_bytes = (server.rss_bytes() - before) / CONNECTIONS
        before = server.rss_bytes()
        for client in busy:
            pump(client, iter(fetches), is_answered=True)
        fetched_bytes = busy_bytes + (server.rss_bytes() - before) / CONNECTIONS
        for client in [first, *busy]:
            client.close()
    settings = f"resident memory of the broker, {CONNECTIONS} connections"
    return [
        _kib("an idle TLS connection", idle_bytes, settings, 30),
        _kib("a busy TLS connection", busy_bytes, settings, 350),
        Figure("one that has also fetched 1 MiB", fetched_bytes / 1024, "KiB", settings),
    ]


def _kib(name: str, size: float, settings: str, most: int) -> Figure:
    return Figure(name, size / 1024, "KiB", settings, f"<= {most} KiB", size / 1024 <= most)
