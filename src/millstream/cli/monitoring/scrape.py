"""Reads a broker's `/metrics`, and works out rates and percentiles between two looks at them."""

import base64
import json
import re
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, NamedTuple

from millstream.cli.render import Refused

TIMEOUT_S = 10.0
ANSWER_BYTES_MAX = 8 * 2**20

_LINE = re.compile(r"^(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")

Labels = tuple[tuple[str, str], ...]


class Scrape(NamedTuple):
    """All samples of one moment."""

    at_s: float
    values: dict[str, dict[Labels, float]]  # By name, then by labels.

    def total(self, name: str, **labels: str) -> float:
        return sum(value for own, value in self.each(name) if labels.items() <= own.items())

    def each(self, name: str) -> Iterator[tuple[dict[str, str], float]]:
        for labels, value in self.values.get(name, {}).items():
            yield dict(labels), value


# Any: JSON, as the node has it.
def readiness(url: str) -> tuple[bool, dict[str, Any]]:
    """Whether the node at `url` serves clients, and its report."""
    try:
        with urllib.request.urlopen(_request(url, "/health/ready"), timeout=TIMEOUT_S) as answer:
            return True, json.loads(answer.read(ANSWER_BYTES_MAX))
    except urllib.error.HTTPError as problem:
        with problem:
            text = problem.read(ANSWER_BYTES_MAX)
        if problem.code != HTTPStatus.SERVICE_UNAVAILABLE:
            raise Refused(f"{url} does not tell its health: {problem.code}") from None
        return False, json.loads(text)
    except (OSError, ValueError) as problem:
        cause = getattr(problem, "reason", problem)
        raise Refused(f"no node answers at {url}: {cause}") from None


def fetch(url: str, *, user: str, password: str, at_s: float) -> Scrape:
    """Read `/metrics` of the broker at `url`."""
    request = _request(url, "/metrics")
    if user:
        login = base64.b64encode(f"{user}:{password}".encode()).decode()
        request.add_header("Authorization", f"Basic {login}")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            return parse(answer.read(ANSWER_BYTES_MAX).decode(), at_s)
    except urllib.error.HTTPError as problem:
        problem.close()
        raise Refused(f"{url} refuses its metrics: {problem.code} {problem.reason}") from None
    except (OSError, ValueError) as problem:
        cause = getattr(problem, "reason", problem)
        raise Refused(
            f"no metrics at {url}: {cause}. `millstream serve` has them where http is among its "
            "listeners; --url names another broker"
        ) from None


def _request(url: str, path: str) -> urllib.request.Request:
    if not url.startswith(("http://", "https://")):
        raise Refused(f"{url!r} is no address of a broker's HTTP, such as http://localhost:9094")
    return urllib.request.Request(url.rstrip("/") + path)


def parse(text: str, at_s: float) -> Scrape:
    values: defaultdict[str, dict[Labels, float]] = defaultdict(dict)
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is None:
            continue  # A comment.
        labels = tuple(
            (name, _ESCAPED.sub(_unescaped, value))
            for name, value in _LABEL.findall(match["labels"] or "")
        )
        values[match["name"]][labels] = float(match["value"])
    return Scrape(at_s, values)


def rate(before: Scrape, now: Scrape, name: str, **labels: str) -> float:
    """By how much a counter grows in a second; 0 after a restart."""
    seconds = max(now.at_s - before.at_s, 0.001)
    return max(0.0, now.total(name, **labels) - before.total(name, **labels)) / seconds


def quantile(before: Scrape, now: Scrape, name: str, share: float) -> float | None:
    """The bound below which `share` of the new observations lie; None without any."""
    grown: defaultdict[float, float] = defaultdict(float)
    for scrape, sign in ((now, 1), (before, -1)):
        for labels, value in scrape.each(f"{name}_bucket"):
            grown[float(labels["le"])] += sign * value
    bounds = sorted(grown)
    if not bounds or grown[bounds[-1]] <= 0:
        return None
    # Beyond the last bound it is not known by how much.
    finite = bounds[:-1]
    return next((at for at in finite if grown[at] >= share * grown[bounds[-1]]), finite[-1])


def _unescaped(match: "re.Match[str]") -> str:
    return "\n" if match[1] == "n" else match[1]
