"""Accounts of what clients have used of their quotas on this node, and their throttle times.

Owns the accounts; the protocol delays its client. An account fills at the quota's rate up to a
burst, and can be overdrawn by a request that is already done. No request is refused here, so there
is no gate.

Invariant: an overdraft stays due, so in the long run a client that waits gets exactly its quota.
"""

import asyncio
from math import ceil

from millstream.config import Limits
from millstream.control.quotas import (
    CONNECTION_CREATION_RATE,
    CONTROLLER_MUTATION_RATE,
    Entity,
    Quota,
    Quotas,
)
from millstream.errors import QuotaExceeded
from millstream.model import Session


class Usage:
    def __init__(self, quotas: Quotas, limits: Limits) -> None:
        self.limited = quotas.limits  # Empty without quotas: then nothing is charged.
        self._quotas = quotas
        self._burst_s = limits.quota_burst_ms_max / 1000
        self._accounts_max = limits.quota_clients_max
        self._throttle_ms_max = limits.throttle_ms_max
        self._accounts: dict[tuple[str, Entity], Account] = {}  # Least recently used first.

    def __len__(self) -> int:
        return len(self._accounts)

    def charge(self, session: Session, key: str, amount: int) -> int:
        """Take `amount` from what the client may use; return for how many ms it must be silent.

        To take nothing is to ask whether it has overdrawn.
        """
        quota = self._quotas.find(key, session.principal.name, session.client_id)
        if quota is None:
            return 0
        now = asyncio.get_running_loop().time()
        wait_s = self._account(key, quota, now).take(amount, quota.rate, self._burst_s, now)
        # An event loop may fire a timer a clock's resolution early: less than a microsecond that
        # is left of a wait is none, or a client that waited as told would be told to wait again.
        return min(ceil(round(wait_s * 1000, 3)), self._throttle_ms_max)

    def take_mutations(self, session: Session, partitions: int) -> None:
        """Count partitions that are made or deleted; raise `QuotaExceeded` while too many were.

        What is allowed may overdraw: a topic of many partitions could never be made otherwise.
        """
        if not self.limited:
            return
        wait_ms = self.charge(session, CONTROLLER_MUTATION_RATE, 0)
        if wait_ms:
            raise QuotaExceeded(wait_ms)
        self.charge(session, CONTROLLER_MUTATION_RATE, partitions)

    def takes_connection(self, address: str) -> bool:
        """Count a connection of an address; False: it has opened too many (KIP-612)."""
        quota = self._quotas.find_address(address) if self.limited else None
        if quota is None:
            return True
        if quota.rate <= 0:
            return False
        now = asyncio.get_running_loop().time()
        account = self._account(CONNECTION_CREATION_RATE, quota, now)
        # At least one at once, however slow the rate is.
        burst_s = max(self._burst_s, 1 / quota.rate)
        if account.take(0, quota.rate, burst_s, now) > 0 or account.balance < 1:
            return False
        account.take(1, quota.rate, burst_s, now)
        return True

    def burst_bytes(self, session: Session, key: str) -> int | None:
        """The most that the client should be given at once; None: no quota says so."""
        quota = self._quotas.find(key, session.principal.name, session.client_id)
        return None if quota is None else ceil(quota.rate * self._burst_s)

    def _account(self, key: str, quota: Quota, now: float) -> "Account":
        account = self._accounts.pop((key, quota.holder), None)
        if account is None:
            account = Account(max(quota.rate * self._burst_s, 1.0), now)
            if len(self._accounts) >= self._accounts_max:
                del self._accounts[next(iter(self._accounts))]
        self._accounts[key, quota.holder] = account
        return account


class Account:
    """How much may be used at once at the moment; negative: how much is due."""

    __slots__ = ("_at", "balance")

    def __init__(self, balance: float, now: float) -> None:
        self.balance = balance
        self._at = now

    def take(self, amount: float, rate: float, burst_s: float, now: float) -> float:
        """Return after how many seconds nothing is due any more."""
        earned = (now - self._at) * rate
        self.balance = min(self.balance + earned, rate * burst_s) - amount
        self._at = now
        return max(0.0, -self.balance / rate)
