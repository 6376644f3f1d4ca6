"""Quotas of Flux clients: charges each client for what it publishes and receives.

A client that publishes or reads too much is answered, and its connection is not read for a while; a
client that receives too much is sent nothing for a while. The engine keeps the accounts.
"""

import asyncio

from millstream.control.quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE
from millstream.engine.quotas.accounts import Usage
from millstream.model import Session
from millstream.protocols.conversation import Pace


class Meter:
    def __init__(self, usage: Usage, session: Session, pace: Pace) -> None:
        self._usage = usage
        self._session = session
        self._pace = pace

    def published(self, size: int) -> None:
        self._mute(self._charge(PRODUCER_BYTE_RATE, size))

    def read(self, size: int) -> None:
        self._mute(self._charge(CONSUMER_BYTE_RATE, size))

    def delivered(self, size: int) -> float:
        """Return for how many seconds nothing more should be delivered."""
        return self._charge(CONSUMER_BYTE_RATE, size)

    def _charge(self, key: str, size: int) -> float:
        if not self._usage.limited:
            return 0.0
        return self._usage.charge(self._session, key, size) / 1000

    def _mute(self, seconds: float) -> None:
        if seconds:
            resume_at = asyncio.get_running_loop().time() + seconds
            self._pace.resume_at = max(self._pace.resume_at, resume_at)
