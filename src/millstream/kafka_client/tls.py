"""TLS of a connection to a broker, loaded by the first that asks for it."""

import socket
import ssl
from tempfile import NamedTemporaryFile

from millstream.kafka_client.errors import TlsFailed
from millstream.kafka_client.settings import Tls


def tls_context(tls: Tls) -> ssl.SSLContext:
    """Raises `TlsFailed` for a file that is missing or is not PEM."""
    try:
        context = ssl.create_default_context(cafile=tls.ca_file, cadata=tls.ca_pem)
        if tls.certificate_file is not None:
            context.load_cert_chain(tls.certificate_file, tls.key_file, tls.key_password)
        if tls.certificate_pem is not None:
            # OpenSSL's reader of keys takes files only; this one is for us alone, and short-lived.
            with NamedTemporaryFile("w", suffix=".pem", encoding="utf-8") as file:
                file.write(tls.certificate_pem)
                file.flush()
                context.load_cert_chain(file.name, None, tls.key_password)
    except OSError as problem:
        files = [name for name in (tls.ca_file, tls.certificate_file, tls.key_file) if name]
        raise TlsFailed(
            f"a file of the TLS settings cannot be used ({', '.join(files)}): {problem}"
        ) from None
    context.check_hostname = tls.checks_hostname and tls.checks_certificate
    context.verify_mode = ssl.CERT_REQUIRED if tls.checks_certificate else ssl.CERT_NONE
    return context


def wrapped(
    plain: socket.socket, context: ssl.SSLContext, address: tuple[str, int]
) -> ssl.SSLSocket:
    """The same connection with TLS; closed if the handshake fails."""
    try:
        return context.wrap_socket(plain, server_hostname=address[0])
    except BaseException as problem:
        plain.close()
        raise tls_failure(address, problem) from None


def tls_failure(address: tuple[str, int], problem: BaseException) -> BaseException:
    """`TlsFailed` where a retry would fail as well; any other error as it is."""
    host, port = address
    if isinstance(problem, ssl.SSLCertVerificationError):
        reason = problem.verify_message
        return TlsFailed(f"the certificate of {host}:{port} is not trusted: {reason}")
    # An end of file is a broker that stopped, not one that refuses.
    if isinstance(problem, ssl.SSLError) and not isinstance(problem, ssl.SSLEOFError):
        return TlsFailed(f"TLS with {host}:{port} failed: {problem}")
    return problem
