"""TLS and SASL in front of a broker that has neither: what a secured Kafka does before requests.

Plays the part of Kafka's SaslServerAuthenticator: one ApiVersions at most, a handshake, tokens;
anything else closes the connection. After the login, bytes pass in both directions.
"""

import socket
import ssl
import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from struct import Struct

from millstream.kafka_wire.apis.discovery import ApiVersionsRequest, ApiVersionsResponse
from millstream.kafka_wire.apis.security import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from millstream.kafka_wire.apis.table import APIS, advertised
from millstream.kafka_wire.headers import (
    RequestHeader,
    decode_request,
    decode_response,
    encode_response,
)
from millstream.kafka_wire.schema import Message
from tests.support.scram_server import ScramServer
from tests.support.sockets import receive_exactly

CERTIFICATE = Path(__file__).with_name("localhost.pem")  # For 127.0.0.1, with its key.
SASL_KEYS = (17, 36)
TIMEOUT_S = 60.0
ALGORITHMS = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_LENGTH = Struct(">i")


class Refusal(Exception):
    """The client broke the order of a login, or failed it."""


class SecureProxy:
    """Listens on 127.0.0.1 from the start; `broker` is set when the broker's port is known."""

    def __init__(self, users: dict[str, str], *, has_tls: bool = True) -> None:
        self.users = users
        self.broker: tuple[str, int] | None = None
        self.logins: list[tuple[str, str]] = []  # Mechanism and user of each.
        self._context = None
        if has_tls:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(CERTIFICATE)
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                stream, _ = self._server.accept()
                threading.Thread(target=self._serve, args=(stream,), daemon=True).start()

    def _serve(self, raw: socket.socket) -> None:
        assert self.broker is not None
        with suppress(OSError, Refusal), ExitStack() as stack:
            raw.settimeout(TIMEOUT_S)
            stack.callback(raw.close)
            client = raw
            if self._context is not None:
                client = stack.enter_context(self._context.wrap_socket(raw, server_side=True))
            broker = stack.enter_context(socket.create_connection(self.broker, TIMEOUT_S))
            self._log_in(client, broker)
            back = threading.Thread(target=_pump, args=(broker, client), daemon=True)
            back.start()
            _pump(client, broker)
            back.join()

    def _log_in(self, client: socket.socket, broker: socket.socket) -> None:
        frame = _frame(client)
        header, request = decode_request(frame, APIS)
        if isinstance(request, ApiVersionsRequest):
            broker.sendall(_LENGTH.pack(len(frame)) + frame)
            _, answer = decode_response(APIS[18], header.api_version, _frame(broker))
            assert isinstance(answer, ApiVersionsResponse)
            answer.api_keys += advertised(SASL_KEYS)
            _answer(client, header, answer)
            header, request = decode_request(_frame(client), APIS)
        if not isinstance(request, SaslHandshakeRequest):
            raise Refusal(f"{type(request).__name__} before a login")
        mechanism = request.mechanism
        is_known = mechanism == "PLAIN" or mechanism in ALGORITHMS
        mechanisms = ["PLAIN", *ALGORITHMS]
        code = 0 if is_known else 33
        _answer(client, header, SaslHandshakeResponse(error_code=code, mechanisms=mechanisms))
        user = self._plain(client) if mechanism == "PLAIN" else self._scram(client, mechanism)
        self.logins.append((mechanism, user))

    def _plain(self, client: socket.socket) -> str:
        header, token = _token(client)
        _, user, password = token.decode().split("\0")
        if self.users.get(user) != password:
            _fail(client, header)
        _answer(client, header, SaslAuthenticateResponse())
        return user

    def _scram(self, client: socket.socket, mechanism: str) -> str:
        server = ScramServer(ALGORITHMS[mechanism], self.users)
        while not server.is_done:
            header, token = _token(client)
            answer = server.reply(token)
            if answer is None:
                _fail(client, header)
                raise AssertionError
            _answer(client, header, SaslAuthenticateResponse(auth_bytes=answer))
        return server.user


def _token(client: socket.socket) -> tuple[RequestHeader, bytes]:
    header, request = decode_request(_frame(client), APIS)
    if not isinstance(request, SaslAuthenticateRequest):
        raise Refusal(f"{type(request).__name__} within a login")
    return header, bytes(request.auth_bytes)


def _fail(client: socket.socket, header: RequestHeader) -> None:
    reason = "Authentication failed during authentication due to invalid credentials"
    _answer(client, header, SaslAuthenticateResponse(error_code=58, error_message=reason))
    raise Refusal(reason)


def _answer(client: socket.socket, header: RequestHeader, response: Message) -> None:
    chunks = encode_response(header, response)
    client.sendall(b"".join(bytes(chunk) for chunk in chunks))  # type: ignore[arg-type]


def _frame(stream: socket.socket) -> bytes:
    (size,) = _LENGTH.unpack(receive_exactly(stream, _LENGTH.size))
    return receive_exactly(stream, size)


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(2**16):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
