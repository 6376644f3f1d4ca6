"""How long the answer to a failed login is held back.

The wait doubles with each failure of a user from an address and, from the twentieth on, of the user
from anywhere. A user is never locked out: that would be a weapon against the user.
"""

from collections import OrderedDict

ANYWHERE_FROM = 20  # Failures of a user, whatever the address, before all of them wait.
_DOUBLINGS_MAX = 40


class LoginFailures:
    def __init__(self, *, first_ms: int, most_ms: int, entries_max: int) -> None:
        self._first_ms = first_ms
        self._most_ms = most_ms
        self._entries_max = entries_max
        # By user and address; an address of None counts those of all. Oldest first.
        self._counts: OrderedDict[tuple[str, str | None], int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._counts)

    def failed(self, user: str, address: str) -> int:
        """Count a failure; return for how many ms its answer waits."""
        here = self._count(user, address)
        anywhere = self._count(user, None) - ANYWHERE_FROM
        doublings = min(max(here - 1, anywhere), _DOUBLINGS_MAX)
        return min(self._first_ms << doublings, self._most_ms)

    def succeeded(self, user: str, address: str) -> None:
        self._counts.pop((user, address), None)
        self._counts.pop((user, None), None)

    def _count(self, user: str, address: str | None) -> int:
        count = self._counts.pop((user, address), 0) + 1
        if len(self._counts) >= self._entries_max:
            self._counts.popitem(last=False)
        self._counts[user, address] = count
        return count
