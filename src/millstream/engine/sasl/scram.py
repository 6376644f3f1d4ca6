"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677) from the broker's side.

Owns the two steps and the making of credentials. Names are those of RFC 5802, section 3. Channel
binding is not offered. An unknown user is shown a salt of its own and fails at the proof, so that
the exchange does not tell which users exist.
"""

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Final, NamedTuple

from millstream.control.commands import Credential
from millstream.errors.access import LoginFailed

ALGORITHMS: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
SERVER_NONCE_BYTES = 24
SALT_BYTES = 24
NONCE_LENGTH_MAX = 1_024

_CLIENT_FIRST = re.compile(
    r"(?P<gs2>(?P<binding>[ny]|p=[A-Za-z0-9.-]+),(?:a=(?P<authzid>[^,]+))?,)"
    r"(?P<bare>(?P<mandatory>m=[^,]*,)?n=(?P<user>[^,]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)"
    r"(?P<extensions>(?:,[A-Za-z0-9]+=[^,]*)*))"
)
_CLIENT_FINAL = re.compile(
    r"(?P<without_proof>c=(?P<channel>[A-Za-z0-9+/=]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)"
    r"(?:,[A-Za-z0-9]+=[^,]*)*),p=(?P<proof>[A-Za-z0-9+/=]+)"
)
_ESCAPE = re.compile(r"=(2C|3D)?")


class Known(NamedTuple):
    """The credential of a user, or one that no password fits."""

    credential: Credential
    is_real: bool


Lookup = Callable[[str], Known]


def make_credential(mechanism: str, password: str, *, salt: bytes, iterations: int) -> Credential:
    """Turn a password into what proves it. Takes milliseconds: run it on a thread."""
    algorithm = ALGORITHMS[mechanism]
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, iterations)
    return credential_of(mechanism, salted, salt=salt, iterations=iterations)


def credential_of(mechanism: str, salted: bytes, *, salt: bytes, iterations: int) -> Credential:
    """The same of a password that a client has salted (KIP-554)."""
    algorithm = ALGORITHMS[mechanism]
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    return Credential(
        salt=salt,
        stored_key=hashlib.new(algorithm, client_key).digest(),
        server_key=hmac.digest(salted, b"Server Key", algorithm),
        iterations=iterations,
    )


def is_password_of(mechanism: str, credential: Credential, password: str) -> bool:
    """Whether the password fits. Takes milliseconds: run it on a thread."""
    made = make_credential(
        mechanism, password, salt=credential.salt, iterations=credential.iterations
    )
    return hmac.compare_digest(made.stored_key, credential.stored_key)


def fake_credential(mechanism: str, user: str, *, salt_key: bytes, iterations: int) -> Credential:
    """A credential for a user that does not exist: always the same salt, and no password fits."""
    size = hashlib.new(ALGORITHMS[mechanism]).digest_size
    salt = hmac.digest(salt_key, f"{mechanism}\0{user}".encode(), "sha256")[:SALT_BYTES]
    return Credential(
        salt=salt, stored_key=bytes(size), server_key=bytes(size), iterations=iterations
    )


class ScramServer:
    """One exchange: `first` answers with the challenge, `final` with the broker's own proof."""

    def __init__(self, mechanism: str, lookup: Lookup, server_nonce: str) -> None:
        self.user = ""
        self._mechanism = mechanism
        self._algorithm = ALGORITHMS[mechanism]
        self._lookup = lookup
        self._server_nonce = server_nonce
        self._gs2 = ""
        self._nonce = ""
        self._messages = ""  # Client first bare and server first, as they are signed.
        self._known: Known | None = None

    @property
    def failure_text(self) -> str:
        return (
            "Authentication failed during authentication due to invalid credentials with SASL "
            f"mechanism {self._mechanism}"
        )

    def first(self, message: bytes) -> bytes:
        fields = _CLIENT_FIRST.fullmatch(self._text(message))
        if fields is None or fields["mandatory"] or len(fields["nonce"]) > NONCE_LENGTH_MAX:
            raise self._failed("malformed")
        user = _unescaped(fields["user"])
        if user is None:
            raise self._failed("malformed")
        self.user = user
        if fields["binding"].startswith("p"):
            raise self._failed("channel binding is not offered")
        if fields["authzid"] is not None and _unescaped(fields["authzid"]) != user:
            raise self._failed("authorization id")
        if "tokenauth=true" in fields["extensions"].split(","):
            raise self._failed("delegation tokens are not served")
        self._known = self._lookup(user)
        credential = self._known.credential
        self._gs2 = fields["gs2"]
        self._nonce = fields["nonce"] + self._server_nonce
        salt = b64encode(credential.salt).decode()
        server_first = f"r={self._nonce},s={salt},i={credential.iterations}"
        self._messages = f"{fields['bare']},{server_first}"
        return server_first.encode()

    def final(self, message: bytes) -> bytes:
        """Check the proof; the user is `user` if this returns, and `LoginFailed` if not."""
        assert self._known is not None, "the first message comes first"
        credential, is_real = self._known
        fields = _CLIENT_FINAL.fullmatch(self._text(message))
        if fields is None:
            raise self._failed("malformed")
        if _decoded(fields["channel"]) != self._gs2.encode():
            raise self._failed("channel binding")
        if not hmac.compare_digest(fields["nonce"], self._nonce):
            raise self._failed("nonce")
        proof = _decoded(fields["proof"])
        if proof is None or len(proof) != len(credential.stored_key):
            raise self._failed("malformed")
        auth_message = f"{self._messages},{fields['without_proof']}".encode()
        signature = hmac.digest(credential.stored_key, auth_message, self._algorithm)
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        stored_key = hashlib.new(self._algorithm, client_key).digest()
        # Both are always computed: the time tells nothing.
        is_proved = hmac.compare_digest(stored_key, credential.stored_key)
        if not (is_proved and is_real):
            raise self._failed("wrong password" if is_real else "unknown user")
        server_signature = hmac.digest(credential.server_key, auth_message, self._algorithm)
        return b"v=" + b64encode(server_signature)

    def _text(self, message: bytes) -> str:
        try:
            return message.decode("utf-8")
        except UnicodeDecodeError:
            raise self._failed("malformed") from None

    def _failed(self, reason: str) -> LoginFailed:
        return LoginFailed(self.failure_text, reason, self.user)


def _unescaped(name: str) -> str | None:
    """A name without its escapes; None if there are others than `=2C` and `=3D`."""
    if any(not match[1] for match in _ESCAPE.finditer(name)):
        return None
    return name.replace("=2C", ",").replace("=3D", "=")


def _decoded(text: str) -> bytes | None:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        return None
