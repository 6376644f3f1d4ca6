"""`millstream certs`: a CA for development, and a look at certificates before brokers use them."""

import os
import signal
import stat
from pathlib import Path

import click

from millstream.cli.render import Answer, CommandGroup, Refused, answered, fields, rows


@click.group(cls=CommandGroup)
def certs() -> None:
    """Make certificates for development, show them and check them."""


@certs.command()
@click.argument("directory", metavar="DIR")
@click.option("--host", "hosts", multiple=True, metavar="NAME|IP", help="A name of the broker.")
@click.option("--client", "clients", multiple=True, metavar="NAME", help="A client certificate.")
@click.option("--node", "nodes", multiple=True, type=int, help="A node of a cluster: node-ID.pem.")
@click.option("--days", default=365, show_default=True, help="How long they are valid.")
@answered
def dev(
    directory: str,
    hosts: tuple[str, ...],
    clients: tuple[str, ...],
    nodes: tuple[int, ...],
    days: int,
) -> Answer:
    """Make ca.pem, server.pem and their keys in DIR. For development: keep no such CA.

    The server's names are localhost, 127.0.0.1, ::1 and those given. A CA that is there already
    signs what is added; nothing is overwritten.
    """
    from millstream.server.system.dev_certificates import make_dev_certificates

    made = make_dev_certificates(
        Path(directory), hosts=hosts, clients=clients, nodes=nodes, days=days
    )
    files = [str(path) for path in made]
    return Answer({"made": files}, "made " + ", ".join(files) if files else "nothing to make")


@certs.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@answered
def show(files: tuple[str, ...]) -> Answer:
    """Show subject, issuer, names and dates of certificates."""
    return rows([_shown(file) for file in files], nothing="")


@certs.command()
@click.argument("certificate")
@click.argument("key")
@click.option("--ca", metavar="FILE", help="The CA that clients trust.")
@answered
def check(certificate: str, key: str, ca: str | None) -> Answer:
    """Check that key and certificate fit, their dates, who can read the key, and the chain."""
    from millstream.security.settings import Tls
    from millstream.server.system.secrets import SystemSecrets
    from millstream.server.system.tls import TlsContexts

    TlsContexts("check", Tls(certificate=certificate, key=key), SystemSecrets())
    shown = _shown(certificate)
    if ca is not None:
        _check_chain(certificate, ca)
        shown["chain"] = f"signed by {ca}"
    mode = stat.S_IMODE(Path(key).stat().st_mode)
    return fields({**shown, "key_mode": f"{mode:04o}", "fits": True})


@certs.command()
@click.argument("pid", type=int)
@answered
def reload(pid: int) -> Answer:
    """Have the broker of that process id read its certificates anew (SIGHUP)."""
    try:
        os.kill(pid, signal.SIGHUP)
    except OSError as problem:
        raise Refused(f"cannot signal process {pid}: {problem.strerror}") from None
    return Answer({"signalled": pid}, f"process {pid} reads its certificates; its log says more")


def _shown(file: str) -> dict[str, object]:
    from cryptography.hazmat.primitives.serialization import Encoding
    from cryptography.x509 import (
        ExtensionNotFound,
        SubjectAlternativeName,
        load_pem_x509_certificate,
    )

    from millstream.security.principals import distinguished_name

    try:
        certificate = load_pem_x509_certificate(Path(file).read_bytes())
    except (OSError, ValueError) as problem:
        raise Refused(f"{file} is no certificate: {problem}") from None
    try:
        names = certificate.extensions.get_extension_for_class(SubjectAlternativeName).value
        alternatives = [str(name.value) for name in names]
    except ExtensionNotFound:
        alternatives = []
    return {
        "file": file,
        "subject": distinguished_name(certificate.public_bytes(Encoding.DER)),
        "issuer": certificate.issuer.rfc4514_string(),
        "names": alternatives,
        "from": f"{certificate.not_valid_before_utc:%Y-%m-%d}",
        "until": f"{certificate.not_valid_after_utc:%Y-%m-%d}",
    }


def _check_chain(certificate: str, ca: str) -> None:
    from cryptography.exceptions import InvalidSignature
    from cryptography.x509 import load_pem_x509_certificate, load_pem_x509_certificates

    try:
        leaf = load_pem_x509_certificate(Path(certificate).read_bytes())
        authorities = load_pem_x509_certificates(Path(ca).read_bytes())
    except (OSError, ValueError) as problem:
        raise Refused(f"cannot read {certificate} or {ca}: {problem}") from None
    for authority in authorities:
        try:
            leaf.verify_directly_issued_by(authority)
            return
        except (InvalidSignature, ValueError, TypeError):
            continue
    raise Refused(f"{certificate} was not signed by {ca}")
