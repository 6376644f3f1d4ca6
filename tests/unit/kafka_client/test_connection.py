"""One connection: frames within bounds, time limits, versions, TLS and logins."""

import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from millstream.errors import ProtocolError
from millstream.kafka_client import connection as module
from millstream.kafka_client.connection import HANDSHAKE_BYTES_MAX, Connection
from millstream.kafka_client.errors import AuthenticationFailed, TlsFailed, UnsupportedApi
from millstream.kafka_client.settings import ClientSettings, Credentials, Tls
from millstream.kafka_wire.apis.discovery import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
)
from millstream.kafka_wire.apis.millstream import BeginBatchRequest
from millstream.kafka_wire.apis.security import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from millstream.kafka_wire.apis.table import API_VERSIONS, APIS, unsupported_api_versions
from millstream.kafka_wire.headers import RequestHeader, encode_response
from millstream.kafka_wire.schema import Message
from tests.support.fake_broker import FakeBroker, HangUp, fake_broker
from tests.support.scram_server import ScramServer
from tests.support.sockets import receive_exactly

CERTIFICATE = str(Path(__file__).parents[2] / "support" / "localhost.pem")
AUTHORITY, _, _ = Path(CERTIFICATE).read_text(encoding="utf-8").partition("-----BEGIN PRIVATE")
METADATA = MetadataRequest(topics=None, allow_auto_topic_creation=False)


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with fake_broker() as serving:
        serving.leads(("orders", 1))
        yield serving


def connected(address: tuple[str, int], **others: Any) -> Connection:  # Fields of any type.
    return Connection(address, ClientSettings(bootstrap=(address,), **others))


@contextmanager
def raw_server(serve: Callable[[socket.socket], object]) -> Iterator[tuple[str, int]]:
    """A server of bytes for one connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def run() -> None:
            with suppress(OSError):
                stream, _ = server.accept()
                with stream:
                    serve(stream)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield server.getsockname()
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def frame(version: int, response: Message, correlation_id: int = 1) -> bytes:
    header = RequestHeader(API_VERSIONS, version, correlation_id)
    return b"".join(bytes(chunk) for chunk in encode_response(header, response))  # type: ignore[arg-type]


# -- frames and time limits ------------------------------------------------------------------------


@pytest.mark.parametrize("size", [-1, 0, 3, HANDSHAKE_BYTES_MAX + 1, 2**31 - 1])
def test_a_length_that_no_answer_has_is_refused(size: int) -> None:
    with (
        raw_server(lambda stream: stream.sendall(struct.pack(">i", size) + b"x" * 8)) as address,
        pytest.raises(ProtocolError, match=f"frame of {size} bytes"),
    ):
        connected(address)


def test_an_answer_may_be_as_large_as_the_settings_say(broker: FakeBroker) -> None:
    with (
        connected(broker.address, answer_bytes_max=16) as connection,
        pytest.raises(ProtocolError, match="at most 16"),
    ):
        connection.call(METADATA, MetadataResponse)


def test_an_answer_in_single_bytes_is_one_answer() -> None:
    def drip(stream: socket.socket) -> None:
        for byte in frame(4, ApiVersionsResponse(api_keys=[])):
            stream.sendall(bytes([byte]))

    with raw_server(drip) as address, connected(address) as connection:
        assert not connection.serves(MetadataRequest)


def test_a_broker_that_drips_is_given_up_after_the_time_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each byte comes in time, the answer does not."""
    monkeypatch.setattr(module, "GRACE_S", 0.1)

    def drip(stream: socket.socket) -> None:
        stream.sendall(struct.pack(">i", 1_000))
        for _ in range(600):
            stream.sendall(b"\0")
            time.sleep(0.05)

    started = time.monotonic()
    with raw_server(drip) as address, pytest.raises(TimeoutError, match="of 1000 bytes in time"):
        connected(address, request_ms_max=200)

    assert time.monotonic() - started < 20


def test_a_broker_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GRACE_S", 0.1)

    with (
        raw_server(lambda stream: stream.recv(9_999) and stream.recv(1)) as address,
        pytest.raises(TimeoutError, match="0 of 4 bytes in time"),
    ):
        connected(address, request_ms_max=100)


def test_an_answer_to_another_request_closes_the_connection() -> None:
    wrong = frame(4, ApiVersionsResponse(api_keys=[]), correlation_id=7)

    with (
        raw_server(lambda stream: stream.sendall(wrong)) as address,
        pytest.raises(ProtocolError, match="answer to request 7, not 1"),
    ):
        connected(address)


def test_a_connection_that_broke_is_not_idle(broker: FakeBroker) -> None:
    def hang_up(request: MetadataRequest) -> Message:
        raise HangUp

    connection = connected(broker.address)
    assert connection.is_idle
    broker.answers[MetadataRequest] = hang_up
    threading.Timer(0.05, broker.hang_up).start()

    with pytest.raises(ConnectionError):
        connection.call(METADATA, MetadataResponse)

    assert not connection.is_idle


# -- versions --------------------------------------------------------------------------------------


def test_an_old_broker_is_asked_again_in_a_version_that_it_knows() -> None:
    asked: list[int] = []

    def serve(stream: socket.socket) -> None:
        refusal = unsupported_api_versions()
        refusal.api_keys[0].max_version = 2
        for answer in (frame(0, refusal), frame(2, ApiVersionsResponse(api_keys=KNOWN), 2)):
            (size,) = struct.unpack(">i", receive_exactly(stream, 4))
            asked.append(struct.unpack_from(">hh", receive_exactly(stream, size))[1])
            stream.sendall(answer)

    with raw_server(serve) as address, connected(address) as connection:
        assert connection.serves(MetadataRequest)

    assert asked == [APIS[API_VERSIONS].last, 2]


KNOWN = [ApiVersionsResponse.ApiRange(api_key=3, min_version=0, max_version=1)]


def test_a_request_that_is_not_served_is_not_sent(broker: FakeBroker) -> None:
    broker.answers[ApiVersionsRequest] = lambda request: ApiVersionsResponse(api_keys=KNOWN)

    with (
        connected(broker.address) as connection,
        pytest.raises(UnsupportedApi, match="does not speak BeginBatch"),
    ):
        connection.send(BeginBatchRequest(group="g"))

    assert [header.api_key for header, _ in broker.seen] == [API_VERSIONS]


# -- TLS -------------------------------------------------------------------------------------------


@pytest.fixture
def secured() -> Iterator[FakeBroker]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    with fake_broker(tls=context) as serving:
        serving.leads(("orders", 1))
        yield serving


@pytest.mark.parametrize(
    "tls",
    [
        Tls(ca_file=CERTIFICATE),
        Tls(ca_pem=AUTHORITY),
        Tls(checks_certificate=False),
    ],
)
def test_a_trusted_broker_is_spoken_to(secured: FakeBroker, tls: Tls) -> None:
    with connected(secured.address, tls=tls) as connection:
        assert connection.call(METADATA, MetadataResponse).topics[0].name == "orders"


def test_a_certificate_of_an_unknown_authority_is_refused(secured: FakeBroker) -> None:
    with pytest.raises(TlsFailed, match="is not trusted: self-signed certificate"):
        connected(secured.address, tls=Tls())


def test_a_certificate_of_another_host_is_refused_unless_hosts_are_not_checked(
    secured: FakeBroker,
) -> None:
    other = ("localhost", secured.address[1])  # The certificate is for 127.0.0.1.

    with pytest.raises(TlsFailed, match="is not trusted: Hostname mismatch"):
        connected(other, tls=Tls(ca_file=CERTIFICATE))
    connected(other, tls=Tls(ca_file=CERTIFICATE, checks_hostname=False)).close()


def test_a_broker_without_tls_is_refused_at_once() -> None:
    with (
        raw_server(lambda stream: stream.sendall(b"plain text, not TLS")) as address,
        pytest.raises(TlsFailed, match=r"TLS with 127\.0\.0\.1:\d+ failed"),
    ):
        connected(address, tls=Tls())


@pytest.mark.parametrize("tls", [Tls(ca_file="/nowhere"), Tls(certificate_file="/nowhere")])
def test_a_file_that_is_missing_is_named_before_anything_is_sent(
    broker: FakeBroker, tls: Tls
) -> None:
    with pytest.raises(TlsFailed, match=r"cannot be used \(/nowhere\)"):
        connected(broker.address, tls=tls)

    assert broker.seen == []


# -- logins ----------------------------------------------------------------------------------------


class Login:
    """Plays the part of Kafka's SaslServerAuthenticator: a handshake, then tokens."""

    def __init__(self, broker: FakeBroker, mechanism: str, *, lifetime_ms: int = 0) -> None:
        self.broker = broker
        self.mechanism = mechanism
        self.lifetime_ms = lifetime_ms
        algorithm = "sha512" if mechanism.endswith("512") else "sha256"
        self.server = ScramServer(algorithm, {"ann": "secret"})
        broker.answers[SaslHandshakeRequest] = self.handshake
        broker.answers[SaslAuthenticateRequest] = self.authenticate

    def handshake(self, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
        is_known = request.mechanism == self.mechanism
        return SaslHandshakeResponse(error_code=0 if is_known else 33, mechanisms=[self.mechanism])

    def authenticate(self, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
        answer = self.server.reply(bytes(request.auth_bytes))
        if answer is None:
            return SaslAuthenticateResponse(error_code=58, error_message="Authentication failed")
        return SaslAuthenticateResponse(auth_bytes=answer, session_lifetime_ms=self.lifetime_ms)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_user_logs_in_with_scram_after_one_question_for_versions(
    broker: FakeBroker, mechanism: str
) -> None:
    login = Login(broker, mechanism)
    credentials = Credentials(username="ann", password="secret", mechanism=mechanism)

    with connected(broker.address, credentials=credentials) as connection:
        connection.call(METADATA, MetadataResponse)

    assert login.server.is_done
    # Kafka's broker closes the connection at a second ApiVersions before the login.
    assert [header.api_key for header, _ in broker.seen] == [18, 17, 36, 36, 3]
    tokens = [r.auth_bytes for _, r in broker.seen if isinstance(r, SaslAuthenticateRequest)]
    assert all(b"secret" not in bytes(token) for token in tokens)


def test_a_wrong_password_is_refused_and_not_shown(broker: FakeBroker) -> None:
    Login(broker, "SCRAM-SHA-256")
    credentials = Credentials(username="ann", password="guess", mechanism="SCRAM-SHA-256")

    with pytest.raises(AuthenticationFailed, match="refuses user 'ann'") as caught:
        connected(broker.address, credentials=credentials)

    assert "guess" not in str(caught.value)
    assert "guess" not in repr(credentials)


def test_a_mechanism_that_the_broker_lacks_is_named_with_those_it_has(broker: FakeBroker) -> None:
    Login(broker, "SCRAM-SHA-512")
    credentials = Credentials(username="ann", password="secret")

    with pytest.raises(AuthenticationFailed, match="takes SASL SCRAM-SHA-512, not PLAIN"):
        connected(broker.address, credentials=credentials)


def test_a_session_that_is_about_to_end_is_not_idle(broker: FakeBroker) -> None:
    Login(broker, "SCRAM-SHA-256", lifetime_ms=1)
    credentials = Credentials(username="ann", password="secret", mechanism="SCRAM-SHA-256")

    connection = connected(broker.address, credentials=credentials)
    time.sleep(0.01)

    assert not connection.is_idle
    connection.close()
