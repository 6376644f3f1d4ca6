"""The checks of `millstream doctor` that concern security: keys, certificates, mechanisms.

Invariant: as in `probes`, a check never raises, and changes nothing. No password is sent.
"""

import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import click

from millstream.cli.connection import Target
from millstream.cli.doctor.findings import CONNECT_SECONDS_MAX, Finding
from millstream.cli.repair.data_keys import open_data_keys
from millstream.config import Config
from millstream.errors import MillstreamError
from millstream.kafka_wire.apis.security import SaslHandshakeRequest, SaslHandshakeResponse
from millstream.kafka_wire.apis.table import APIS
from millstream.kafka_wire.headers import RequestHeader, decode_response, encode_request

DAYS_LEFT_MIN = 30
_DAY_S = 86_400.0
# A TLS connection that has read 300 KB holds this much; see docs/security/tls.md.
BUSY_TLS_BYTES = 320 * 2**10
_GIB = 2**30
_SASL_HANDSHAKE = 17
_ANSWER_BYTES_MAX = 65_536
_UNKNOWN = "?"  # No mechanism: the answer lists those that there are, and no login begins.


def keys(config: Config) -> Iterator[Finding]:
    """Whether the root key opens the keyring of the data directory; nothing where none is."""
    path = Path(config.data_dir)
    try:
        opened = open_data_keys(path, config.encryption.key.reference)
    except click.ClickException as problem:
        advice = "Nothing is lost: set encryption.key to the key that the data was written with."
        yield Finding("encryption", "problem", problem.format_message(), advice)
        return
    if opened.reason:
        advice = "A broker does not start there without its key."
        yield Finding("encryption", "problem", opened.reason, advice)
    elif opened.keyring is not None:
        keyring = opened.keyring
        said = (
            f"the root key (check {keyring.check or 'unknown'}) opens {len(keyring.entries())} keys"
        )
        yield Finding("encryption", "ok", said)


def connections(config: Config) -> Iterator[Finding]:
    """The memory that busy connections with TLS may come to."""
    if not config.tls.is_set:
        return
    count = config.limits.connections_max
    size = count * BUSY_TLS_BYTES / _GIB
    said = f"{count} busy connections with TLS hold {size:.1f} GiB"
    yield Finding("TLS memory", "ok", said)


def certificate(host: str, port: int, target: Target) -> Finding:
    """Chain, name and dates of the certificate that the port shows, as a client checks them."""
    ca = target.settings.get("ssl.ca.location")
    try:
        context = ssl.create_default_context(cafile=ca)
    except OSError as problem:
        return Finding("certificate", "problem", f"ssl.ca.location = {ca}: {problem}")
    try:
        with (
            socket.create_connection((host, port), timeout=CONNECT_SECONDS_MAX) as plain,
            context.wrap_socket(plain, server_hostname=host) as secure,
        ):
            shown = secure.getpeercert() or {}
    except ssl.SSLCertVerificationError as problem:
        advice = "Set ssl.ca.location to the CA of the broker, and dial a name that it is for."
        return Finding("certificate", "problem", problem.verify_message, advice)
    except OSError as problem:
        return Finding("certificate", "problem", f"no handshake: {problem}")
    days = int((ssl.cert_time_to_seconds(str(shown["notAfter"])) - time.time()) / _DAY_S)
    said = f"is for {host}, signed by a CA that is known here, and ends in {days} days"
    if days < DAYS_LEFT_MIN:
        return Finding("certificate", "warning", said, "Replace it: the broker reads it anew.")
    return Finding("certificate", "ok", said)


def mechanisms(host: str, port: int, target: Target, *, is_tls: bool) -> Iterator[Finding]:
    """Whether the port takes logins as the client makes them; nothing if neither does."""
    protocol = target.settings.get("security.protocol", "").upper()
    offered = _offered(host, port, is_tls=is_tls)
    if not offered and not protocol.startswith("SASL"):
        return
    mechanism = target.settings.get("sasl.mechanism") or target.settings.get("sasl.mechanisms", "")
    listed = ", ".join(offered)
    if not offered:
        advice = "Leave SASL out of security.protocol, or use a port that asks for a login."
        yield Finding("login", "problem", "asked for, but the port takes none", advice)
    elif not protocol.startswith("SASL"):
        advice = "Set security.protocol to SASL_SSL or SASL_PLAINTEXT, sasl.mechanism and a user."
        yield Finding("login", "problem", f"the port asks for one: {listed}", advice)
    elif mechanism.upper() not in offered:
        advice = "Set sasl.mechanism to one of them; PLAIN needs TLS, or this machine."
        yield Finding("login", "problem", f"{mechanism or 'none'} is not among {listed}", advice)
    else:
        yield Finding("login", "ok", f"{mechanism.upper()}; the port takes {listed}")


def _offered(host: str, port: int, *, is_tls: bool) -> list[str]:
    """The mechanisms of a port; none if it takes no logins or does not answer."""
    api = APIS[_SASL_HANDSHAKE]
    header = RequestHeader(api.key, api.last, 1, "doctor")
    request = SaslHandshakeRequest(mechanism=_UNKNOWN)
    chunks = encode_request(header, request)
    sent = b"".join(chunk for chunk in chunks if isinstance(chunk, bytes | bytearray | memoryview))
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # `certificate` has checked it; nothing secret is sent.
    try:
        with socket.create_connection((host, port), timeout=CONNECT_SECONDS_MAX) as plain:
            stream = context.wrap_socket(plain, server_hostname=host) if is_tls else plain
            with stream:
                stream.sendall(sent)
                answer = _frame(stream)
        _, response = decode_response(api, api.last, answer)
    except (OSError, ValueError, MillstreamError):
        return []
    assert isinstance(response, SaslHandshakeResponse)
    return list(response.mechanisms or ())


def _frame(stream: socket.socket) -> bytes:
    with stream.makefile("rb") as reader:
        size = int.from_bytes(reader.read(4))
        if not 0 < size <= _ANSWER_BYTES_MAX:
            raise ValueError(f"an answer of {size} bytes")
        return reader.read(size)
