"""AES-256-GCM, loaded only where encryption is on: importing it takes 26 ms and 6 MB."""

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from millstream.model import Buffer
from millstream.storage.sealing.batches import BadSeal


class AesKey:
    """A data key with its count of batches; see `batches.DataKey`."""

    __slots__ = ("_cipher", "encrypt", "id", "left")

    def __init__(self, key_id: int, key: bytes, left: int) -> None:
        self.id = key_id
        self.left = left
        self._cipher = AESGCM(key)
        self.encrypt = self._cipher.encrypt

    def decrypt(self, nonce: bytes, data: Buffer, associated: bytes) -> bytes:
        try:
            return self._cipher.decrypt(nonce, data, associated)
        except InvalidTag:
            raise BadSeal(
                "its seal does not fit: it was changed, moved here from another place, or sealed "
                "with another key"
            ) from None


def wrap(key: bytes, secret: bytes, associated: bytes, nonce: bytes) -> bytes:
    """The nonce, `secret` encrypted, and the tag."""
    return nonce + AESGCM(key).encrypt(nonce, secret, associated)


def unwrap(key: bytes, wrapped: bytes, associated: bytes) -> bytes | None:
    """What was wrapped; None if it was changed, or wrapped with another key or purpose."""
    if len(wrapped) < 12 + 16:
        return None
    try:
        return AESGCM(key).decrypt(wrapped[:12], wrapped[12:], associated)
    except InvalidTag:
        return None
