"""TLS contexts of listeners and peer links, made from PEM files, and anew when the files change.

Connections keep the certificate they began with. Files that do not load or do not fit are named in
the log, and the old certificate stays. Session tickets are off where clients show certificates: a
resumed session must never carry a certificate that this context would not take (CVE-2025-23419).
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from millstream.errors import StartupError
from millstream.names import node_name
from millstream.ports import Secrets, Threads
from millstream.security.settings import Peers, Tls
from millstream.server.system.secrets import check_private

_log = logging.getLogger(__name__)

_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20:!aNULL:@SECLEVEL=2"
_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}

# The times and sizes of all files: if they are equal, nothing has changed.
_Stamp = tuple[tuple[str, int, int], ...]


class TlsContexts:
    """`context` is for new connections."""

    def __init__(
        self,
        listener: str,
        settings: Tls,
        secrets: Secrets,
        protocols: tuple[str, ...] = (),
        *,
        is_dialler: bool = False,
    ) -> None:
        """`protocols` are offered by ALPN. Raises `StartupError` with one sentence."""
        self.listener = listener
        self._is_dialler = is_dialler
        self.problem = ""  # Why the last certificates were not taken.
        self.kept_count = 0  # How often that was so.
        self._settings = settings
        self._secrets = secrets
        self._protocols = protocols
        self._ends_at: list[datetime] = []
        self._stamp = self._look()
        self.context = self._make()

    @property
    def reload_ms(self) -> int:
        return self._settings.reload_ms

    def ends_s(self) -> float:
        """Seconds until the first of its certificates ends."""
        return min(self._ends_at, default=datetime.max.replace(tzinfo=UTC)).timestamp() - (
            datetime.now(UTC).timestamp()
        )

    def reload(self, *, is_forced: bool = False) -> bool:
        """Follow changed files; return whether there is another certificate. Blocks."""
        try:
            stamp = self._look()
            if stamp == self._stamp and not is_forced:
                return False
            self._stamp = stamp
            self.context = self._make()
        except StartupError as problem:
            _log.error("kept the old certificate: %s", problem)
            self.problem = str(problem)
            self.kept_count += 1
            return False
        _log.info("took a new certificate listener=%s", self.listener)
        self.problem = ""
        return True

    def _look(self) -> _Stamp:
        settings = self._settings
        paths = [settings.certificate, settings.key, settings.client_ca, settings.client_crl]
        for pair in settings.sni.values():
            paths += [pair.certificate, pair.key]
        stamps = []
        for path in filter(None, paths):
            try:
                status = Path(path).stat()
            except OSError as problem:
                raise StartupError(f"cannot read {path}: {problem.strerror}") from None
            stamps.append((path, status.st_mtime_ns, status.st_size))
        return tuple(stamps)

    def _make(self) -> ssl.SSLContext:
        settings = self._settings
        self._ends_at.clear()
        context = self._load(settings.certificate, settings.key)
        others = {
            name.lower(): self._load(pair.certificate, pair.key)
            for name, pair in settings.sni.items()
        }
        if others:
            context.sni_callback = _choose(others)
        return context

    def _load(self, certificate: str, key: str) -> ssl.SSLContext:
        settings = self._settings
        if self._is_dialler:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False  # The greeting compares the name with the node.
        else:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = _VERSIONS[settings.version_min]
        context.options |= (
            ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
        )
        try:
            context.set_ciphers(settings.ciphers or _CIPHERS)
        except ssl.SSLError:
            raise StartupError(f"tls.ciphers = {settings.ciphers!r}: no such cipher") from None
        if self._protocols:
            context.set_alpn_protocols(list(self._protocols))
        try:
            check_private(key)
            context.load_cert_chain(certificate, key, self._password)
        except ssl.SSLError as problem:
            raise StartupError(_explain(certificate, key, problem)) from None
        except OSError as problem:
            raise StartupError(f"cannot read {key} or {certificate}: {problem}") from None
        self._ends_at.append(check_dates(certificate))
        if settings.client_certificates != "none":
            self._ask_clients(context)
        return context

    def _password(self) -> bytes:
        secret = self._settings.key_password
        # OpenSSL asks only for a key that has one; an empty answer is a wrong one.
        return self._secrets.read(secret) if secret else b""

    def _ask_clients(self, context: ssl.SSLContext) -> None:
        settings = self._settings
        is_required = settings.client_certificates == "required"
        context.verify_mode = ssl.CERT_REQUIRED if is_required else ssl.CERT_OPTIONAL
        if not self._is_dialler:
            context.num_tickets = 0
        context.options |= ssl.OP_NO_TICKET
        for path in filter(None, [settings.client_ca, settings.client_crl]):
            try:
                context.load_verify_locations(path)
            except (OSError, ssl.SSLError) as problem:
                raise StartupError(f"cannot read {path}: {problem}") from None
        if settings.client_crl:
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


class PeerTls:
    """The contexts of a node's peer links: both sides show a certificate of the cluster's CA."""

    def __init__(self, settings: Peers, node: int, secrets: Secrets, threads: Threads) -> None:
        """Raises `StartupError` with one sentence. Blocks."""
        self._threads = threads
        self._reload_ms = settings.reload_ms
        tls = Tls(
            certificate=settings.certificate,
            key=settings.key,
            key_password=settings.key_password,
            client_ca=settings.ca,
            client_certificates="required",
            version_min="1.3",
        )
        self._accepting = TlsContexts("peers", tls, secrets)
        self._dialling = TlsContexts("peers", tls, secrets, is_dialler=True)
        _check_node_name(settings.certificate, node)

    @property
    def accepting(self) -> ssl.SSLContext:
        return self._accepting.context

    @property
    def dialling(self) -> ssl.SSLContext:
        return self._dialling.context

    async def follow(self) -> None:
        """Take changed files for new connections, until cancelled."""
        while self._reload_ms:
            await asyncio.sleep(self._reload_ms / 1000)
            await self._threads.run(self._reload)

    def _reload(self) -> None:
        for contexts in (self._accepting, self._dialling):
            contexts.reload()


def certified_names(transport: asyncio.BaseTransport) -> frozenset[str] | None:
    """The DNS names in the certificate of the other side; None without TLS."""
    if transport.get_extra_info("ssl_object") is None:
        return None
    certificate = transport.get_extra_info("peercert") or {}
    names = certificate.get("subjectAltName", ())
    return frozenset(name for kind, name in names if kind == "DNS")


def _check_node_name(certificate: str, node: int) -> None:
    from cryptography.x509 import (
        DNSName,
        ExtensionNotFound,
        SubjectAlternativeName,
        load_pem_x509_certificate,
    )

    loaded = load_pem_x509_certificate(Path(certificate).read_bytes())
    try:
        extension = loaded.extensions.get_extension_for_class(SubjectAlternativeName)
        names = extension.value.get_values_for_type(DNSName)
    except ExtensionNotFound:
        names = []
    if (name := node_name(node)) not in names:
        raise StartupError(
            f"the certificate {certificate} names {', '.join(names) or 'nothing'}, and this is "
            f"node {node}: peers.certificate must name {name}"
        )


def check_dates(certificate: str) -> datetime:
    """When a certificate ends; raise `StartupError` for one that has ended or not begun."""
    from cryptography.x509 import load_pem_x509_certificate

    try:
        loaded = load_pem_x509_certificate(Path(certificate).read_bytes())
    except (OSError, ValueError) as problem:
        raise StartupError(f"{certificate} is no certificate: {problem}") from None
    now = datetime.now(UTC)
    if now > loaded.not_valid_after_utc:
        raise StartupError(f"the certificate {certificate} ended {loaded.not_valid_after_utc:%F}")
    if now < loaded.not_valid_before_utc:
        raise StartupError(f"the certificate {certificate} begins {loaded.not_valid_before_utc:%F}")
    return loaded.not_valid_after_utc


def _choose(
    others: dict[str, ssl.SSLContext],
) -> Callable[[ssl.SSLObject, str | None, ssl.SSLContext], None]:
    def choose(connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        context = others.get((name or "").lower())
        if context is not None:  # Unknown names get the default certificate.
            connection.context = context

    return choose


def _explain(certificate: str, key: str, problem: ssl.SSLError) -> str:
    if problem.reason == "KEY_VALUES_MISMATCH":
        return f"the key {key} does not fit the certificate {certificate}"
    words = str(problem.reason or problem).lower().replace("_", " ")
    return f"cannot load {certificate} and {key}: {words}"
