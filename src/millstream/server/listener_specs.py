"""The listeners of a configuration, each with its address, protocols and security.

Pure: refuses what cannot work, or would let the network in unasked, before a port is taken.
"""

from collections.abc import Iterator
from typing import NamedTuple

from millstream.config import Config
from millstream.engine.access.authentication import is_loopback
from millstream.errors import StartupError
from millstream.security.settings import ProtocolName, Tls, Transport, transport_of


class ListenerSpec(NamedTuple):
    name: str
    host: str
    port: int
    protocols: tuple[ProtocolName, ...]
    transport: Transport
    mechanisms: tuple[str, ...]
    tls: Tls
    advertised_host: str = ""
    advertised_port: int = 0
    flag: str = ""  # Of `millstream serve`, to choose another port.

    @property
    def authenticates(self) -> bool:
        """Whether it knows its clients, all or some of them."""
        return self.transport.has_sasl or (
            self.transport.is_tls and self.tls.client_certificates != "none"
        )

    @property
    def lets_anonymous_in(self) -> bool:
        has_certificates = self.transport.is_tls and self.tls.client_certificates == "required"
        return not (self.transport.has_sasl or has_certificates)

    @property
    def is_local(self) -> bool:
        return is_loopback(self.host)


def listener_specs(config: Config) -> list[ListenerSpec]:
    """All listeners, checked; raise `StartupError` with one sentence."""
    specs = list(_named(config) if config.listener else _flat(config))
    for spec in specs:
        _check(spec, config)
    return specs


def insecure(specs: list[ListenerSpec]) -> list[ListenerSpec]:
    """The listeners that the network reaches without a login."""
    return [spec for spec in specs if spec.lets_anonymous_in and not spec.is_local]


def _named(config: Config) -> Iterator[ListenerSpec]:
    for name, settings in config.listener.items():
        if not settings.protocols:
            raise StartupError(
                f'listener.{name}.protocols is empty: say which it serves, such as ["kafka"]'
            )
        yield ListenerSpec(
            name,
            settings.host or config.host,
            settings.port,
            settings.protocols,
            transport_of(settings.security or config.security.protocol),
            settings.mechanisms or config.security.mechanisms,
            settings.tls or config.tls,
            settings.advertised_host or config.advertised_host,
            settings.advertised_port or config.advertised_port,
        )


def _flat(config: Config) -> Iterator[ListenerSpec]:
    """Kafka and FlyMQ share a port; every other protocol has its own."""
    served = config.listeners
    shared = tuple(name for name in ("kafka", "flymq") if name in served)
    ports: list[tuple[str, int, tuple[ProtocolName, ...], str]] = [
        ("kafka", config.port, shared, "--port"),
        ("flux", config.port_of("flux"), ("flux",), "--flux-port"),
        ("classic", config.port_of("classic"), ("classic",), "--classic-port"),
        ("http", config.port_of("http"), ("http",), "--http-port"),
    ]
    for name, port, protocols, flag in ports:
        if protocols and all(protocol in served for protocol in protocols):
            yield ListenerSpec(
                name,
                config.host,
                port,
                protocols,
                transport_of(config.security.protocol),
                config.security.mechanisms,
                config.tls,
                config.advertised_host,
                config.advertised_port,
                flag,
            )


def _check(spec: ListenerSpec, config: Config) -> None:
    if spec.transport.is_tls and not (spec.tls.certificate and spec.tls.key):
        raise StartupError(
            f"listener {spec.name} has TLS and no certificate: set tls.certificate and tls.key, or "
            "make them for development with: millstream certs dev DIR"
        )
    if spec.transport.has_sasl and "OAUTHBEARER" in spec.mechanisms and not config.oauth.is_set:
        raise StartupError(
            "OAUTHBEARER needs oauth.jwks, oauth.issuer and oauth.audience: tokens that are not "
            "checked prove nothing"
        )
    several = set(spec.protocols) - {"kafka", "flymq"}
    if several and len(spec.protocols) > 1:
        raise StartupError(
            f"listener {spec.name} serves {', '.join(spec.protocols)}: only kafka and flymq share "
            "a port; give the others listeners of their own"
        )
    if spec.lets_anonymous_in and not spec.is_local and not config.security.allow_insecure_network:
        raise StartupError(
            f"host = {spec.host} would let the network in without a login: set security.protocol, "
            "or allow_insecure_network = true if that is meant"
        )
