"""Fetches schemas from a registry that speaks Confluent's REST.

Two requests: the schema of a version of a subject, and the schema of an id. References are put into
the schema, so that its text stands alone.
"""

import base64
import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import quote

from millstream.spark.errors import RegistryFailed
from millstream.spark.options.values import RegistryOptions, ValueFormat
from millstream.spark.values.avro import inlined

TIMEOUT_S = 10.0
TRIES_MAX = 4
BACKOFF_S = 0.2  # Doubled with each try.
ANSWER_BYTES_MAX = 2**24
REFERENCES_MAX = 100  # Of one schema, and of those that it refers to.
REGISTRIES_MAX = 8  # Whose clients one process keeps.

_MEDIA = "application/vnd.schemaregistry.v1+json"
_KINDS = {ValueFormat.AVRO: "AVRO", ValueFormat.JSON: "JSON", ValueFormat.PROTOBUF: "PROTOBUF"}
_NOT_FOUND, _SERVERS_FAULT = 404, 500


class Registered(NamedTuple):
    """A schema as text that stands alone, and Confluent's name of its kind."""

    kind: str
    text: str


@lru_cache(maxsize=REGISTRIES_MAX)
def registry_for(options: RegistryOptions) -> "Registry":
    """This process's client: Spark runs many tasks in one worker."""
    return Registry(options)


class Registry:
    def __init__(self, options: RegistryOptions) -> None:
        self._options = options
        self._headers = {"Accept": _MEDIA}
        if options.user_info:
            login = base64.b64encode(options.user_info.encode()).decode()
            self._headers["Authorization"] = f"Basic {login}"

    def subject_schema(self, form: ValueFormat) -> str:
        """The schema that the options name; raises `RegistryFailed`."""
        subject, version = self._options.subject, self._options.version
        where = f"version {version} of subject {subject}"
        try:
            registered = self._registered(_version_path(subject, version))
        except LookupError:
            raise RegistryFailed(
                f"{self._options.url} has no {where}: register a schema, or name the subject with "
                "valueSubject"
            ) from None
        if registered.kind != _KINDS[form]:
            raise RegistryFailed(f"{where} is {registered.kind}, and valueFormat is {form.value}")
        return registered.text

    def format(self) -> ValueFormat | None:
        """The format of the subject's schema; None if the registry has no such subject."""
        try:
            registered = self._get(_version_path(self._options.subject, self._options.version))
        except LookupError:
            return None
        kind = str(registered.get("schemaType") or "AVRO")
        return next((form for form, name in _KINDS.items() if name == kind), None)

    def schema(self, number: int) -> str:
        """The Avro schema of an id; raises `LookupError` if there is none."""
        registered = self._registered(f"/schemas/ids/{number}")
        if registered.kind != _KINDS[ValueFormat.AVRO]:
            raise LookupError(f"schema {number} is {registered.kind}")
        return registered.text

    def _registered(self, path: str) -> Registered:
        answer = self._get(path)
        kind, text = str(answer.get("schemaType") or "AVRO"), answer.get("schema")
        if not isinstance(text, str):
            raise RegistryFailed(f"{self._options.url}{path} has no schema in it")
        references = answer.get("references") or []
        if not references:
            return Registered(kind, text)
        if kind != _KINDS[ValueFormat.AVRO]:
            raise RegistryFailed(
                f"{self._options.url}{path} refers to other schemas, which is read for Avro only: "
                "give the whole schema as valueSchema"
            )
        return Registered(kind, inlined(text, self._referenced(references, [REFERENCES_MAX])))

    def _referenced(self, references: Any, left: list[int]) -> dict[str, str]:
        """The texts of referenced schemas by name, those that they refer to among them."""
        texts: dict[str, str] = {}
        for reference in references:
            left[0] -= 1
            if left[0] < 0:
                raise RegistryFailed(f"a schema refers to more than {REFERENCES_MAX} others")
            answer = self._get(_version_path(reference["subject"], reference["version"]))
            texts |= self._referenced(answer.get("references") or [], left)
            texts[reference["name"]] = str(answer["schema"])
        return texts

    def _get(self, path: str) -> Mapping[str, Any]:  # JSON.
        """Raises `LookupError` for what is not there, `RegistryFailed` for all else."""
        for attempt in range(TRIES_MAX):
            try:
                return self._try(path)
            except urllib.error.HTTPError as problem:
                with problem:
                    code, reason = problem.code, _message(problem) or problem.reason
                if code == _NOT_FOUND:
                    raise LookupError(reason) from None
                cause = f"{self._options.url} refuses {path}: {reason} (HTTP {code})"
                if code < _SERVERS_FAULT:
                    raise RegistryFailed(cause) from None
            except (OSError, http.client.HTTPException) as problem:
                why = getattr(problem, "reason", problem)
                cause = f"no schema registry answers at {self._options.url}: {why}"
            if attempt + 1 < TRIES_MAX:
                time.sleep(BACKOFF_S * 2**attempt)
        raise RegistryFailed(cause)

    def _try(self, path: str) -> Mapping[str, Any]:
        request = urllib.request.Request(self._options.url + path, headers=self._headers)
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            return _object(answer.read(ANSWER_BYTES_MAX), self._options.url)


def _version_path(subject: object, version: object) -> str:
    return f"/subjects/{quote(str(subject), safe='')}/versions/{version}"


def _object(data: bytes, url: str) -> Mapping[str, Any]:
    try:
        parsed = json.loads(data)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        raise RegistryFailed(f"the server at {url} is no schema registry")
    return parsed


def _message(problem: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(problem.read(ANSWER_BYTES_MAX))["message"])
    except (KeyError, OSError, TypeError, ValueError):
        return ""
