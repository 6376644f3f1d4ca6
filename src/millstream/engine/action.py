"""The request that is being served, in the words of its protocol, for the audit trail.

Gateways set it where there is a trail; the event of a refusal reads it in the same task.
"""

from contextvars import ContextVar
from typing import Final

# Text such as `PUB`, or a name and a version: `Produce v9` is put together where it is needed.
ACTION: Final[ContextVar[str | tuple[str, int]]] = ContextVar("action", default="")


def current_action() -> str:
    action = ACTION.get()
    return action if isinstance(action, str) else f"{action[0]} v{action[1]}"
