"""The REST of a schema registry, for commands: ours, or any that speaks Confluent's."""

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

from millstream.cli.render import Refused

TIMEOUT_S = 30.0
ANSWER_BYTES_MAX = 2**28
MEDIA = "application/vnd.schemaregistry.v1+json"

# JSON of any shape.
Json = Any


class RegistryRest:
    def __init__(self, url: str, *, user: str = "", password: str = "") -> None:
        if not url.startswith(("http://", "https://")):
            raise Refused(f"{url!r} is no address of a registry, such as http://localhost:9094")
        self._url = url.rstrip("/")
        self._headers = {"Accept": MEDIA, "Content-Type": MEDIA}
        if user:
            login = base64.b64encode(f"{user}:{password}".encode()).decode()
            self._headers["Authorization"] = f"Basic {login}"

    def __call__(self, method: str, path: str, body: Json = None, **query: Json) -> Json:
        """The answer; `Refused` with the registry's own sentence."""
        named = {key: _text(value) for key, value in query.items() if value not in (None, False)}
        address = f"{self._url}{path}{'?' + urlencode(named) if named else ''}"
        data = None if body is None else json.dumps(body).encode()
        headers = dict(self._headers)
        if path.startswith("/v1/"):
            headers |= {"Accept": "application/json", "Content-Type": "application/json"}
        request = urllib.request.Request(address, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                return json.loads(answer.read(ANSWER_BYTES_MAX))
        except urllib.error.HTTPError as problem:
            with problem:
                reason = _message(problem.read(ANSWER_BYTES_MAX)) or str(problem.reason)
            raise Refused(f"the registry refuses: {reason}") from None
        except (OSError, ValueError) as problem:
            cause = getattr(problem, "reason", problem)
            raise Refused(
                f"no registry answers at {self._url}: {cause}. `millstream serve` has one where "
                "http is among its listeners; --url names another"
            ) from None

    def versions(self) -> Iterator[Json]:
        """All versions of all subjects, deleted ones too, schemas before their users."""
        listed = self("GET", "/schemas", deleted=True)
        yield from sorted(listed, key=lambda each: (each["id"], each["subject"], each["version"]))


def subject_path(subject: str, *parts: object) -> str:
    return "/".join(["/subjects", quote(subject, safe=""), *map(str, parts)])


def _text(value: Json) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _message(data: bytes) -> str:
    try:
        return str(json.loads(data).get("message", ""))
    except (ValueError, AttributeError):
        return ""
