"""`millstream serve --secure`: from nothing to a node with TLS and logins, in one command.

Makes a CA and a certificate under `tls/` of the data directory if there are none, and says how
clients connect. Settings that the operator has made stay as they are.
"""

from dataclasses import replace
from pathlib import Path

from millstream.cli.root_key import make_root_key
from millstream.config import Config
from millstream.engine.access.first_user import PASSWORD_FILE
from millstream.errors import StartupError
from millstream.security.secrets import KeySecret
from millstream.security.settings import transport_of
from millstream.server.net.connection import Address
from millstream.server.system.dev_certificates import make_dev_certificates
from millstream.server.system.secrets import SystemSecrets
from millstream.storage.files.directory import ROOT_KEY
from millstream.storage.sealing.root import read_root

TLS_DIRECTORY = "tls"


def secured(config: Config) -> Config:
    """The configuration with TLS and logins at every listener that says nothing else."""
    if config.storage == "memory" and not config.security.admin_password:
        raise StartupError(
            'serve --secure with storage = "memory" needs security.admin_password: there is no '
            "file for a random one"
        )
    tls = config.tls
    if not tls.is_set:
        directory = Path(config.data_dir) / TLS_DIRECTORY
        if not (directory / "server.pem").exists():
            hosts = [config.host] if config.host not in {"", "0.0.0.0", "::"} else []
            if config.advertised_host:
                hosts.append(config.advertised_host)
            make_dev_certificates(directory, hosts=hosts)
        tls = replace(
            tls, certificate=str(directory / "server.pem"), key=str(directory / "server.key")
        )
    encryption = config.encryption
    if not encryption.is_on and not encryption.key and config.storage == "disk":
        path = Path(config.data_dir) / ROOT_KEY
        if not path.exists():
            make_root_key(path)
        key = KeySecret(f"file:{path}")
        # Nodes of a cluster make keys of their own, and different keys have different names.
        name = f"own-{read_root('', key, SystemSecrets()).check}"
        encryption = replace(encryption, mode="on", key=key, key_name=name)
    security = config.security
    if not transport_of(security.protocol).has_sasl:
        security = replace(security, protocol="sasl_tls")
    return replace(config, tls=tls, security=security, encryption=encryption)


def client_settings(config: Config, at: Address) -> str:
    """How clients connect, in the words of librdkafka, Java, Python and Spark."""
    address = f"{config.advertised_host or at.host}:{config.advertised_port or at.port}"
    password = config.security.admin_password.reference or (
        f"file:{Path(config.data_dir) / PASSWORD_FILE}"
    )
    ca = Path(config.tls.certificate).parent / "ca.pem"
    user = config.security.admin_user
    mechanism = config.security.mechanisms[0]
    key = config.encryption.key.reference
    encryption = ""
    if config.encryption.is_on:
        encryption = f"""\
records on disk are encrypted with the key in {key}
  Keep a copy of it in another place: without it no record can be read. A key beside its data
  protects only a disk that is given away without it: move it, and set encryption.key.

"""
    java = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return f"""\
user {user}, password in {password}

{encryption}librdkafka, kcat, confluent-kafka:
  bootstrap.servers={address}
  security.protocol=SASL_SSL
  sasl.mechanism={mechanism}
  sasl.username={user}
  ssl.ca.location={ca}

Java, Spark (with the prefix kafka.):
  security.protocol=SASL_SSL
  sasl.mechanism={mechanism}
  sasl.jaas.config={java} required username="{user}" password="...";
  ssl.truststore.type=PEM
  ssl.truststore.location={ca}

Python:
  from millstream.client import connect
  client = connect("{address}", security_protocol="SASL_SSL", sasl_mechanism="{mechanism}",
                   sasl_username="{user}", sasl_password="...", ssl_ca_location="{ca}")

this machine:
  millstream context add secure {address} --use --set security.protocol=SASL_SSL \\
    --set sasl.mechanism={mechanism} --set sasl.username={user} \\
    --set sasl.password={password} --set ssl.ca.location={ca}"""
