"""Takes secrets out of texts and values, and names where they are to stay unknown. Pure."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

HIDDEN = "•••"

_SECRET_NAME = re.compile(
    r"password|passphrase|secret|token|credential|api_?key|private", re.IGNORECASE
)
# `name = value`, `"name": "value"`, `name: value`: the value goes.
_ASSIGNED = re.compile(
    r"""(?ix) ([\w.\-]*(?:password|passphrase|secret|token|credential|api_?key)[\w.\-]*
        ["']? \s* [=:] \s*) ("[^"]*" | '[^']*' | [^\s,;}]+)"""
)
_AUTHORIZATION = re.compile(r"(?i)\b(basic|bearer)\s+[a-z0-9+/=._\-]{8,}")
_IN_ADDRESS = re.compile(r"(?i)\b([a-z][a-z0-9+.\-]*://)[^\s/@:]+:[^\s/@]+@")
_KEY_BLOCK = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
)


def redact_text(text: str) -> str:
    """The text without values that are called secrets, logins in addresses and private keys."""
    text = _KEY_BLOCK.sub(HIDDEN, text)
    text = _IN_ADDRESS.sub(rf"\1{HIDDEN}@", text)
    text = _AUTHORIZATION.sub(rf"\1 {HIDDEN}", text)
    return _ASSIGNED.sub(rf"\1{HIDDEN}", text)


# Any: whatever stands in an answer.
def redact(value: Any, name: str = "") -> Any:
    """The same in a structure: a value whose name says that it is a secret goes whole."""
    if isinstance(value, Mapping):
        return {str(key): redact(each, str(key)) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [redact(each, name) for each in value]
    if _SECRET_NAME.search(name) and isinstance(value, str) and value:
        return HIDDEN
    return redact_text(value) if isinstance(value, str) else value


class Pseudonyms:
    """Names of topics, groups and clients as words that tell nothing, the same everywhere."""

    def __init__(self, salt: bytes) -> None:
        self._salt = salt
        self._words: dict[str, str] = {}

    def learn(self, kind: str, names: Iterable[str]) -> None:
        """The broker's own names, which begin with `__`, stay."""
        for name in names:
            if name and not name.startswith("__"):
                digest = hashlib.blake2b(name.encode(), key=self._salt, digest_size=4)
                self._words[name] = f"{kind}-{digest.hexdigest()}"

    def apply(self, text: str) -> str:
        # The longest first: `orders` is part of `orders-dlq`.
        names = sorted(self._words, key=len, reverse=True)
        if not names:
            return text
        pattern = re.compile(r"(?<![\w])(" + "|".join(map(re.escape, names)) + r")(?![\w])")
        return pattern.sub(lambda match: self._words[match[1]], text)
