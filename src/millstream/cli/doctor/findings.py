"""What a check of `millstream doctor` returns."""

from typing import Literal, NamedTuple

CONNECT_SECONDS_MAX = 3.0


class Finding(NamedTuple):
    check: str
    verdict: Literal["ok", "warning", "problem"]
    said: str
    advice: str = ""
