"""The broker's side of SCRAM, written from RFC 5802 and apart from the code under test."""

import base64
import hashlib
import hmac
import os

ITERATIONS = 4_096


class ScramServer:
    """One conversation. `reply` takes the client's messages in turn and returns the answers."""

    def __init__(self, algorithm: str, users: dict[str, str]) -> None:
        self._algorithm = algorithm
        self._users = users
        self._salt = os.urandom(16)
        self._nonce = ""
        self._first = ""
        self.user = ""
        self.is_done = False

    def reply(self, message: bytes) -> bytes | None:
        """The answer, or None if the client did not prove that it knows the password."""
        return self._challenge(message.decode()) if not self._first else self._verify(message)

    def _challenge(self, message: str) -> bytes:
        assert message.startswith("n,,n=")
        bare = message.removeprefix("n,,")
        fields = dict(part.split("=", 1) for part in bare.split(","))
        self.user = fields["n"].replace("=2C", ",").replace("=3D", "=")
        self._nonce = fields["r"] + base64.b64encode(os.urandom(18)).decode()
        salt = base64.b64encode(self._salt).decode()
        answer = f"r={self._nonce},s={salt},i={ITERATIONS}"
        self._first = f"{bare},{answer}"
        return answer.encode()

    def _verify(self, message: bytes) -> bytes | None:
        without_proof, _, proof = message.decode().rpartition(",p=")
        assert without_proof == f"c=biws,r={self._nonce}"
        password = self._users.get(self.user)
        if password is None:
            return None
        salted = hashlib.pbkdf2_hmac(self._algorithm, password.encode(), self._salt, ITERATIONS)
        signed = f"{self._first},{without_proof}".encode()
        stored = hashlib.new(self._algorithm, self._hmac(salted, b"Client Key")).digest()
        signature = self._hmac(stored, signed)
        pairs = zip(base64.b64decode(proof), signature, strict=True)
        key = bytes(a ^ b for a, b in pairs)
        if hashlib.new(self._algorithm, key).digest() != stored:
            return None
        self.is_done = True
        verifier = self._hmac(self._hmac(salted, b"Server Key"), signed)
        return b"v=" + base64.b64encode(verifier)

    def _hmac(self, key: bytes, text: bytes) -> bytes:
        return hmac.new(key, text, self._algorithm).digest()
