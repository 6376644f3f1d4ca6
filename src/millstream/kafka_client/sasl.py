"""SASL mechanisms as conversations: PLAIN (RFC 4616), SCRAM (RFC 5802, 7677), OAUTHBEARER (7628).

A conversation yields the bytes to send and takes the broker's reply to each. User and password are
plain UTF-8, without SASLprep: Kafka's broker and Java client do the same, so prepared words would
not match what a broker has stored. Channel binding is not offered: Kafka has none.
"""

import hashlib
import hmac
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Generator
from secrets import token_urlsafe
from typing import TypeAlias

from millstream.kafka_client.errors import AuthenticationFailed, InvalidSecurity
from millstream.kafka_client.settings import Credentials

# Kafka's minimum (ScramMechanism). Fewer would let a false broker guess the password sooner.
ITERATIONS_MIN = 4_096
# A broker with more would keep this process busy for seconds; Kafka's own maximum is 16,384.
ITERATIONS_MAX = 2**20
NONCE_BYTES = 24

# Sends tokens, is sent the broker's replies, and ends when the broker is believed.
Conversation: TypeAlias = Generator[bytes, bytes, None]

_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
OAUTHBEARER = "OAUTHBEARER"
MECHANISMS = ("PLAIN", *_HASHES, OAUTHBEARER)
_NO_BINDING = "n,,"  # GS2 header: no channel binding, no authorization identity.


def check_mechanism(name: str) -> None:
    if name not in MECHANISMS:
        raise InvalidSecurity(
            f"SASL mechanism {name!r} is not supported; supported are {', '.join(MECHANISMS)}"
        )


def conversation(credentials: Credentials) -> Conversation:
    check_mechanism(credentials.mechanism)
    if credentials.mechanism == "PLAIN":
        return plain(credentials.username, credentials.password)
    if credentials.mechanism == OAUTHBEARER:
        if credentials.oauth is None and credentials.password:
            return bearer(credentials.password)  # A token that the caller has fetched.
        if credentials.oauth is None:
            raise InvalidSecurity("SASL OAUTHBEARER needs an endpoint that gives tokens")
        from millstream.kafka_client.oauth import fetch_token  # It loads an HTTP client.

        return bearer(fetch_token(credentials.oauth))
    nonce = token_urlsafe(NONCE_BYTES)
    algorithm = _HASHES[credentials.mechanism]
    return scram(algorithm, credentials.username, credentials.password, nonce=nonce)


def plain(username: str, password: str) -> Conversation:
    yield f"\0{username}\0{password}".encode()


def bearer(token: str) -> Conversation:
    """Show the token; a broker that refuses it says why, and wants an empty message before it ends
    the conversation."""
    refusal = yield f"{_NO_BINDING}\x01auth=Bearer {token}\x01\x01".encode()
    if refusal:
        yield b"\x01"
        raise AuthenticationFailed(f"the broker refuses the token: {_text(refusal)[:200]}")


def scram(algorithm: str, username: str, password: str, *, nonce: str) -> Conversation:
    """Prove the password without sending it, and have the broker prove that it knows it too.

    Names are those of RFC 5802, section 3.
    """
    user = username.replace("=", "=3D").replace(",", "=2C")
    client_first_bare = f"n={user},r={nonce}"
    server_first = _text((yield (_NO_BINDING + client_first_bare).encode()))
    server_nonce, salt, iterations = _challenge(server_first, nonce)

    channel = b64encode(_NO_BINDING.encode()).decode()
    without_proof = f"c={channel},r={server_nonce}"
    auth_message = f"{client_first_bare},{server_first},{without_proof}".encode()
    salted_password = hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, iterations)
    client_key = hmac.digest(salted_password, b"Client Key", algorithm)
    stored_key = hashlib.new(algorithm, client_key).digest()
    client_signature = hmac.digest(stored_key, auth_message, algorithm)
    proof = bytes(a ^ b for a, b in zip(client_key, client_signature, strict=True))
    server_final = yield f"{without_proof},p={b64encode(proof).decode()}".encode()

    server_key = hmac.digest(salted_password, b"Server Key", algorithm)
    server_signature = hmac.digest(server_key, auth_message, algorithm)
    _verify_server(_text(server_final), server_signature)


def _challenge(server_first: str, nonce: str) -> tuple[str, bytes, int]:
    fields = _fields(server_first)
    _check_error(fields)
    try:
        server_nonce = fields["r"]
        salt = b64decode(fields["s"], validate=True)
        iterations = int(fields["i"])
    except (KeyError, ValueError, Base64Error):
        raise AuthenticationFailed("the broker's SCRAM challenge is malformed") from None
    if not server_nonce.startswith(nonce) or server_nonce == nonce:
        # Not ours: another conversation is replayed.
        raise AuthenticationFailed("the broker's SCRAM nonce does not continue ours")
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise AuthenticationFailed(
            f"the broker asks for {iterations} SCRAM iterations, expected {ITERATIONS_MIN} to "
            f"{ITERATIONS_MAX}"
        )
    return server_nonce, salt, iterations


def _verify_server(server_final: str, signature: bytes) -> None:
    fields = _fields(server_final)
    _check_error(fields)
    try:
        verifier = b64decode(fields["v"], validate=True)
    except (KeyError, ValueError, Base64Error):
        raise AuthenticationFailed("the broker's last SCRAM message is malformed") from None
    if not hmac.compare_digest(verifier, signature):
        raise AuthenticationFailed("the broker did not prove that it knows the password")


def _check_error(fields: dict[str, str]) -> None:
    if "e" in fields:
        raise AuthenticationFailed(f"the broker says {fields['e'][:200]!r}")


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise AuthenticationFailed("the broker's SASL message is not UTF-8") from None


def _fields(message: str) -> dict[str, str]:
    """`r=...,s=...,i=...` by name."""
    parts = (part.partition("=") for part in message.split(","))
    return {name: value for name, _, value in parts}
