"""Tokens that let one node join, and the proof that a node holds one.

The token has a secret. The control log keeps its hash, and only that: with it a node of the cluster
checks a proof, and seals the cluster key for the newcomer, so neither secret nor key crosses the
network in clear. Pure.
"""

import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode

import msgspec

from millstream.control.commands import NodeEncryption
from millstream.errors.cluster import InvalidInvitation
from millstream.model import FIRST_LEVELS, LevelRange

SECRET_BYTES = KEY_BYTES = NONCE_BYTES = 32
PREFIX = "msjoin1-"
TOKEN_LENGTH_MAX = 8_192


class Token(msgspec.Struct, frozen=True, kw_only=True):
    cluster_id: str
    addresses: tuple[str, ...]  # Of Kafka listeners, HOST:PORT.
    secret: bytes

    def __repr__(self) -> str:
        return f"Token({self.cluster_id!r}, {self.addresses!r}, [hidden])"


class JoinRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a newcomer says of itself, covered by its proof."""

    directory_id: str
    peer: str  # HOST:PORT, where other nodes will reach it.
    nonce: bytes
    cluster_id: str
    encryption: NodeEncryption | None = None
    levels: LevelRange = FIRST_LEVELS  # Of the feature `cluster.version`.


class Admission(msgspec.Struct, frozen=True, kw_only=True):
    """What a newcomer is told."""

    node_id: int
    cluster_id: str
    generation: int
    founders: tuple[int, ...]  # The nodes that vote on the control log: it asks these first.
    peers: dict[str, str]  # HOST:PORT by node id.
    sealed_key: bytes


def encode_token(token: Token) -> str:
    data = msgspec.json.encode(token)
    return PREFIX + urlsafe_b64encode(data).rstrip(b"=").decode()


def decode_token(text: str) -> Token:
    """Read a token; raise `InvalidInvitation` for any other text."""
    text = text.strip()
    if not text.startswith(PREFIX) or len(text) > TOKEN_LENGTH_MAX:
        raise InvalidInvitation(
            f"a token begins with {PREFIX}: copy the whole line of `millstream cluster invite`"
        )
    body = text.removeprefix(PREFIX)
    try:
        data = urlsafe_b64decode(body + "=" * (-len(body) % 4))
        token = msgspec.json.decode(data, type=Token)
    except (ValueError, msgspec.MsgspecError):
        raise InvalidInvitation("the token is damaged: copy the whole line once more") from None
    if len(token.secret) != SECRET_BYTES or not token.addresses:
        raise InvalidInvitation("the token is damaged: copy the whole line once more")
    return token


def hash_of(secret: bytes) -> bytes:
    """What the control log keeps of a secret."""
    return hashlib.sha256(secret).digest()


def name_of(secret_hash: bytes) -> bytes:
    """How an invitation is named in public; it tells nothing about the hash."""
    return hashlib.sha256(b"millstream invitation" + secret_hash).digest()


def proof_of(secret_hash: bytes, request: JoinRequest) -> bytes:
    """Proves that a newcomer holds the secret, for this very request."""
    return _digest(secret_hash, b"join", msgspec.json.encode(request))


def is_proved(secret_hash: bytes, request: JoinRequest, proof: bytes) -> bool:
    return hmac.compare_digest(proof_of(secret_hash, request), proof)


def seal_key(secret_hash: bytes, nonce: bytes, key: bytes) -> bytes:
    """Encrypt the cluster key for the newcomer that chose `nonce`, with a checksum of it."""
    assert len(key) == KEY_BYTES
    mask = _digest(secret_hash, b"mask", nonce)
    sealed = bytes(a ^ b for a, b in zip(key, mask, strict=True))
    return sealed + _digest(secret_hash, b"seal", nonce + sealed)


def unseal_key(secret_hash: bytes, nonce: bytes, sealed: bytes) -> bytes:
    """Return the cluster key; raise `InvalidInvitation` if it comes from no node of the cluster."""
    body, seal = sealed[:KEY_BYTES], sealed[KEY_BYTES:]
    if not hmac.compare_digest(_digest(secret_hash, b"seal", nonce + body), seal):
        raise InvalidInvitation("the answer comes from no node of the cluster that gave the token")
    mask = _digest(secret_hash, b"mask", nonce)
    return bytes(a ^ b for a, b in zip(body, mask, strict=True))


def _digest(key: bytes, purpose: bytes, data: bytes) -> bytes:
    return hmac.new(key, purpose + b"\0" + data, hashlib.sha256).digest()
