"""Bytes that no client sends: before a login nothing is held, answered or allowed for long."""

import asyncio
import random
import socket
import ssl
import struct
from collections.abc import Callable

import pytest

from millstream.kafka_wire.apis.discovery import ApiVersionsRequest, MetadataRequest
from millstream.kafka_wire.apis.security import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from millstream.kafka_wire.apis.table import APIS
from millstream.kafka_wire.headers import RequestHeader, decode_response, encode_request
from millstream.kafka_wire.schema import Message
from tests.protocols.secured.test_other_protocols import dial
from tests.support.secured import ADMIN, PASSWORD, SecuredNode
from tests.support.sockets import receive_exactly

PLAIN = f"\0{ADMIN}\0{PASSWORD}".encode()


def request(message: Message, version: int | None = None) -> bytes:
    api = next(api for api in APIS.values() if api.request is type(message))
    header = RequestHeader(api.key, api.last if version is None else version, 1, "hostile")
    return b"".join(bytes(chunk) for chunk in encode_request(header, message))  # type: ignore[arg-type]


def reply(connection: socket.socket) -> bytes:
    (size,) = struct.unpack(">i", receive_exactly(connection, 4))
    return receive_exactly(connection, size)


def handshake(connection: socket.socket, mechanism: str, version: int = 1) -> SaslHandshakeResponse:
    connection.sendall(request(SaslHandshakeRequest(mechanism=mechanism), version))
    _, answer = decode_response(APIS[17], version, reply(connection))
    assert isinstance(answer, SaslHandshakeResponse)
    return answer


def authenticate(connection: socket.socket, token: bytes) -> SaslAuthenticateResponse:
    connection.sendall(request(SaslAuthenticateRequest(auth_bytes=token)))
    _, answer = decode_response(APIS[36], 2, reply(connection))
    assert isinstance(answer, SaslAuthenticateResponse)
    return answer


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def log_in(connection: socket.socket) -> None:
    assert handshake(connection, "PLAIN").error_code == 0
    assert authenticate(connection, PLAIN).error_code == 0


def test_before_a_login_other_requests_end_the_connection(secured: SecuredNode) -> None:
    for steps in ([], ["PLAIN"]):
        with dial(secured, "sasl") as connection:
            for mechanism in steps:
                handshake(connection, mechanism)
            connection.sendall(request(MetadataRequest(topics=None)))
            assert is_closed(connection)


def test_an_unknown_mechanism_is_told_the_known_ones_and_the_connection_ends(
    secured: SecuredNode,
) -> None:
    with dial(secured, "sasl") as connection:
        answer = handshake(connection, "GSSAPI")

        assert answer.error_code == 33
        assert answer.mechanisms == ["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "OAUTHBEARER"]
        assert is_closed(connection)


def test_a_token_without_a_handshake_is_out_of_order(secured: SecuredNode) -> None:
    with dial(secured, "sasl") as connection:
        assert authenticate(connection, PLAIN).error_code == 34
        assert is_closed(connection)


def test_after_a_login_both_requests_are_out_of_order_and_the_connection_stays(
    secured: SecuredNode,
) -> None:
    with dial(secured, "sasl") as connection:
        log_in(connection)
        late = authenticate(connection, PLAIN)

        assert late.error_code == 34
        assert (
            late.error_message
            == "SaslAuthenticate request received after successful authentication"
        )
        assert handshake(connection, "PLAIN").error_code == 34
        connection.sendall(request(MetadataRequest(topics=None)))
        assert reply(connection)


def test_without_sasl_both_requests_are_out_of_order(secured: SecuredNode) -> None:
    with dial(secured, "plain") as connection:
        assert handshake(connection, "PLAIN").error_code == 34
        assert authenticate(connection, PLAIN).error_code == 34


def test_raw_tokens_of_the_first_handshake_are_taken_and_a_wrong_one_gets_no_word(
    secured: SecuredNode,
) -> None:
    with dial(secured, "sasl") as connection:
        handshake(connection, "PLAIN", version=0)
        connection.sendall(struct.pack(">i", len(PLAIN)) + PLAIN)
        assert receive_exactly(connection, 4) == b"\0\0\0\0"
        connection.sendall(request(MetadataRequest(topics=None)))
        assert reply(connection)
    with dial(secured, "sasl") as connection:
        handshake(connection, "PLAIN", version=0)
        wrong = b"\0admin\0wrong"
        connection.sendall(struct.pack(">i", len(wrong)) + wrong)
        assert is_closed(connection)


def test_a_login_may_come_byte_by_byte(secured: SecuredNode) -> None:
    with dial(secured, "sasl") as connection:
        handshake(connection, "PLAIN")
        for byte in request(SaslAuthenticateRequest(auth_bytes=PLAIN)):
            connection.sendall(bytes([byte]))
        _, answer = decode_response(APIS[36], 2, reply(connection))

        assert isinstance(answer, SaslAuthenticateResponse)
        assert answer.error_code == 0


def test_requests_behind_a_pending_login_wait_for_it(secured: SecuredNode) -> None:
    with dial(secured, "sasl") as connection:
        handshake(connection, "PLAIN")
        login = request(SaslAuthenticateRequest(auth_bytes=PLAIN))
        connection.sendall(login + request(MetadataRequest(topics=None)))

        assert decode_response(APIS[36], 2, reply(connection))
        assert reply(connection)


@pytest.mark.parametrize("size", [65_537, 2**31 - 1, -1, 0])
def test_a_large_frame_before_a_login_ends_the_connection(secured: SecuredNode, size: int) -> None:
    with dial(secured, "sasl") as connection:
        connection.sendall(struct.pack(">i", size) + b"x" * 100)

        assert is_closed(connection)


def test_many_requests_before_a_login_end_the_connection(secured: SecuredNode) -> None:
    with dial(secured, "sasl") as connection:
        for _ in range(10):
            connection.sendall(request(ApiVersionsRequest(), 0))
            assert reply(connection)
        connection.sendall(request(ApiVersionsRequest(), 0))
        assert is_closed(connection)


def test_mutated_logins_end_alone(secured: SecuredNode) -> None:
    seeds = random.Random(7)
    good = request(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1) + request(
        SaslAuthenticateRequest(auth_bytes=b"n,,n=admin,r=abcdef")
    )
    for _ in range(60):
        bad = bytearray(good)
        for _ in range(seeds.randint(1, 4)):
            bad[seeds.randrange(len(bad))] = seeds.randrange(256)
        with dial(secured, "sasl") as connection:
            connection.sendall(bad)
            connection.shutdown(socket.SHUT_WR)
            connection.settimeout(5)
            while connection.recv(4096):
                pass
    with dial(secured, "sasl") as connection:
        log_in(connection)


def test_a_login_that_is_cut_at_any_byte_ends_alone(secured: SecuredNode) -> None:
    """With wrapped tokens, and with the raw ones of the first handshake."""
    wrapped = request(SaslHandshakeRequest(mechanism="PLAIN"), 1) + request(
        SaslAuthenticateRequest(auth_bytes=PLAIN)
    )
    raw = request(SaslHandshakeRequest(mechanism="PLAIN"), 0) + struct.pack(">i", len(PLAIN))
    for whole in (wrapped, raw + PLAIN):
        for end in range(len(whole)):
            with dial(secured, "sasl") as connection:
                connection.sendall(whole[:end])
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(4096):
                    pass
    with dial(secured, "sasl") as connection:
        log_in(connection)


# -- TLS -------------------------------------------------------------------------------------------


def client_hello() -> bytes:
    outgoing = ssl.MemoryBIO()
    context = ssl.create_default_context()
    context.set_alpn_protocols(["h2", "nonsense"])
    hello = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="no-such-name.example")
    with pytest.raises(ssl.SSLWantReadError):
        hello.do_handshake()
    return outgoing.read()


def test_mutated_and_cut_tls_hellos_end_alone(secured: SecuredNode) -> None:
    """Names and protocols that are not served are among them."""
    seeds, good = random.Random(11), client_hello()
    hellos = [good[: seeds.randrange(len(good))] for _ in range(30)]
    for _ in range(60):
        bad = bytearray(good)
        for _ in range(seeds.randint(1, 6)):
            bad[seeds.randrange(len(bad))] = seeds.randrange(256)
        hellos.append(bytes(bad))
    for hello in (good, *hellos):
        with socket.create_connection(("127.0.0.1", secured.ports["sasl_tls"]), 10) as connection:
            connection.sendall(hello)
            connection.shutdown(socket.SHUT_WR)
            try:
                while connection.recv(4096):
                    pass
            except ConnectionResetError:
                pass
    with dial(secured, "sasl_tls") as connection:
        log_in(connection)


@pytest.mark.parametrize(
    ("listener", "data", "answer"),
    [
        ("sasl_tls", request(ApiVersionsRequest(), 0), b""),
        ("sasl_tls", b"\xaf\x01\x70\x01\0\0\0\0", b"this port speaks TLS"),
        ("flux_tls", b"PING\r\n", b"-ERR this port speaks TLS"),
        ("http_tls", b"GET /metrics HTTP/1.1\r\n\r\n", b"HTTP/1.1 400"),
    ],
)
def test_plain_text_at_a_tls_port_is_answered_in_its_own_words(
    secured: SecuredNode,
    caplog: pytest.LogCaptureFixture,
    listener: str,
    data: bytes,
    answer: bytes,
) -> None:
    with socket.create_connection(("127.0.0.1", secured.ports[listener]), 10) as connection:
        connection.sendall(data)
        received = b""
        while piece := connection.recv(4096):
            received += piece

    assert answer in received
    assert bool(answer) == bool(received)


@pytest.mark.parametrize("listener", ["sasl", "flux", "classic", "http"])
def test_a_tls_hello_at_a_plain_port_gets_an_alert(secured: SecuredNode, listener: str) -> None:
    context = ssl.create_default_context(cafile=str(secured.files / "ca.pem"))
    with (
        socket.create_connection(("127.0.0.1", secured.ports[listener]), 10) as plain,
        pytest.raises(ssl.SSLError, match=r"(?i)alert|version"),
    ):
        context.wrap_socket(plain, server_hostname="localhost")


@pytest.mark.parametrize(
    "change",
    [
        lambda context: setattr(context, "maximum_version", ssl.TLSVersion.TLSv1_1),
        lambda context: context.set_ciphers("AES128-SHA"),
    ],
)
def test_old_versions_and_weak_ciphers_are_refused(
    secured: SecuredNode, change: Callable[[ssl.SSLContext], None]
) -> None:
    context = ssl.create_default_context(cafile=str(secured.files / "ca.pem"))
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    try:
        change(context)
    except (ssl.SSLError, ValueError, DeprecationWarning):
        pytest.skip("this OpenSSL cannot offer it")
    with (
        socket.create_connection(("127.0.0.1", secured.ports["sasl_tls"]), 10) as plain,
        pytest.raises((ssl.SSLError, ConnectionResetError)),
    ):
        context.wrap_socket(plain, server_hostname="localhost")


def test_many_half_open_handshakes_keep_nobody_out(secured: SecuredNode) -> None:
    idle = [
        socket.create_connection(("127.0.0.1", secured.ports["sasl_tls"]), 10) for _ in range(200)
    ]
    try:
        for connection in idle[::2]:
            connection.sendall(b"\x16\x03\x01\x02\x00")
        with dial(secured, "sasl_tls") as connection:
            log_in(connection)
    finally:
        for connection in idle:
            connection.close()


def test_connections_without_a_login_are_forgotten_when_they_end(secured: SecuredNode) -> None:
    with dial(secured, "sasl"):
        pass

    async def settled() -> int:
        for _ in range(50):
            if not secured.service.listeners._admission.stranger_count:
                break
            await asyncio.sleep(0.1)
        return secured.service.listeners._admission.stranger_count

    assert secured.run(settled()) == 0
