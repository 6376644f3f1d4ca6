"""Our broker and Apache Kafka, each with the same listener in plain text, with logins, with TLS."""

import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.kafka.peers import HOST, Durability, Peer, apache_kafka, free_port, millstream
from millstream.server.system.dev_certificates import make_dev_certificates

USER, PASSWORD = "admin", "a password of the benchmark"
PLAIN, SASL, TLS, SASL_TLS = "plain", "sasl", "tls", "sasl_tls"
AT_REST = "encrypted at rest"
_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_KAFKAS = {PLAIN: "PLAINTEXT", SASL: "SASL_PLAINTEXT", TLS: "SSL", SASL_TLS: "SASL_SSL"}
_OURS = {PLAIN: "plaintext", SASL: "sasl_plaintext", TLS: "tls", SASL_TLS: "sasl_tls"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A broker with one kind of security, and how its clients connect."""

    peer: Peer
    kind: str

    @property
    def is_tls(self) -> bool:
        return self.kind in (TLS, SASL_TLS)

    @property
    def has_sasl(self) -> bool:
        return self.kind in (SASL, SASL_TLS)


class Files:
    """Certificates, a password and a root key for all brokers of a run."""

    def __init__(self, directory: Path) -> None:
        make_dev_certificates(directory)
        self.ca, self.certificate = directory / "ca.pem", directory / "server.pem"
        self.key = directory / "server.key"
        self.password = self._private(directory / "password", PASSWORD)
        self.root_key = self._private(directory / "root.key", secrets.token_hex(32))
        both = self.key.read_text(encoding="utf-8") + self.certificate.read_text(encoding="utf-8")
        self.key_store = self._private(directory / "key-store.pem", both)

    @staticmethod
    def _private(path: Path, text: str) -> Path:
        path.touch(mode=0o600)
        path.write_text(text, encoding="utf-8")
        return path


def ours(kind: str, files: Files) -> Variant:
    lines = []
    if kind == AT_REST:
        lines = ["[encryption]", 'mode = "on"', f'key = "file:{files.root_key}"']
    elif kind != PLAIN:
        lines = [
            "[security]",
            f'protocol = "{_OURS[kind]}"',
            f'admin_password = "file:{files.password}"',
            "scram_iterations = 4096",  # As Kafka's.
            "[tls]",
            f'certificate = "{files.certificate}"',
            f'key = "{files.key}"',
        ]
    peer = millstream(settings="\n".join(lines) + "\n", has_http=False)
    return Variant(peer=peer, kind=kind)


def kafkas(kind: str, jars: Path, files: Files) -> Variant:
    peer = apache_kafka(jars)

    def prepare(directory: Path, port: int, durability: Durability) -> list[str]:
        command = peer.prepare(directory, port, durability)
        properties = directory / "server.properties"
        text = properties.read_text(encoding="utf-8")
        properties.write_text(text + _secured(text, kind, port, files), encoding="utf-8")
        return command

    return Variant(peer=replace(peer, prepare=prepare), kind=kind)


def _secured(text: str, kind: str, port: int, files: Files) -> str:
    """Settings behind those of the plain broker, which they override."""
    controller = re.search(r"CONTROLLER://[^\n,]+", text)
    assert controller is not None
    listeners = f"INSIDE://{HOST}:{free_port()},OUTSIDE://{HOST}:{port},{controller[0]}"
    protocols = f"CONTROLLER:PLAINTEXT,INSIDE:PLAINTEXT,OUTSIDE:{_KAFKAS[kind]}"
    settings = {
        "listeners": listeners,
        "inter.broker.listener.name": "INSIDE",
        "listener.security.protocol.map": protocols,
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.outside.plain.sasl.jaas.config": f"{_LOGIN} required "
        f'user_{USER}="{PASSWORD}";',
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(files.key_store),
    }
    return "".join(f"{key}={value}\n" for key, value in settings.items())


Maker = Callable[[str], Variant]
