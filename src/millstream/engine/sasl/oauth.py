"""OAUTHBEARER (RFC 7628, KIP-255): a signed token says who the client is.

Owns the message and the checks of a token. Keys are those of one issuer, read from its key set;
algorithms are a fixed list without `none` and shared secrets. PyJWT is imported on first use.
"""

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from millstream.errors.access import LoginFailed
from millstream.security.settings import OAuth

if TYPE_CHECKING:
    from jwt import PyJWK

TOKEN_BYTES_MAX = 16 * 1024
KEYS_MAX = 100
# By algorithm: the type of its keys and, where it matters, their curve.
ALGORITHMS: dict[str, tuple[str, str | None]] = {
    "RS256": ("RSA", None),
    "RS384": ("RSA", None),
    "RS512": ("RSA", None),
    "PS256": ("RSA", None),
    "PS384": ("RSA", None),
    "PS512": ("RSA", None),
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", None),
}
# The answer to a bad token; the client's next message, one byte, is refused (RFC 7628, 3.2.3).
INVALID_TOKEN = b'{"status":"invalid_token"}'
FAILURE_TEXT = "Authentication failed: the token was not accepted"

_MESSAGE = re.compile(
    r"n,(?:a=(?P<authzid>[^,]+))?,\x01(?P<pairs>(?:[A-Za-z]+=[^\x00\x01]*\x01)+)\x01"
)


class BearerLogin(NamedTuple):
    token: str
    authorization_id: str

    def __repr__(self) -> str:
        return "BearerLogin([hidden])"


class TokenIdentity(NamedTuple):
    name: str
    roles: tuple[str, ...]
    expires_s: float  # Of the wall clock.


class UnknownKey(Exception):
    """No key of the set has the id in the token: the set may be older than the key."""


def parse(message: bytes) -> BearerLogin:
    """Read the client's first message; raise `LoginFailed`."""
    try:
        fields = _MESSAGE.fullmatch(message.decode("utf-8"))
    except UnicodeDecodeError:
        fields = None
    if fields is None:
        raise LoginFailed("Invalid OAUTHBEARER client first message", "malformed")
    pairs = dict(pair.partition("=")[::2] for pair in fields["pairs"].split("\x01") if pair)
    scheme, _, token = pairs.get("auth", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise LoginFailed("Invalid OAUTHBEARER client first message: no token", "malformed")
    return BearerLogin(token.strip(), fields["authzid"] or "")


class KeySet:
    """The public keys of an issuer, by their ids."""

    def __init__(self, document: bytes) -> None:
        """Raise `ValueError` for a document that is no key set."""
        from jwt import PyJWK
        from jwt.exceptions import PyJWTError

        parsed = json.loads(document)
        keys = parsed.get("keys") if isinstance(parsed, dict) else None
        if not isinstance(keys, list) or len(keys) > KEYS_MAX:
            raise ValueError('not a key set: {"keys": [...]}')
        self._keys: dict[str | None, list[tuple[str, str | None, PyJWK]]] = {}
        for key in keys:
            if not isinstance(key, dict) or key.get("use", "sig") != "sig":
                continue
            kind, curve = key.get("kty"), key.get("crv")
            if kind not in {"RSA", "EC", "OKP"}:
                continue  # A shared secret signs nothing here.
            try:
                made = PyJWK.from_dict(key)
            except (PyJWTError, ValueError, KeyError):
                continue  # Of a kind that is not known here; others may be.
            self._keys.setdefault(key.get("kid"), []).append((kind, curve, made))

    def find(self, key_id: str | None, algorithm: str) -> "PyJWK":
        """The key for a token; raise `UnknownKey`, or `LoginFailed` if it is of another type."""
        keys = self._keys.get(key_id)
        if keys is None and key_id is None and len(self._keys) == 1:
            (keys,) = self._keys.values()
        if keys is None:
            raise UnknownKey
        kind, curve = ALGORITHMS[algorithm]
        for key_kind, key_curve, key in keys:
            if key_kind == kind and (curve is None or key_curve == curve):
                return key
        raise LoginFailed(FAILURE_TEXT, "the key does not fit the algorithm")


def verify(token: str, keys: KeySet, settings: OAuth, *, now_s: float) -> TokenIdentity:
    """Check a token; raise `LoginFailed`, or `UnknownKey` if newer keys may help."""
    import jwt

    if len(token) > TOKEN_BYTES_MAX:
        raise LoginFailed(FAILURE_TEXT, "token too large")
    try:
        header = jwt.get_unverified_header(token)
        algorithm = header.get("alg")
        if algorithm not in ALGORITHMS:
            raise LoginFailed(FAILURE_TEXT, "algorithm not allowed")
        key = keys.find(header.get("kid"), algorithm)
        claims: Mapping[str, Any] = jwt.decode(
            token,
            key.key,
            algorithms=[algorithm],
            issuer=settings.issuer,
            audience=settings.audience,
            leeway=settings.leeway_ms / 1000,
            options={"require": ["exp", "iss", "aud"]},
        )
    except jwt.PyJWTError as problem:
        raise LoginFailed(FAILURE_TEXT, type(problem).__name__) from None
    except (ValueError, TypeError, AttributeError):
        raise LoginFailed(FAILURE_TEXT, "malformed") from None
    return _identity(claims, settings, now_s)


def _identity(claims: Mapping[str, Any], settings: OAuth, now_s: float) -> TokenIdentity:
    expires_s = float(claims["exp"])
    issued_s = claims.get("iat", now_s)
    if not isinstance(issued_s, int | float):
        raise LoginFailed(FAILURE_TEXT, "malformed iat")
    if (expires_s - min(issued_s, now_s)) * 1000 > settings.token_ms_max + settings.leeway_ms:
        raise LoginFailed(FAILURE_TEXT, "token lives too long")
    name = claims.get(settings.principal_claim)
    if not isinstance(name, str) or not name:
        raise LoginFailed(FAILURE_TEXT, f"no claim {settings.principal_claim}")
    listed = claims.get(settings.roles_claim, ()) if settings.roles_claim else ()
    roles = [listed] if isinstance(listed, str) else listed
    if not isinstance(roles, list | tuple):
        raise LoginFailed(FAILURE_TEXT, "malformed roles")
    return TokenIdentity(
        settings.principal_prefix + name,
        tuple(role for role in roles if isinstance(role, str)),
        expires_s,
    )
