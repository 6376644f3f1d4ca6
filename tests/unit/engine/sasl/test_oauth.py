"""Tokens: only those of the issuer, for this audience, signed with a key of its set."""

import time
from typing import Any

import jwt
import pytest

from millstream.engine.sasl.oauth import KeySet, UnknownKey, parse, verify
from millstream.errors.access import LoginFailed
from tests.support.tokens import Issuer, settings

ISSUER = Issuer()
KEYS = KeySet(ISSUER.key_set())


def checked(token: str, **others: Any) -> tuple[str, tuple[str, ...], float]:
    name, roles, expires_s = verify(token, KEYS, settings(**others), now_s=time.time())
    return name, roles, expires_s


@pytest.mark.parametrize(("algorithm", "kid"), [("RS256", "r1"), ("PS512", "r1"), ("ES256", "e1")])
def test_a_token_of_the_issuer_names_its_user(algorithm: str, kid: str) -> None:
    name, roles, _ = checked(
        ISSUER.token(algorithm=algorithm, kid=kid, groups=["ops", 3]), roles_claim="groups"
    )

    assert (name, roles) == ("ann", ("ops",))


def test_claims_and_prefix_choose_the_name() -> None:
    token = ISSUER.token(email="ann@example", groups="ops")

    assert checked(token, principal_claim="email", principal_prefix="idp-", roles_claim="groups")[
        :2
    ] == ("idp-ann@example", ("ops",))


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://other.example"},
        {"aud": "other"},
        {"aud": None},
        {"iss": None},
        {"exp": None},
        {"exp": int(time.time()) - 100},
        {"nbf": int(time.time()) + 10_000},  # Long after the last test of a run.
        {"exp": int(time.time()) + 10 * 86_400},
        {"sub": None},
        {"sub": 7},
        {"sub": ""},
    ],
)
def test_claims_that_do_not_fit_are_refused(claims: dict[str, Any]) -> None:
    with pytest.raises(LoginFailed, match="the token was not accepted"):
        checked(ISSUER.token(**claims))


def test_a_token_that_the_issuer_did_not_sign_is_refused() -> None:
    other = Issuer()
    unsigned = jwt.encode({"sub": "ann"}, "", algorithm="none", headers={"kid": "r1"})
    forged = [
        other.token(),  # CVE-2026-49998: the same kid, another issuer's key.
        other.token(algorithm="ES256", kid="e1"),
        unsigned,  # CVE-2021-22160, CVE-2026-33557
        ISSUER.token(algorithm="HS256", key="c2VjcmV0" * 8, kid="shared"),
        ISSUER.token(kid="e1"),  # The key of another algorithm.
        ISSUER.token() + "x",
        "",
        "a.b.c",
        "x" * 20_000,
    ]
    for token in forged:
        with pytest.raises(LoginFailed):
            checked(token)


def test_a_public_key_is_no_shared_secret() -> None:
    import hashlib
    import hmac
    from base64 import urlsafe_b64encode

    def part(data: bytes) -> str:
        return urlsafe_b64encode(data).decode().rstrip("=")

    head, body = part(b'{"alg":"HS256","kid":"r1"}'), part(b'{"sub":"ann"}')
    signature = hmac.digest(ISSUER.public_pem(), f"{head}.{body}".encode(), hashlib.sha256)

    with pytest.raises(LoginFailed):
        checked(f"{head}.{body}.{part(signature)}")


def test_an_unknown_key_may_be_newer_than_the_set() -> None:
    with pytest.raises(UnknownKey):
        checked(ISSUER.token(kid="r2"))
    with pytest.raises(UnknownKey):
        checked(ISSUER.token(kid=None))


@pytest.mark.parametrize("document", [b"", b"[]", b'{"keys": 3}', b'{"keys": ' + b"[" * 10])
def test_a_document_that_is_no_key_set_is_named(document: bytes) -> None:
    with pytest.raises(ValueError):
        KeySet(document)


def test_the_message_of_a_client_is_read() -> None:
    assert tuple(parse(b"n,,\x01auth=Bearer abc\x01\x01")) == ("abc", "")
    assert tuple(parse(b"n,a=ann,\x01auth=bearer abc\x01host=x\x01\x01")) == ("abc", "ann")
    assert "abc" not in repr(parse(b"n,,\x01auth=Bearer abc\x01\x01"))
    for message in (b"", b"\x01", b"n,,\x01\x01", b"n,,\x01auth=Basic x\x01\x01", b"\xff"):
        with pytest.raises(LoginFailed):
            parse(message)
