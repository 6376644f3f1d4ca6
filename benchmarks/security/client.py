"""One connection that logs in, and then sends frames that were encoded beforehand."""

import hashlib
import socket
import ssl
from functools import lru_cache
from pathlib import Path

from benchmarks.hot_path import Client
from benchmarks.kafka.peers import HOST
from benchmarks.security.peers import PASSWORD, USER, Variant
from millstream.kafka_client.sasl import plain, scram
from millstream.kafka_wire.apis.security import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
)
from millstream.kafka_wire.apis.table import APIS
from millstream.kafka_wire.headers import RequestHeader, decode_response, encode_request
from millstream.kafka_wire.schema import Message

HANDSHAKE, AUTHENTICATE = 17, 36
VERSION = 1  # Of both requests.
NONCE = "benchmark-nonce-0001"


class SecuredClient(Client):
    def __init__(self, port: int, variant: Variant, ca: Path, mechanism: str = "PLAIN") -> None:
        super().__init__(port)
        if variant.is_tls:
            context = ssl.create_default_context(cafile=str(ca))
            self._socket = context.wrap_socket(self._socket, server_hostname="localhost")
        if variant.has_sasl:
            self._log_in(mechanism)

    def _log_in(self, mechanism: str) -> None:
        self._ask(HANDSHAKE, SaslHandshakeRequest(mechanism=mechanism))
        tokens = (
            plain(USER, PASSWORD)
            if mechanism == "PLAIN"
            else scram("sha256", USER, PASSWORD, nonce=NONCE)
        )
        token = next(tokens)
        while True:
            answer = self._ask(AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=token))
            assert isinstance(answer, SaslAuthenticateResponse)
            assert answer.error_code == 0, answer.error_message
            try:
                token = tokens.send(bytes(answer.auth_bytes))
            except StopIteration:
                return

    def _ask(self, key: int, request: Message) -> Message:
        header = RequestHeader(key, VERSION, 7, "bench")
        self.send(b"".join(bytes(part) for part in encode_request(header, request)))  # type: ignore[arg-type]
        return decode_response(APIS[key], VERSION, bytes(self.reply()))[1]


def remember_hashes() -> None:
    """Hash each password once in this process: only the broker's cost is to be measured."""
    hashlib.pbkdf2_hmac = lru_cache(hashlib.pbkdf2_hmac)  # type: ignore[assignment]


def idle_sockets(port: int, count: int, ca: Path) -> list[ssl.SSLSocket]:
    """TLS connections that have said nothing else."""
    context = ssl.create_default_context(cafile=str(ca))
    return [
        context.wrap_socket(socket.create_connection((HOST, port)), server_hostname="localhost")
        for _ in range(count)
    ]
