"""Makes a CA and certificates for development and tests: ECDSA P-256, in PEM files.

Keys are readable by their owner only, and no file is ever overwritten. A CA for production is not
ours to be.
"""

import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from millstream.errors import StartupError
from millstream.names import node_name

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import Certificate, GeneralName, KeyUsage

ALWAYS_NAMED = ("localhost", "127.0.0.1", "::1")
SERVER_AUTH, CLIENT_AUTH = "1.3.6.1.5.5.7.3.1", "1.3.6.1.5.5.7.3.2"  # RFC 5280, 4.2.1.12.
_BEGINS_EARLIER = timedelta(hours=1)  # Clocks differ.


class Signer(NamedTuple):
    certificate: "Certificate"
    key: "EllipticCurvePrivateKey"


def make_dev_certificates(
    directory: Path,
    *,
    hosts: Sequence[str] = (),
    clients: Sequence[str] = (),
    nodes: Sequence[int] = (),
    days: int = 365,
) -> list[Path]:
    """Write ca.pem, server.pem, a PEM for each client and node, and their keys; return all files.

    A CA that is there already signs the others. Raises `StartupError` for a file that would be
    overwritten.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    made: list[Path] = []
    signer = _read_signer(directory)
    if signer is None:
        signer = _make("Millstream development CA", None, days=days)
        made += _write(directory, "ca", signer)
    if hosts or not (directory / "server.pem").exists():
        names = list(dict.fromkeys([*ALWAYS_NAMED, *hosts]))
        server = _make("localhost", signer, days=days, hosts=names, usages=(SERVER_AUTH,))
        made += _write(directory, "server", server)
    for client in clients:
        if not client or "/" in client or client in {"ca", "server"}:
            raise StartupError(f"{client!r} cannot be the name of a client")
        made += _write(directory, client, _make(client, signer, days=days, usages=(CLIENT_AUTH,)))
    for node in nodes:
        name = node_name(node)
        usages = (SERVER_AUTH, CLIENT_AUTH)  # A node accepts others, and dials them.
        made += _write(directory, name, _make(name, signer, days=days, hosts=[name], usages=usages))
    return made


def _make(
    name: str,
    signer: Signer | None,
    *,
    days: int,
    hosts: Sequence[str] = (),
    usages: Sequence[str] = (),
) -> Signer:
    """A key and its certificate; without a signer it is a CA that signs itself."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID, ObjectIdentifier

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    issuer = subject if signer is None else signer.certificate.subject
    signing_key = key if signer is None else signer.key
    now = datetime.now(UTC)
    is_ca = signer is None
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BEGINS_EARLIER)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=0 if is_ca else None), True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()), False
        )
        .add_extension(_key_usage(is_ca=is_ca), True)
    )
    if not is_ca:
        purposes = [ObjectIdentifier(usage) for usage in usages]
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), False)
    if hosts:
        alternatives = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
        builder = builder.add_extension(alternatives, False)
    return Signer(builder.sign(signing_key, hashes.SHA256()), key)


def _key_usage(*, is_ca: bool) -> "KeyUsage":
    from cryptography.x509 import KeyUsage

    return KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_ca,
        crl_sign=is_ca,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> "GeneralName":
    from cryptography.x509 import DNSName, IPAddress

    try:
        return IPAddress(ip_address(host))
    except ValueError:
        return DNSName(host)


def _read_signer(directory: Path) -> Signer | None:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from cryptography.x509 import load_pem_x509_certificate

    if not (directory / "ca.pem").exists():
        return None
    try:
        certificate = load_pem_x509_certificate((directory / "ca.pem").read_bytes())
        key = load_pem_private_key((directory / "ca.key").read_bytes(), None)
    except (OSError, ValueError) as problem:
        raise StartupError(f"cannot sign with the CA in {directory}: {problem}") from None
    assert isinstance(key, EllipticCurvePrivateKey)
    return Signer(certificate, key)


def _write(directory: Path, name: str, made: Signer) -> list[Path]:
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    key = made.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    parts = {".key": key, ".pem": made.certificate.public_bytes(Encoding.PEM)}
    paths = [directory / f"{name}{suffix}" for suffix in parts]
    for path, data in zip(paths, parts.values(), strict=True):
        try:
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        except FileExistsError:
            raise StartupError(f"{path} is there already: nothing is overwritten") from None
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
    return paths
