"""Reads the `kafka.*` options for connections, under the names of Kafka's consumer.

Owns the names, defaults and error messages; `migration` has the names that Kafka's own clients take
and says which have no effect here. Those are named in one warning; all others that are not known
are refused. A value may lie in a file: `${file:/path:key}`, `${directory:/path:file}` (KIP-297).
"""

import difflib
import logging
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from millstream.kafka_client.sasl import MECHANISMS, OAUTHBEARER
from millstream.kafka_client.settings import ClientSettings, Credentials, OAuth, Tls
from millstream.model import Isolation
from millstream.spark.errors import InvalidOption
from millstream.spark.options.migration import (
    SINK_SETTINGS,
    SOURCE_SETTINGS,
    Treatment,
    of_the_other,
)

log = logging.getLogger(__name__)

PREFIX = "kafka."
SOFTWARE_NAME = "millstream-spark"
LIKENESS_MIN = 0.75  # Of an unknown name to the one that is proposed instead, from 0 to 1.

_ISOLATIONS = {level.name.lower(): level for level in Isolation}
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_JAAS = re.compile(
    r'(?P<name>username|password|clientId|clientSecret|scope)\s*=\s*"(?P<value>(?:[^"\\]|\\.)*)"'
)
_REFERENCE = re.compile(r"\$\{(?P<kind>file|directory):(?P<path>[^:}]+):(?P<key>[^}]+)\}")
# Kafka's own, in the packages that it had and has.
_LOGIN_HANDLERS = (
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
)


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
    "ssl.truststore.certificates": "ca_pem",
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
    "sasl.login.callback.handler.class",
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.credentials.client.secret",
    "ssl.truststore.type",
    "ssl.keystore.type",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.endpoint.identification.algorithm",
)
KNOWN = frozenset((*_NUMBERS, *_TLS_NAMES, *_OTHERS))


def client_settings(
    options: Mapping[str, str], *, client_id: str, is_sink: bool = False
) -> ClientSettings:
    """Read the `kafka.*` options out of all options, whose names are in lower case."""
    settings = {
        name.removeprefix(PREFIX): text.strip()
        for name, text in options.items()
        if name.startswith(PREFIX)
    }
    effective = checked_names(settings, is_sink=is_sink)
    settings = {name: resolved(name, settings[name]) for name in effective}
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


def checked_names(names: Iterable[str], *, is_sink: bool) -> list[str]:
    """The settings that have an effect; raises for the first that is refused or not known."""
    settings = SINK_SETTINGS if is_sink else SOURCE_SETTINGS
    effective, idle = [], []
    for name in names:
        setting = settings.get(name)
        if of_the_other(name, is_sink=is_sink):
            idle.append(name)
        elif name in KNOWN:
            effective.append(name)
        elif setting is None:
            known = sorted(PREFIX + known for known in {*KNOWN, *settings})
            raise InvalidOption(
                f"there is no setting {PREFIX}{name}; {nearest(PREFIX + name, known)}"
            )
        elif setting.treatment is Treatment.REFUSED:
            raise InvalidOption(f"option {PREFIX}{name} is not supported: {setting.note}")
        else:
            idle.append(name)
    if idle:
        _warn_of_idle(tuple(sorted(idle)))
    return effective


@cache  # Spark asks for a reader or a writer several times in each batch.
def _warn_of_idle(names: tuple[str, ...]) -> None:
    log.warning(
        "settings without effect here: %s (docs/spark/migrating.md says why)",
        ", ".join(PREFIX + name for name in names),
    )


def resolved(name: str, text: str) -> str:
    """The value with what lies in files, where `text` names them."""
    return _REFERENCE.sub(lambda match: _in_file(name, match), text)


def _in_file(name: str, reference: re.Match[str]) -> str:
    path, key = Path(reference["path"]), reference["key"]
    try:
        if reference["kind"] == "directory":
            return (path / key).read_text(encoding="utf-8").strip()
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as problem:
        raise InvalidOption(
            f"{PREFIX}{name} has {reference[0]}, which can't be read: {problem}"
        ) from None
    for line in lines:
        known, equals, value = line.partition("=")
        if equals and known.strip() == key:
            return value.strip()
    raise InvalidOption(f"{PREFIX}{name} has {reference[0]}, and the file has no key {key}")


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
    chain = settings.get("ssl.keystore.certificate.chain")
    key = settings.get("ssl.keystore.key")
    if (chain is None) != (key is None):
        raise InvalidOption(
            "kafka.ssl.keystore.certificate.chain and kafka.ssl.keystore.key need each other"
        )
    return Tls(
        ca_file=files.get("ca_file"),
        ca_pem=files.get("ca_pem"),
        certificate_file=files.get("certificate_file"),
        certificate_pem=None if chain is None or key is None else f"{chain}\n{key}\n",
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
    if mechanism == OAUTHBEARER:
        return _oauth(settings, jaas)
    username = settings.get("sasl.username", jaas.get("username"))
    password = settings.get("sasl.password", jaas.get("password"))
    if username is None or password is None:
        raise InvalidOption(
            f"SASL {mechanism} needs kafka.sasl.username and kafka.sasl.password, or "
            'kafka.sasl.jaas.config with username="..." password="..."'
        )
    return Credentials(username=username, password=password, mechanism=mechanism)


def _oauth(settings: Mapping[str, str], jaas: Mapping[str, str]) -> Credentials:
    handler = settings.get("sasl.login.callback.handler.class", _LOGIN_HANDLERS[0])
    if handler not in _LOGIN_HANDLERS:
        raise InvalidOption(
            f"kafka.sasl.login.callback.handler.class is {handler}, a Java class; only "
            f"{_LOGIN_HANDLERS[0]} can be stood in for"
        )
    endpoint = settings.get("sasl.oauthbearer.token.endpoint.url", "")
    if not endpoint.startswith(("https://", "http://", "file:/")):
        raise InvalidOption(
            "SASL OAUTHBEARER needs kafka.sasl.oauthbearer.token.endpoint.url: https://..., or "
            f"file:///path of a token; it is {endpoint!r}"
        )
    prefix = "sasl.oauthbearer.client.credentials.client."
    oauth = OAuth(
        endpoint=endpoint,
        client_id=settings.get(prefix + "id", jaas.get("clientId", "")),
        client_secret=settings.get(prefix + "secret", jaas.get("clientSecret", "")),
        scope=settings.get("sasl.oauthbearer.scope", jaas.get("scope", "")),
    )
    if not endpoint.startswith("file:") and not (oauth.client_id and oauth.client_secret):
        raise InvalidOption(
            f"SASL OAUTHBEARER with {endpoint} needs kafka.{prefix}id and kafka.{prefix}secret, or "
            'kafka.sasl.jaas.config with clientId="..." clientSecret="..."'
        )
    return Credentials(username=oauth.client_id, password="", mechanism=OAUTHBEARER, oauth=oauth)
