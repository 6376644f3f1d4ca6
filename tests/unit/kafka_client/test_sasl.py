"""SCRAM as the RFCs have it, and broker messages that must not be believed."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.kafka_client.errors import AuthenticationFailed, InvalidSecurity
from millstream.kafka_client.sasl import ITERATIONS_MAX, conversation, plain, scram
from millstream.kafka_client.settings import Credentials
from tests.support.scram_server import ScramServer

# RFC 7677, section 3.
NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = f"{NONCE}%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = "W22ZaJ0SNY7soEsUEjb6gQ=="
CHALLENGE = f"r={SERVER_NONCE},s={SALT},i=4096".encode()
VERIFIER = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_the_conversation_of_rfc_7677() -> None:
    tokens = scram("sha256", "user", "pencil", nonce=NONCE)

    assert next(tokens) == f"n,,n=user,r={NONCE}".encode()
    assert tokens.send(CHALLENGE) == (
        f"c=biws,r={SERVER_NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
    )
    with pytest.raises(StopIteration):
        tokens.send(VERIFIER)


def test_the_conversation_of_rfc_5802() -> None:
    """Its hash is SHA-1, which no broker offers; the messages are the same."""
    nonce = "fyko+d2lbbFgONRv9qkxdawL"
    both = f"{nonce}3rfcNHYJY1ZVvWVs7j"
    tokens = scram("sha1", "user", "pencil", nonce=nonce)

    assert next(tokens) == f"n,,n=user,r={nonce}".encode()
    assert tokens.send(f"r={both},s=QSXCR+Q6sek8bf92,i=4096".encode()) == (
        f"c=biws,r={both},p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=".encode()
    )
    with pytest.raises(StopIteration):
        tokens.send(b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=")


@pytest.mark.parametrize(
    ("mechanism", "algorithm"), [("SCRAM-SHA-256", "sha256"), ("SCRAM-SHA-512", "sha512")]
)
@pytest.mark.parametrize("user", ["ann", "a=b,c", "Müller"])
def test_a_broker_and_a_client_convince_each_other(
    mechanism: str, algorithm: str, user: str
) -> None:
    server = ScramServer(algorithm, {user: "p,w=ü"})
    tokens = conversation(Credentials(username=user, password="p,w=ü", mechanism=mechanism))

    challenge = server.reply(next(tokens))
    assert challenge is not None
    verifier = server.reply(tokens.send(challenge))
    assert verifier is not None
    with pytest.raises(StopIteration):
        tokens.send(verifier)

    assert (server.user, server.is_done) == (user, True)


def test_plain_is_one_token_of_user_and_password() -> None:
    assert list(plain("ann", "secret")) == [b"\0ann\0secret"]


def test_another_mechanism_is_refused_by_name() -> None:
    with pytest.raises(InvalidSecurity, match="'GSSAPI' is not supported; supported are PLAIN"):
        conversation(Credentials(username="a", password="b", mechanism="GSSAPI"))


@pytest.mark.parametrize(
    ("challenge", "reason"),
    [
        (f"r=another,s={SALT},i=4096".encode(), "nonce"),
        (f"r={NONCE},s={SALT},i=4096".encode(), "nonce"),
        (f"r={SERVER_NONCE},s={SALT},i=4095".encode(), "4095 SCRAM iterations"),
        (f"r={SERVER_NONCE},s={SALT},i={ITERATIONS_MAX + 1}".encode(), "SCRAM iterations"),
        (f"r={SERVER_NONCE},s=?,i=4096".encode(), "malformed"),
        (f"r={SERVER_NONCE},s={SALT}".encode(), "malformed"),
        (b"e=unknown-user", "unknown-user"),
        (b"\xff", "UTF-8"),
        (b"", "malformed"),
    ],
)
def test_a_challenge_that_breaks_the_rules_is_refused(challenge: bytes, reason: str) -> None:
    tokens = scram("sha256", "user", "pencil", nonce=NONCE)
    next(tokens)

    with pytest.raises(AuthenticationFailed, match=reason):
        tokens.send(challenge)


@pytest.mark.parametrize(
    ("final", "reason"),
    [
        (b"v=AAAA", "did not prove"),
        (b"e=invalid-proof", "invalid-proof"),
        (b"", "malformed"),
        (b"v=?", "malformed"),
    ],
)
def test_a_broker_that_does_not_know_the_password_is_not_believed(
    final: bytes, reason: str
) -> None:
    tokens = scram("sha256", "user", "pencil", nonce=NONCE)
    next(tokens)
    tokens.send(CHALLENGE)

    with pytest.raises(AuthenticationFailed, match=reason):
        tokens.send(final)


@given(st.binary(max_size=80), st.binary(max_size=40))
def test_no_bytes_of_a_broker_raise_anything_else(challenge: bytes, final: bytes) -> None:
    for answer in (challenge, f"r={SERVER_NONCE},".encode() + challenge):
        tokens = scram("sha256", "user", "pencil", nonce=NONCE)
        next(tokens)
        with suppress(AuthenticationFailed):
            tokens.send(answer)
            tokens.send(final)
