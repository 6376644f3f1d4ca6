"""Reads the `kafka.*` options for connections, under the names of Kafka's consumer.

Pure. Owns the names, defaults and error messages. Invariant: a setting that is not supported is
refused by name, because a setting that is accepted and ignored is worse than an error.
"""

import difflib
import re
from collections.abc import Mapping

from millstream.kafka_client.sasl import MECHANISMS
from millstream.kafka_client.settings import ClientSettings, Credentials, Tls
from millstream.model import Isolation
from millstream.spark.errors import InvalidOption

PREFIX = "kafka."
SOFTWARE_NAME = "millstream-spark"
LIKENESS_MIN = 0.75  # Of an unknown name to the one that is proposed instead, from 0 to 1.

_ISOLATIONS = {level.name.lower(): level for level in Isolation}
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_JAAS = re.compile(r'(?P<name>username|password)\s*=\s*"(?P<value>(?:[^"\\]|\\.)*)"')


# Names that Spark's connector refuses, and the reasons.
_REFUSED = {
    "auto.offset.reset": "where a query starts is said by startingOffsets",
    "enable.auto.commit": "Spark decides when offsets are committed",
    "interceptor.classes": "interceptors are Java classes and may change what Spark counts",
    "key.deserializer": "keys are bytes; deserialize them with DataFrame operations",
    "value.deserializer": "values are bytes; use valueFormat or DataFrame operations",
}
_NUMBERS = {
    "max.partition.fetch.bytes": "fetch_bytes",
    "fetch.max.wait.ms": "fetch_wait_ms",
    "request.timeout.ms": "request_ms_max",
    "default.api.timeout.ms": "patience_ms",
    "retry.backoff.ms": "backoff_ms",
}
_TLS_NAMES = {
    "ssl.ca.location": "ca_file",
    "ssl.truststore.location": "ca_file",
    "ssl.certificate.location": "certificate_file",
    "ssl.keystore.location": "certificate_file",
    "ssl.key.location": "key_file",
    "ssl.key.password": "key_password",
}
_OTHERS = (
    "bootstrap.servers",
    "client.id",
    "group.id",
    "isolation.level",
    "security.protocol",
    "sasl.mechanism",
    "sasl.jaas.config",
    "sasl.username",
    "sasl.password",
    "ssl.truststore.type",
    "ssl.keystore.type",
    "ssl.endpoint.identification.algorithm",
)
KNOWN = frozenset((*_NUMBERS, *_TLS_NAMES, *_OTHERS))


def client_settings(options: Mapping[str, str], *, client_id: str) -> ClientSettings:
    """Read the `kafka.*` options out of all options, whose names are in lower case."""
    settings = {
        name.removeprefix(PREFIX): text.strip()
        for name, text in options.items()
        if name.startswith(PREFIX)
    }
    for name in settings:
        _check_name(name)
    if not settings.get("bootstrap.servers"):
        raise InvalidOption("option kafka.bootstrap.servers must be specified: host:port,...")
    isolation = settings.get("isolation.level", Isolation.READ_COMMITTED.name).lower()
    if isolation not in _ISOLATIONS:
        raise InvalidOption(
            f"kafka.isolation.level is {isolation!r}, expected one of {', '.join(_ISOLATIONS)}"
        )
    protocol = settings.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        raise InvalidOption(
            f"kafka.security.protocol is {protocol!r}, expected one of {', '.join(_PROTOCOLS)}"
        )
    numbers = {
        where: positive(f"kafka.{name}", settings[name])
        for name, where in _NUMBERS.items()
        if name in settings
    }
    return ClientSettings(
        bootstrap=_addresses(settings["bootstrap.servers"]),
        client_id=settings.get("client.id", client_id),
        software_name=SOFTWARE_NAME,
        isolation=_ISOLATIONS[isolation],
        tls=_tls(settings, is_on=protocol.endswith("SSL")),
        credentials=_credentials(settings, is_on=protocol.startswith("SASL")),
        **numbers,
    )


def positive(name: str, text: str) -> int:
    """Read a whole number above zero."""
    try:
        number = int(text)
    except ValueError:
        raise InvalidOption(f"{name} is {text!r}, expected a whole number") from None
    if number <= 0:
        raise InvalidOption(f"{name} is {number}, it must be positive")
    return number


def nearest(name: str, names: list[str] | tuple[str, ...]) -> str:
    """The end of a sentence about an unknown name: what may have been meant."""
    # Compared without the prefix, which would make any two Kafka settings alike.
    by_word = {known.lower().removeprefix(PREFIX): known for known in names}
    word = name.lower().removeprefix(PREFIX)
    close = difflib.get_close_matches(word, by_word, n=1, cutoff=LIKENESS_MIN)
    return f"did you mean {by_word[close[0]]}?" if close else f"there are {', '.join(names)}"


def _check_name(name: str) -> None:
    if name in _REFUSED:
        raise InvalidOption(f"option {PREFIX}{name} is not supported: {_REFUSED[name]}")
    if name not in KNOWN:
        raise InvalidOption(
            f"option {PREFIX}{name} has no effect in this source and is refused rather than "
            f"ignored; {nearest(PREFIX + name, sorted(PREFIX + known for known in KNOWN))}"
        )


def _addresses(text: str) -> tuple[tuple[str, int], ...]:
    addresses = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        # Listeners may be written with their protocol, as in Kafka's own configuration.
        host, colon, port = part.rpartition("://")[2].rpartition(":")
        if not colon or not host or not port.isdecimal():
            raise InvalidOption(f"kafka.bootstrap.servers has {part!r}, expected host:port")
        addresses.append((host.strip("[]"), int(port)))
    if not addresses:
        raise InvalidOption(f"kafka.bootstrap.servers is {text!r}, expected host:port,...")
    return tuple(addresses)


def _tls(settings: Mapping[str, str], *, is_on: bool) -> Tls | None:
    ssl_names = [name for name in settings if name.startswith("ssl.")]
    if not is_on:
        if ssl_names:
            raise InvalidOption(
                f"kafka.{ssl_names[0]} is set, but kafka.security.protocol is not SSL or SASL_SSL"
            )
        return None
    for name in ("ssl.truststore.type", "ssl.keystore.type"):
        if settings.get(name, "PEM").upper() != "PEM":
            raise InvalidOption(
                f"kafka.{name} is {settings[name]!r}; only PEM can be read without Java: convert "
                "the store with keytool and openssl"
            )
    for name in ssl_names:
        if settings[name].lower().endswith((".jks", ".p12", ".pfx")):
            raise InvalidOption(f"kafka.{name} names a Java key store; only PEM files can be read")
    algorithm = settings.get("ssl.endpoint.identification.algorithm", "https").lower()
    if algorithm not in ("https", ""):
        raise InvalidOption(
            f"kafka.ssl.endpoint.identification.algorithm is {algorithm!r}, expected https or empty"
        )
    files = {where: settings[name] for name, where in _TLS_NAMES.items() if name in settings}
    return Tls(
        ca_file=files.get("ca_file"),
        certificate_file=files.get("certificate_file"),
        key_file=files.get("key_file"),
        key_password=files.get("key_password"),
        checks_hostname=algorithm == "https",
    )


def _credentials(settings: Mapping[str, str], *, is_on: bool) -> Credentials | None:
    sasl_names = [name for name in settings if name.startswith("sasl.")]
    if not is_on:
        if sasl_names:
            raise InvalidOption(
                f"kafka.{sasl_names[0]} is set, but kafka.security.protocol is not SASL_*"
            )
        return None
    mechanism = settings.get("sasl.mechanism", "GSSAPI").upper()
    if mechanism not in MECHANISMS:
        raise InvalidOption(
            f"kafka.sasl.mechanism is {mechanism!r}; supported are {', '.join(MECHANISMS)}"
        )
    jaas = {
        field["name"]: re.sub(r"\\(.)", r"\1", field["value"])
        for field in _JAAS.finditer(settings.get("sasl.jaas.config", ""))
    }
    username = settings.get("sasl.username", jaas.get("username"))
    password = settings.get("sasl.password", jaas.get("password"))
    if username is None or password is None:
        raise InvalidOption(
            f"SASL {mechanism} needs kafka.sasl.username and kafka.sasl.password, or "
            'kafka.sasl.jaas.config with username="..." password="..."'
        )
    return Credentials(username=username, password=password, mechanism=mechanism)
