"""A connection to one broker as librdkafka's settings say: plain or TLS, with a login or without.

Owns a blocking socket and its frames. For the few requests that librdkafka does not offer; a way of
protecting a connection that is not known here is refused by name, never left out.
"""

import ssl
import struct
from socket import create_connection, socket
from typing import Any, Self

from millstream.client.errors import (
    ClientError,
    Denied,
    NotSupported,
    Refused,
    TimedOut,
    unreachable,
)
from millstream.client.models import BrokerNode

ANSWER_BYTES_MAX = 64 * 2**20
CLIENT_ID = b"millstream"
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36

# By what `security.protocol` may say: whether there is TLS, and whether there is a login.
PROTOCOLS = {
    "plaintext": (False, False),
    "ssl": (True, False),
    "sasl_plaintext": (False, True),
    "sasl_ssl": (True, True),
}
_UNKNOWN_HERE = (
    *("ssl.crl.location", "ssl.engine.location", "ssl.providers", "ssl.certificate.pem"),
    *("ssl.ca.certificate.stores", "ssl.key.pem", "ssl.keystore.location", "ssl.cipher.suites"),
)

# librdkafka's settings: text, numbers, truths and callbacks.
Config = dict[str, Any]


class Connection:
    """`with Connection(node, config, ...) as connection: connection.ask(...)`."""

    def __init__(self, node: BrokerNode, config: Config, *, doing: str, timeout_s: float) -> None:
        self._address = f"{node.host}:{node.port}"
        self._doing = doing
        protocol = str(config.get("security.protocol", "plaintext")).lower()
        if protocol not in PROTOCOLS:
            raise NotSupported(f"cannot {doing} over {protocol}: it is not known.")
        has_tls, has_login = PROTOCOLS[protocol]
        # Before anything is sent: what cannot be kept is refused.
        context = tls_context(config, doing) if has_tls else None
        words = plain_words(config, doing) if has_login else None
        try:
            self._socket: socket = create_connection((node.host, node.port), timeout=timeout_s)
            try:
                if context is not None:
                    self._socket = context.wrap_socket(self._socket, server_hostname=node.host)
                if words is not None:
                    self._log_in(words)
            except BaseException:
                self._socket.close()
                raise
        except ClientError:  # Some of ours are OSErrors.
            raise
        except OSError as problem:
            raise self._failure(problem) from problem

    def ask(self, api_key: int, version: int, body: bytes, *, is_flexible: bool = False) -> bytes:
        """One request and its answer, from behind the correlation id on."""
        header = struct.pack(">hhih", api_key, version, 1, len(CLIENT_ID)) + CLIENT_ID
        frame = header + (b"\0" if is_flexible else b"") + body  # The zero: no tagged fields.
        try:
            self._socket.sendall(struct.pack(">i", len(frame)) + frame)
            (size,) = struct.unpack(">i", self._exactly(4))
            if not 4 <= size <= ANSWER_BYTES_MAX:
                raise Refused(f"cannot {self._doing}: an answer of {size} bytes")
            return self._exactly(size)[4:]
        except OSError as problem:
            raise self._failure(problem) from problem

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def _log_in(self, words: bytes) -> None:
        mechanism = struct.pack(">h", len(b"PLAIN")) + b"PLAIN"
        answers = self.ask(SASL_HANDSHAKE, 1, mechanism)
        if answers[:2] == b"\0\0":
            answers = self.ask(SASL_AUTHENTICATE, 0, struct.pack(">i", len(words)) + words)
        if answers[:2] != b"\0\0":
            raise Denied(
                f"cannot {self._doing}: {self._address} does not take this user and password.",
                code="SASL_AUTHENTICATION_FAILED",
            )

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self._socket.recv(min(size - len(data), 65_536))
            if not piece:
                raise ConnectionError("the broker hung up; it may not serve this request")
            data += piece
        return bytes(data)

    def _failure(self, problem: OSError) -> ClientError:
        if isinstance(problem, TimeoutError):
            return TimedOut(f"cannot {self._doing}: no answer from {self._address}.")
        if isinstance(problem, ssl.SSLError):
            return Denied(f"cannot {self._doing}: TLS with {self._address} failed ({problem}).")
        return unreachable(self._address, self._doing, str(problem))


def tls_context(config: Config, doing: str) -> ssl.SSLContext:
    """What librdkafka would make of these settings."""
    for name in _UNKNOWN_HERE:
        if config.get(name):
            raise NotSupported(f"cannot {doing} with {name}: it is not supported here.")
    try:
        # "probe" is librdkafka's word for what the system trusts.
        location = config.get("ssl.ca.location")
        context = ssl.create_default_context(
            cafile=None if location in (None, "", "probe") else str(location),
            cadata=config.get("ssl.ca.pem"),
        )
        if certificate := config.get("ssl.certificate.location"):
            password = config.get("ssl.key.password")
            context.load_cert_chain(certificate, config.get("ssl.key.location"), password)
    except OSError as problem:
        raise Refused(
            f"cannot {doing}: a file of the TLS settings is of no use ({problem})"
        ) from None
    is_named = str(config.get("ssl.endpoint.identification.algorithm", "https")).lower() != "none"
    is_checked = str(config.get("enable.ssl.certificate.verification", True)).lower() != "false"
    context.check_hostname = is_named and is_checked
    context.verify_mode = ssl.CERT_REQUIRED if is_checked else ssl.CERT_NONE
    return context


def plain_words(config: Config, doing: str) -> bytes:
    """What SASL PLAIN says: nobody, the user, the password."""
    mechanism = config.get("sasl.mechanism", config.get("sasl.mechanisms", "GSSAPI"))
    if mechanism != "PLAIN":
        raise NotSupported(f"cannot {doing} with SASL {mechanism}: only PLAIN is supported here.")
    user, password = config.get("sasl.username", ""), config.get("sasl.password", "")
    return f"\0{user}\0{password}".encode()
