"""Tokens of an issuer of tests: its keys, its key set, and what a false one would sign."""

import json
import time
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from millstream.security.settings import OAuth

ISSUER, AUDIENCE = "https://issuer.example", "millstream"


class Issuer:
    def __init__(self) -> None:
        self.rsa = rsa.generate_private_key(65537, 2048)
        self.ec = ec.generate_private_key(ec.SECP256R1())

    def key_set(self) -> bytes:
        keys: list[dict[str, Any]] = [
            {**json.loads(RSAAlgorithm.to_jwk(self.rsa.public_key())), "kid": "r1"},
            {**json.loads(ECAlgorithm.to_jwk(self.ec.public_key())), "kid": "e1"},
            {"kty": "oct", "k": "c2VjcmV0", "kid": "shared"},
        ]
        return json.dumps({"keys": keys}).encode()

    def public_pem(self) -> bytes:
        return self.rsa.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def token(
        self, *, key: Any = None, algorithm: str = "RS256", kid: str | None = "r1", **claims: Any
    ) -> str:
        now = int(time.time())
        body = {
            "sub": "ann",
            "iss": ISSUER,
            "aud": AUDIENCE,
            "iat": now,
            "exp": now + 600,
            **claims,
        }
        body = {name: value for name, value in body.items() if value is not None}
        headers = {} if kid is None else {"kid": kid}
        chosen = key if key is not None else self.ec if algorithm == "ES256" else self.rsa
        return jwt.encode(body, chosen, algorithm=algorithm, headers=headers)


def settings(**others: Any) -> OAuth:
    return OAuth(jwks="file:unused", issuer=ISSUER, audience=AUDIENCE, **others)
