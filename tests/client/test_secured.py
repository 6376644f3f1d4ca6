"""Connections of our own, as librdkafka's settings say: TLS, a login, and what is refused.

The other side is a few lines that speak just enough of Kafka's protocol, because what they see is
what is claimed here.
"""

import socket
import ssl
import struct
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import which
from typing import Any

import pytest

from millstream.client.errors import ClientError, Denied, NotSupported, Refused, Unreachable
from millstream.client.models import BrokerNode
from millstream.client.wire import list_transactions

TIMEOUT_S = 30.0
OK = b"\0\0"
# Error 58, without a message and without a token.
WRONG = b"\0\x3a\xff\xff\0\0\0\0"
TOKEN = b"\0\0\xff\xff\0\0\0\0"
NO_TRANSACTIONS = b"\0" + b"\0" * 6 + b"\x01\x01\0"
HANDSHAKE, AUTHENTICATE, LIST = 17, 36, 66


class Listener:
    """Answers one connection by api key, and keeps what was asked."""

    def __init__(self, context: ssl.SSLContext | None, answers: dict[int, bytes]) -> None:
        self.asked: list[tuple[int, bytes]] = []
        self._context = context
        self._answers = answers
        self._server = socket.create_server(("127.0.0.1", 0))
        self._server.settimeout(TIMEOUT_S)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    @property
    def node(self) -> BrokerNode:
        return BrokerNode(node_id=1, host="localhost", port=self._server.getsockname()[1])

    def close(self) -> None:
        with suppress(OSError):  # So that it does not wait for somebody who does not come.
            socket.create_connection(self._server.getsockname(), timeout=1).close()
        self._thread.join(TIMEOUT_S)
        self._server.close()

    def _serve(self) -> None:
        with suppress(OSError, struct.error):
            raw, _ = self._server.accept()
            raw.settimeout(TIMEOUT_S)
            with raw if self._context is None else self._secured(raw) as connection:
                while True:
                    (size,) = struct.unpack(">i", connection.recv(4))
                    frame = connection.recv(size)
                    key, _, number, name_size = struct.unpack_from(">hhih", frame)
                    self.asked.append((key, frame[10 + name_size :]))
                    answer = struct.pack(">i", number) + self._answers[key]
                    connection.sendall(struct.pack(">i", len(answer)) + answer)

    def _secured(self, raw: socket.socket) -> socket.socket:
        assert self._context is not None
        try:
            return self._context.wrap_socket(raw, server_side=True)
        except OSError:
            raw.close()
            raise


@contextmanager
def listening(context: ssl.SSLContext | None = None, login: bytes = TOKEN) -> Iterator[Listener]:
    answers = {HANDSHAKE: OK + b"\0\0\0\0", AUTHENTICATE: login, LIST: NO_TRANSACTIONS}
    listener = Listener(context, answers)
    try:
        yield listener
    finally:
        listener.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For localhost, signed by itself, with its key in the same file."""
    if which("openssl") is None:
        pytest.skip("needs openssl, to make a certificate")
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    key = path.with_name("key.pem")
    command = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost"
    extension = ["-addext", "subjectAltName=DNS:localhost"]
    subprocess.run(
        ["openssl", *command.split(), *extension, "-keyout", key, "-out", path],
        check=True,
        capture_output=True,
    )
    path.write_text(path.read_text() + key.read_text())
    return path


@pytest.fixture
def context(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


def ask(listener: Listener, **settings: Any) -> None:
    config = {name.replace("_", "."): value for name, value in settings.items()}
    assert list_transactions([listener.node], config, timeout_s=TIMEOUT_S) == ()


def test_tls_is_spoken_where_the_settings_say_so(
    context: ssl.SSLContext, certificate: Path
) -> None:
    with listening(context) as listener:
        ask(listener, security_protocol="SSL", ssl_ca_location=str(certificate))

        assert [key for key, _ in listener.asked] == [LIST]


def test_a_certificate_that_nobody_vouches_for_is_refused(context: ssl.SSLContext) -> None:
    with listening(context) as listener, pytest.raises(Denied, match="certificate verify failed"):
        ask(listener, security_protocol="ssl")


def test_checking_can_be_switched_off(context: ssl.SSLContext) -> None:
    with listening(context) as listener:
        ask(listener, security_protocol="ssl", enable_ssl_certificate_verification="false")


def test_a_user_logs_in_before_anything_is_asked() -> None:
    with listening() as listener:
        ask(
            listener,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_username="ann",
            sasl_password="secret",
        )

        words = b"\0ann\0secret"
        assert listener.asked == [
            (HANDSHAKE, b"\0\x05PLAIN"),
            (AUTHENTICATE, struct.pack(">i", len(words)) + words),
            (LIST, b"\0\x01\x01\0"),
        ]


def test_a_wrong_password_is_denied_and_not_shown() -> None:
    with listening(login=WRONG) as listener, pytest.raises(Denied) as caught:
        ask(
            listener,
            security_protocol="sasl_plaintext",
            sasl_mechanism="PLAIN",
            sasl_password="secret",
        )

    assert "secret" not in str(caught.value)
    assert listener.asked[-1][0] == AUTHENTICATE


@pytest.mark.parametrize(
    ("settings", "kind", "said"),
    [
        ({"security_protocol": "quic"}, NotSupported, "quic"),
        ({"security_protocol": "sasl_ssl"}, NotSupported, "GSSAPI"),
        (
            {"security_protocol": "sasl_plaintext", "sasl_mechanisms": "SCRAM-SHA-256"},
            NotSupported,
            "SCRAM-SHA-256",
        ),
        (
            {"security_protocol": "ssl", "ssl_keystore_location": "a.p12"},
            NotSupported,
            "ssl.keystore.location",
        ),
        ({"security_protocol": "ssl", "ssl_ca_location": "/nowhere"}, Refused, "TLS settings"),
    ],
)
def test_what_cannot_be_kept_is_refused_before_anything_is_sent(
    settings: dict[str, str], kind: type[ClientError], said: str
) -> None:
    with listening() as listener, pytest.raises(kind, match=said):
        ask(listener, **settings)

    assert listener.asked == []


def test_nobody_there_is_said_as_everywhere() -> None:
    node = BrokerNode(node_id=1, host="127.0.0.1", port=1)

    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1"):
        list_transactions([node], {}, timeout_s=TIMEOUT_S)
