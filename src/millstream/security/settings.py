"""The tables of a node's configuration that secure it: `[security]`, `[oauth]`, `[tls]`,
`[peers]`, `[encryption]` and `[listener.NAME]`.

Owns their defaults and meanings, and refuses values that cannot work before anything is started.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias

from millstream.security.secrets import NO_KEY, NO_SECRET, KeySecret, Secret
from millstream.settings import setting, tables

ProtocolName: TypeAlias = Literal["kafka", "flymq", "flux", "classic", "http"]
Mechanism: TypeAlias = Literal["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "OAUTHBEARER"]
DEFAULT_MECHANISMS: tuple[Mechanism, ...] = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")

ITERATIONS_MIN, ITERATIONS_MAX = 4_096, 16_384  # As in Kafka.


class Transport(NamedTuple):
    """What a security protocol means: TLS below, a login above."""

    is_tls: bool
    has_sasl: bool

    @property
    def kafka_name(self) -> str:
        """As clients spell it in `security.protocol`."""
        words = ("SASL_" if self.has_sasl else "", "SSL" if self.is_tls else "PLAINTEXT")
        return "".join(words)


_TRANSPORTS = {
    "plaintext": Transport(False, False),
    "tls": Transport(True, False),
    "ssl": Transport(True, False),
    "sasl_plaintext": Transport(False, True),
    "sasl_tls": Transport(True, True),
    "sasl_ssl": Transport(True, True),
}
PROTOCOL_WORDS = "plaintext, tls, sasl_plaintext or sasl_tls"


def transport_of(protocol: str) -> Transport:
    """The meaning of a security protocol, in our spelling or Kafka's."""
    transport = _TRANSPORTS.get(protocol.lower())
    if transport is None:
        raise ValueError(f"{protocol!r} is not {PROTOCOL_WORDS}")
    return transport


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """Who may come in, and how it is proved."""

    protocol: str = setting(
        "plaintext",
        "How listeners are secured that say nothing else: `plaintext`, `tls`, `sasl_plaintext` or "
        "`sasl_tls`; Kafka's spellings, such as `SASL_SSL`, are taken too.",
    )
    mechanisms: tuple[Mechanism, ...] = setting(
        DEFAULT_MECHANISMS, "SASL mechanisms that are taken. `OAUTHBEARER` needs `[oauth]`."
    )
    clear_passwords: Literal["never", "loopback", "always"] = setting(
        "loopback", "Where passwords are taken that cross the network without TLS."
    )
    authorization: Literal["auto", "on", "off"] = setting(
        "auto", "Whether ACLs are asked. `auto`: once a listener authenticates its clients."
    )
    super_users: tuple[str, ...] = setting(
        (), "Principals that may do everything, such as `User:root` or `Role:ops`."
    )
    when_no_acl: Literal["deny", "allow"] = setting(
        "deny", "What holds for topics, groups and transactional ids that no ACL names."
    )
    admin_user: str = setting("admin", "The user that is made while there is none.")
    admin_password: Secret = setting(
        NO_SECRET,
        "Where its password is. Empty: a random one is written to `initial-admin-password` in "
        "the data directory.",
    )
    scram_iterations: int = setting(
        16_384, f"Iterations of new SCRAM credentials, {ITERATIONS_MIN} to {ITERATIONS_MAX}."
    )
    session_ms_max: int = setting(
        0, "After how long a Kafka client must log in again (KIP-368). 0: never."
    )
    failed_login_delay_ms: int = setting(
        100, "Wait before the answer to a failed login; it doubles with each failure."
    )
    failed_login_delay_ms_max: int = setting(10_000, "How long that wait grows.")
    stale_ms_max: int = setting(
        60_000,
        "How long a node may be without news of the control log before it denies all but super "
        "users.",
    )
    allow_insecure_network: bool = setting(
        False, "Whether a listener without a login may be reached from the network."
    )
    public_metrics: bool = setting(False, "Whether `/metrics` needs no login.")

    def __post_init__(self) -> None:
        _check_protocol("security.protocol", self.protocol)
        if not ITERATIONS_MIN <= self.scram_iterations <= ITERATIONS_MAX:
            raise ValueError(
                f"security.scram_iterations = {self.scram_iterations} is not in {ITERATIONS_MIN} "
                f"to {ITERATIONS_MAX}"
            )
        if not self.mechanisms:
            raise ValueError("security.mechanisms is empty: no client could log in")
        for principal in self.super_users:
            kind, colon, name = principal.partition(":")
            if not (colon and name and kind in {"User", "Role"}):
                raise ValueError(f"security.super_users: {principal!r} is not User:… or Role:…")
        for name in ("session_ms_max", "failed_login_delay_ms", "failed_login_delay_ms_max"):
            if getattr(self, name) < 0:
                raise ValueError(f"security.{name} = {getattr(self, name)} is negative")


def authorizes(security: Security, tls: "Tls", listeners: "Mapping[str, ListenerSettings]") -> bool:
    """Whether rights are asked for: as configured, or once some listener knows its clients."""
    if security.authorization != "auto":
        return security.authorization == "on"
    if not listeners:
        return _authenticates(security.protocol, tls)
    return any(
        _authenticates(listener.security or security.protocol, listener.tls or tls)
        for listener in listeners.values()
    )


def _authenticates(protocol: str, tls: "Tls") -> bool:
    transport = transport_of(protocol)
    return transport.has_sasl or (transport.is_tls and tls.client_certificates != "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuth:
    """Tokens of an identity provider, for OAUTHBEARER and HTTP's Bearer."""

    jwks: str = setting("", "Keys of the issuer: `file:PATH` or an `https:` address.")
    issuer: str = setting("", "The `iss` that tokens must have.")
    audience: str = setting("", "The `aud` that tokens must have among theirs.")
    principal_claim: str = setting("sub", "The claim that names the user.")
    principal_prefix: str = setting("", "Text before that name, to keep it apart from other users.")
    roles_claim: str = setting("", "The claim that names roles, a text or a list. Empty: none.")
    leeway_ms: int = setting(30_000, "How far clocks may differ.")
    jwks_refresh_ms: int = setting(3_600_000, "How old the keys may grow before they are read.")
    token_ms_max: int = setting(86_400_000, "How long a token may live.")

    @property
    def is_set(self) -> bool:
        return bool(self.jwks or self.issuer or self.audience)

    def __post_init__(self) -> None:
        if not self.is_set:
            return
        for name in ("jwks", "issuer", "audience"):
            if not getattr(self, name):
                raise ValueError(
                    f"oauth.{name} is missing: tokens are taken only from a known issuer, for a "
                    "known audience, signed with a known key"
                )
        if not self.jwks.startswith(("file:", "https://", "http://")):
            raise ValueError("oauth.jwks must be file:PATH or an https: address")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A certificate chain and its key, for one name."""

    certificate: str = setting("", "PEM file with the certificate and its chain.")
    key: str = setting("", "PEM file with its key.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """Certificates of listeners with TLS, and what is asked of clients."""

    certificate: str = setting("", "PEM file with the certificate and its chain.")
    key: str = setting("", "PEM file with its key; only its owner may read it.")
    key_password: Secret = setting(NO_SECRET, "Where the password of the key is.")
    client_ca: str = setting("", "PEM file with the CAs of client certificates.")
    client_crl: str = setting("", "PEM file with their revocation lists.")
    client_certificates: Literal["none", "requested", "required"] = setting(
        "none", "Whether clients show certificates."
    )
    version_min: Literal["1.2", "1.3"] = setting("1.2", "The lowest version of TLS.")
    ciphers: str = setting("", "Ciphers of TLS 1.2, in OpenSSL's spelling. Empty: good ones.")
    principal_rules: str = setting(
        "DEFAULT",
        "How the name in a client certificate becomes a user: `RULE:pattern/replacement/[LU]`, "
        "separated by commas; the first that matches counts. `DEFAULT` keeps the name.",
    )
    reload_ms: int = setting(10_000, "How often the files are looked at. 0: on SIGHUP only.")
    sni: Mapping[str, Pair] = tables(Pair, "Certificates for other names that clients ask for.")

    @property
    def is_set(self) -> bool:
        return bool(self.certificate or self.key)

    def __post_init__(self) -> None:
        if self.client_certificates != "none" and not self.client_ca:
            raise ValueError(
                f'tls.client_certificates = "{self.client_certificates}" needs tls.client_ca'
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSettings:
    """A listener by name. If there is any, `host`, `port`, `flux_port` and so on have no effect."""

    host: str = setting("", "The address it binds to. Empty: `host`.")
    port: int = setting(0, "Its port. 0: a free one.")
    protocols: tuple[ProtocolName, ...] = setting((), "The protocols that it serves.")
    security: str = setting("", "How it is secured. Empty: as `security.protocol` says.")
    mechanisms: tuple[Mechanism, ...] = setting(
        (), "SASL mechanisms that it takes. Empty: those of `[security]`."
    )
    advertised_host: str = setting(
        "", "The address that its clients are sent to. Empty: the one that they dialled."
    )
    advertised_port: int = setting(
        0, "The port that its clients are sent to. 0: the one that they dialled."
    )
    tls: Tls | None = field(default=None)

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ValueError(f"port = {self.port} of a listener is not in 0 to 65535")
        if self.security:
            _check_protocol("security of a listener", self.security)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peers:
    """The other nodes of the cluster: how they prove themselves, and where they are."""

    certificate: str = setting(
        "",
        "PEM file with the certificate of this node and its chain; it names `node-ID`. With one, "
        "nodes talk to each other by mutual TLS only.",
    )
    key: str = setting("", "PEM file with its key; only its owner may read it.")
    key_password: Secret = setting(NO_SECRET, "Where the password of the key is.")
    ca: str = setting("", "PEM file with the CA that signs the certificates of all nodes.")
    reload_ms: int = setting(10_000, "How often the files are looked at. 0: never.")
    addresses: tuple[str, ...] = setting(
        (), "Where this node reaches others instead of at their `peer_address`: `ID=HOST:PORT`."
    )

    @property
    def has_tls(self) -> bool:
        return bool(self.certificate)

    @property
    def address_by_node(self) -> dict[int, str]:
        """`addresses`, read; raises `ValueError`."""
        texts = [text.partition("=") for text in self.addresses]
        for node, _, address in texts:
            host, _, port = address.rpartition(":")
            if not (node.isdecimal() and host and port.isdecimal() and int(port) <= 65535):
                raise ValueError(f"peers.addresses: '{node}={address}' is not ID=HOST:PORT")
        return {int(node): address for node, _, address in texts}

    def __post_init__(self) -> None:
        files = {"certificate": self.certificate, "key": self.key, "ca": self.ca}
        missing = [f"peers.{name}" for name, path in files.items() if not path]
        if missing and len(missing) < len(files):
            raise ValueError(
                f"{' and '.join(missing)} is missing: nodes need a certificate, its key and the CA "
                "of all nodes"
            )
        if self.reload_ms < 0:
            raise ValueError(f"peers.reload_ms = {self.reload_ms} is negative")
        _ = self.address_by_node


@dataclass(frozen=True, slots=True, kw_only=True)
class Encryption:
    """Encryption of records on disk, with AES-256-GCM."""

    mode: Literal["off", "on", "read"] = setting(
        "off",
        "`on`: what is written is encrypted. `read`: encrypted records are read, new ones are "
        "written in clear.",
    )
    key: KeySecret = setting(
        NO_KEY,
        "Where the root key is, 32 bytes: `file:PATH`, `env:NAME`, `command:PROGRAM`, or "
        "`kms:PROGRAM`, which wraps and unwraps the master key.",
    )
    key_name: str = setting("main", "How messages call the root key.")
    old_key: KeySecret = setting(
        NO_KEY, "The root key before `key`, until `millstream encryption rotate --root`."
    )

    @property
    def is_on(self) -> bool:
        return self.mode != "off"

    def __post_init__(self) -> None:
        if self.is_on and not self.key:
            raise ValueError(
                f'encryption.mode = "{self.mode}" needs encryption.key; make one with: millstream '
                "encryption key FILE"
            )
        if not 1 <= len(self.key_name) <= 100 or not self.key_name.isprintable():
            raise ValueError("encryption.key_name must have 1 to 100 printable characters")


NO_LISTENERS: Mapping[str, ListenerSettings] = MappingProxyType({})


def _check_protocol(key: str, protocol: str) -> None:
    try:
        transport_of(protocol)
    except ValueError as problem:
        raise ValueError(f"{key} = {problem}") from None
