"""Bounds how many requests search through records at the same time, and how many wait."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus

from millstream.config import Http
from millstream.protocols.http.problems import HttpProblem


class Scans:
    def __init__(self, settings: Http) -> None:
        self._settings = settings
        self._slots = asyncio.Semaphore(settings.scans_max)
        self._waiting = 0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn; raise 429 if too many wait already."""
        if self._slots.locked() and self._waiting >= self._settings.scans_waiting_max:
            raise HttpProblem(
                HTTPStatus.TOO_MANY_REQUESTS,
                "too_many_scans",
                f"{self._waiting} searches wait already (http.scans_waiting_max)",
                retry_after_ms=1_000,
            )
        self._waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._slots.release()
