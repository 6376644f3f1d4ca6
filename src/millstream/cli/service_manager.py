"""Tells systemd how far the service is: `Type=notify`, and a watchdog.

The protocol is sd_notify(3): lines in one datagram to the socket that `NOTIFY_SOCKET` names.
Without that variable, as in a terminal or a container, nothing is sent.
"""

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

# While it starts, systemd waits this much longer from each message on. Recovery after a kill may
# read every log.
START_EXTENSION_S = 60
START_STEP_S = 15
# Pings for each time that the watchdog waits: one may come late.
PINGS_PER_WAIT = 3

_log = logging.getLogger(__name__)


class ServiceManager:
    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        values = os.environ if environment is None else environment
        self._address = _address(values.get("NOTIFY_SOCKET", ""))
        self._ping_s = _ping_interval_s(values)

    @asynccontextmanager
    async def following(self, opened: asyncio.Event) -> AsyncIterator[None]:
        """Tell of a service that is ready when `opened` is set, and stops behind the block."""
        if self._address is None:
            yield
            return
        following = asyncio.create_task(self._follow(opened))
        try:
            yield
        finally:
            following.cancel()

    def stopping(self) -> None:
        self._send("STOPPING=1", "STATUS=stopping")

    async def _follow(self, opened: asyncio.Event) -> None:
        while not opened.is_set():
            self._send(f"EXTEND_TIMEOUT_USEC={START_EXTENSION_S * 1_000_000}", "STATUS=starting")
            try:
                async with asyncio.timeout(START_STEP_S):
                    await opened.wait()
            except TimeoutError:
                continue
        self._send("READY=1", "STATUS=serving clients")
        # From the event loop: a loop that hangs sends none, and systemd restarts the service.
        while self._ping_s is not None:
            self._send("WATCHDOG=1")
            await asyncio.sleep(self._ping_s)

    def _send(self, *lines: str) -> None:
        if self._address is None:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
                channel.setblocking(False)
                channel.sendto("\n".join(lines).encode(), self._address)
        except OSError as problem:
            _log.warning("systemd was not told lines=%s problem=%s", lines, problem)


def _address(name: str) -> str | None:
    """`@` stands for the null byte of an abstract socket."""
    if not name.startswith(("/", "@")):
        return None
    return "\0" + name[1:] if name.startswith("@") else name


def _ping_interval_s(values: Mapping[str, str]) -> float | None:
    """None without a watchdog, or if it watches another process."""
    text = values.get("WATCHDOG_USEC", "")
    if not text.isdecimal() or int(text) == 0:
        return None
    if values.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    return int(text) / 1_000_000 / PINGS_PER_WAIT
