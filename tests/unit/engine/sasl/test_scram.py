"""SCRAM from the broker's side: agrees with an independent client, and yields to no other bytes."""

from base64 import b64decode, b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scramp import ScramClient

from millstream.engine.sasl.scram import (
    Known,
    ScramServer,
    fake_credential,
    is_password_of,
    make_credential,
)
from millstream.errors.access import LoginFailed

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
PASSWORD = "correct horse"


def server(mechanism: str = MECHANISMS[0], user: str = "ann", nonce: str = "s" * 24) -> ScramServer:
    def find(name: str) -> Known:
        if name == user:
            made = make_credential(mechanism, PASSWORD, salt=b"salt" * 4, iterations=4096)
            return Known(made, is_real=True)
        fake = fake_credential(mechanism, name, salt_key=b"key", iterations=4096)
        return Known(fake, is_real=False)

    return ScramServer(mechanism, find, nonce)


def exchange(
    mechanism: str = MECHANISMS[0], user: str = "ann", password: str = PASSWORD, known: str = "ann"
) -> tuple[ScramServer, ScramClient]:
    """All but the client's check of the last message."""
    at, client = server(mechanism, known), ScramClient([mechanism], user, password)
    client.set_server_first(at.first(client.get_client_first().encode()).decode())
    client.set_server_final(at.final(client.get_client_final().encode()).decode())
    return at, client


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("user", ["ann", "a=b,c", "CN=svc"])
def test_an_independent_client_logs_in_and_believes_the_broker(mechanism: str, user: str) -> None:
    at, _ = exchange(mechanism, user, known=user)

    assert at.user == user


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("user", "password"), [("ann", "wrong"), ("eve", PASSWORD)])
def test_a_wrong_password_and_an_unknown_user_fail_with_the_same_text(
    mechanism: str, user: str, password: str
) -> None:
    with pytest.raises(LoginFailed) as raised:
        exchange(mechanism, user, password)

    assert str(raised.value) == (
        "Authentication failed during authentication due to invalid credentials with SASL "
        f"mechanism {mechanism}"
    )


def test_an_unknown_user_is_shown_the_same_salt_every_time() -> None:
    first, second = (
        server(nonce=nonce * 24).first(b"n,,n=eve,r=abc").decode() for nonce in ("x", "y")
    )

    assert first.split(",")[1:] == second.split(",")[1:]


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"n,,n=ann",
        b"n,,r=abc",
        b"n,,n=,r=abc",
        b"n,,n=ann,r=",
        b"p=tls-unique,,n=ann,r=abc",
        b"n,a=root,n=ann,r=abc",
        b"n,,m=x,n=ann,r=abc",
        b"n,,n=a=2Dnn,r=abc",
        b"n,,n=ann=,r=abc",
        b"n,,n=ann,r=abc,tokenauth=true",
        b"n,,n=ann,r=a\x00c",
        b"\xff\xfe",
        b"n,,n=ann,r=" + b"a" * 2000,
    ],
)
def test_a_first_message_that_breaks_the_rules_fails(message: bytes) -> None:
    with pytest.raises(LoginFailed):
        server().first(message)


@pytest.mark.parametrize(
    "message", [b"y,,n=ann,r=abc", b"n,a=ann,n=ann,r=abc", b"n,,n=ann,r=a,x=1"]
)
def test_a_first_message_may_have_what_the_rules_allow(message: bytes) -> None:
    assert server().first(message).startswith(b"r=a")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"r=abc", b"r=abd"),  # Another client nonce.
        (b"s" * 24, b"s" * 23),  # Part of the broker's nonce (CVE-2024-56128).
        (b"c=biws", b"c=eSws"),  # Another GS2 header than the one that was sent.
        (b",p=", b",q="),
        (b"p=", b"p=AA"),
    ],
)
def test_a_final_message_is_taken_only_if_all_of_it_fits(before: bytes, after: bytes) -> None:
    at = server()
    client = ScramClient([MECHANISMS[0]], "ann", PASSWORD, c_nonce="abc")
    client.set_server_first(at.first(client.get_client_first().encode()).decode())
    final = client.get_client_final().encode()
    assert before in final

    with pytest.raises(LoginFailed):
        at.final(final.replace(before, after, 1))


def test_every_bit_of_the_proof_counts() -> None:
    client = ScramClient([MECHANISMS[0]], "ann", PASSWORD, c_nonce="abc")
    first = client.get_client_first().encode()
    client.set_server_first(server().first(first).decode())
    head, _, proof = client.get_client_final().rpartition(",p=")
    raw = b64decode(proof)
    for bit in range(len(raw) * 8):
        at = server()
        at.first(first)
        flipped = bytearray(raw)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(LoginFailed):
            at.final(f"{head},p={b64encode(flipped).decode()}".encode())


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_no_bytes_do_more_than_fail(first: bytes, final: bytes) -> None:
    def talk() -> None:
        at = server()
        at.first(first)
        at.final(final)

    with pytest.raises(LoginFailed):
        talk()


def test_a_plain_password_is_checked_against_the_credential() -> None:
    for mechanism in MECHANISMS:
        made = make_credential(mechanism, PASSWORD, salt=b"pepper", iterations=4096)

        assert is_password_of(mechanism, made, PASSWORD)
        assert not is_password_of(mechanism, made, PASSWORD + " ")
