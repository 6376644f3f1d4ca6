"""SCRAM as the RFCs have it, and broker messages that must not be believed."""

import base64
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.kafka_client.errors import AuthenticationFailed, InvalidSecurity
from millstream.kafka_client.oauth import fetch_token
from millstream.kafka_client.sasl import ITERATIONS_MAX, bearer, conversation, plain, scram
from millstream.kafka_client.settings import Credentials, OAuth
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


def test_a_token_is_shown_as_rfc_7628_has_it() -> None:
    tokens = bearer("abc.def")

    assert next(tokens) == b"n,,\x01auth=Bearer abc.def\x01\x01"
    with pytest.raises(StopIteration):
        tokens.send(b"")


def test_a_broker_that_refuses_a_token_is_quoted() -> None:
    tokens = bearer("abc.def")
    next(tokens)

    assert tokens.send(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(AuthenticationFailed, match="invalid_token"):
        tokens.send(b"")


def test_a_token_may_lie_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc.def\n", "utf-8")
    oauth = OAuth(endpoint=(tmp_path / "token").as_uri())
    credentials = Credentials(username="", password="", mechanism="OAUTHBEARER", oauth=oauth)

    assert next(conversation(credentials)) == b"n,,\x01auth=Bearer abc.def\x01\x01"
    with pytest.raises(AuthenticationFailed, match="cannot be read"):
        fetch_token(OAuth(endpoint=(tmp_path / "nothing").as_uri()))


class TokenEndpoint(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        form = self.rfile.read(int(self.headers["Content-Length"])).decode()
        client = base64.b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
        is_known = (client, form) == ("a%3An:s3cret", "grant_type=client_credentials&scope=kafka")
        answer = b'{"access_token": "abc.def"}' if is_known else b"{}"
        self.send_response(200 if is_known else 401)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None: ...


def test_a_token_is_granted_to_a_client_that_knows_its_secret() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), TokenEndpoint) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        endpoint = f"http://127.0.0.1:{server.server_port}/token"
        known = OAuth(endpoint=endpoint, client_id="a:n", client_secret="s3cret", scope="kafka")
        assert fetch_token(known) == "abc.def"
        with pytest.raises(AuthenticationFailed, match="gives no token to 'bob': HTTP 401"):
            fetch_token(OAuth(endpoint=endpoint, client_id="bob"))
        server.shutdown()
    with pytest.raises(AuthenticationFailed, match="no token from"):
        fetch_token(known)
