"""`millstream serve`: a node as a process, with its signals, its log lines and its exit code.

A log line is for a person on a terminal, and a line of JSON everywhere else: with the keys `time`,
`level`, `logger`, `message`, and `request_id` and `exception` where there is one. A file of log
lines is replaced when it is full, and the last few are kept.
"""

import asyncio
import ctypes
import gc
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TextIO, cast

from millstream.cli.service_manager import ServiceManager
from millstream.config import Config
from millstream.config_sources import load_with_origins
from millstream.errors import StartupError, StorageError
from millstream.protocols.conversation import REQUEST_ID
from millstream.server.net.connection import Address
from millstream.server.service import Service, first_of
from millstream.server.system.machine import Machine, fit, look_around
from millstream.server.system.real_ports import real_ports

DONE, FAILED = 0, 1
PRIVATE_UMASK = 0o077  # Files of the process are its user's alone.
# Of a log file, before it becomes FILE.1; so many of those are kept.
LOG_FILE_BYTES_MAX = 100 * 2**20
LOG_FILES_KEPT = 9
HUMAN_LOG_LINE = "%(asctime)s %(levelname)-7s %(name)s %(message)s"

# Blocks up to this size come from memory that was used before, which need not be zeroed and mapped
# page by page: a frame of 1 MiB is put together in 60 us instead of 420.
REUSED_BYTES_MAX = 8 * 2**20
# How much of it the process keeps for the next frame.
KEPT_BYTES_MAX = 32 * 2**20
# A TLS connection of uvloop has a buffer of this size, and touches one page of it while it is idle.
# The buffer gets pages of its own: in reused memory 22 KiB of it had been touched before.
UNTOUCHED_BYTES_MIN = 256 * 1024
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # Of malloc.h, in the GNU C library.

# Objects made before the collector looks for cycles among them. Requests hardly make any, and what
# is there when the listeners open stays for good.
COLLECTED_OBJECTS_MIN = 10_000


def run(
    *,
    path: str | None,
    flags: Mapping[str, object],
    verbose: bool,
    log_format: str = "auto",
    log_file: str | None = None,
    is_secure: bool = False,
) -> int:
    """`is_secure` turns on what protects a node, and makes what it needs."""
    problem: BaseException | None = None
    try:
        set_up_logging(log_format, is_verbose=verbose, path=log_file)
        config, origins = load_with_origins(path=path, flags=flags)
        if "listeners" not in origins and not config.listener:
            # A process is watched and administered; a broker inside a program asks for HTTP.
            config = replace(config, listeners=(*config.listeners, "http"))
        os.umask(PRIVATE_UMASK)
        if is_secure:
            from millstream.cli.securing import secured

            config = secured(config)
        machine = look_around()
        explicit = [key.removeprefix("limits.") for key in origins]
        config = fit(config, machine, explicit=explicit)
        _keep_freed_memory()
        # The objects of a start stay: to look through them for garbage, again and again as they
        # become more, took a tenth of a start with 20,000 partitions, and 50 ms behind its end.
        gc.disable()
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_serve(config, machine, is_secure=is_secure))
    except* (StartupError, StorageError) as problems:
        problem = problems
    if problem is None:
        return DONE
    print(f"millstream: {first_of(problem)}", file=sys.stderr)
    return FAILED


async def _serve(config: Config, machine: Machine, *, is_secure: bool) -> None:
    service = Service(config, real_ports(config), descriptors_max=machine.descriptors_max)
    manager = ServiceManager()
    loop = asyncio.get_running_loop()

    def stop() -> None:
        manager.stopping()
        service.stop()

    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, stop)
    async with asyncio.TaskGroup() as group, manager.following(service.opened):
        if hasattr(signal, "SIGHUP"):
            loop.add_signal_handler(
                signal.SIGHUP, lambda: group.create_task(service.listeners.reload())
            )
        announcing = group.create_task(_announce(service, config, is_secure=is_secure))
        await service.run()
        announcing.cancel()


async def _announce(service: Service, config: Config, *, is_secure: bool) -> None:
    """Say on standard output, once, that clients are served: scripts wait for this line."""
    await service.opened.wait()
    gc.freeze()
    gc.set_threshold(COLLECTED_OBJECTS_MIN)
    gc.enable()
    listeners = " ".join(f"{name}={at.host}:{at.port}" for name, at in service.addresses.items())
    data = config.data_dir if config.storage == "disk" else "(memory)"
    node_id = service.node.config.node_id  # A node that has joined was given one.
    print(f"millstream ready node={node_id} {listeners} data={data}", flush=True)
    http = service.addresses.get("http")
    if http is not None and sys.stdout.isatty():
        print(f"console: {'https' if is_secure else 'http'}://{_dialled(http)}/", flush=True)
    if is_secure:
        from millstream.cli.securing import client_settings

        print(client_settings(config, service.addresses["kafka"]), flush=True)
    elif sys.stdout.isatty():
        kafka = service.address
        print(_what_next(f"{kafka.host}:{kafka.port}", kafka.port), flush=True)


def _dialled(address: Address) -> str:
    """Where a browser of this machine reaches it: a wildcard is no address to go to."""
    host = "localhost" if address.host in ("0.0.0.0", "::", "127.0.0.1") else address.host
    return f"[{host}]:{address.port}" if ":" in host else f"{host}:{address.port}"


def _what_next(address: str, port: int) -> str:
    """The commands to try next, for a person at a terminal."""
    variable = "" if port == Config().port else f"export MILLSTREAM_BOOTSTRAP={address}; "
    commands = "millstream produce greetings hello; millstream consume greetings"
    return f"in another terminal: {variable}{commands}\nCtrl-C stops it"


class JsonLines(logging.Formatter):
    """One JSON object per line, times in UTC."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if request_id := REQUEST_ID.get():
            line["request_id"] = request_id
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def set_up_logging(
    form: str, *, is_verbose: bool, stream: TextIO | None = None, path: str | None = None
) -> None:
    """Send all log lines to the file `path`, else to `stream`, standard error by default.

    `form` is auto, human or json. Raises `StartupError` if the file cannot be written.
    """
    stream = sys.stderr if stream is None else stream
    is_human = form == "human" or (form == "auto" and path is None and stream.isatty())
    handler = _file_handler(path) if path is not None else logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter(HUMAN_LOG_LINE) if is_human else JsonLines())
    level = logging.DEBUG if is_verbose else logging.INFO
    logging.basicConfig(level=level, handlers=[handler])


def _file_handler(path: str) -> logging.Handler:
    from logging.handlers import RotatingFileHandler

    try:
        return RotatingFileHandler(
            path, maxBytes=LOG_FILE_BYTES_MAX, backupCount=LOG_FILES_KEPT, encoding="utf-8"
        )
    except OSError as problem:
        raise StartupError(f"cannot write the log file {path}: {problem.strerror}") from None


def _keep_freed_memory() -> None:
    set_option = _malloc_options()
    set_option(_M_MMAP_THRESHOLD, REUSED_BYTES_MAX)
    set_option(_M_TRIM_THRESHOLD, KEPT_BYTES_MAX)


def _malloc_options() -> Callable[[int, int], object]:
    """Sets an option of the allocator; does nothing where the C library has none."""
    if sys.platform == "linux":
        c_library = ctypes.CDLL(None)
        if hasattr(c_library, "mallopt"):
            return cast("Callable[[int, int], object]", c_library.mallopt)
    return lambda option, value: None


def _loop_factory() -> "type[asyncio.AbstractEventLoop] | None":
    try:
        import uvloop
    except ImportError:
        return None
    set_option = _malloc_options()

    class ServingLoop(uvloop.Loop):
        """Gives the buffers of TLS connections pages of their own."""

        async def connect_accepted_socket(self, *arguments: Any, **options: Any) -> Any:
            # uvloop makes the buffer before it first waits, hence before the next callback.
            set_option(_M_MMAP_THRESHOLD, UNTOUCHED_BYTES_MIN)
            self.call_soon(set_option, _M_MMAP_THRESHOLD, REUSED_BYTES_MAX)
            return await super().connect_accepted_socket(*arguments, **options)

    return ServingLoop
