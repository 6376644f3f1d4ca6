"""Our blocking client against Apache Kafka itself, with TLS and every login that we have."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from millstream.client import Denied, connect
from millstream.kafka_client.cluster import Cluster
from millstream.kafka_client.coordinator import commit, committed
from millstream.kafka_client.errors import AuthenticationFailed
from millstream.kafka_client.settings import ClientSettings, Credentials, Tls
from millstream.model import TopicPartition
from tests.interop.java.kafka_server import HOST, apache_kafka
from tests.support.secure_proxy import CERTIFICATE

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SESSION_MS = 4_000
LOGIN = "org.apache.kafka.common.security"
SETTINGS = f"""
sasl.enabled.mechanisms={",".join(MECHANISMS)}
listener.name.outside.plain.sasl.jaas.config={LOGIN}.plain.PlainLoginModule required \\
  user_ann="secret";
listener.name.outside.scram-sha-256.sasl.jaas.config={LOGIN}.scram.ScramLoginModule required;
listener.name.outside.scram-sha-512.sasl.jaas.config={LOGIN}.scram.ScramLoginModule required;
connections.max.reauth.ms={SESSION_MS}
ssl.keystore.type=PEM
ssl.keystore.location={CERTIFICATE}
"""


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    users = [
        option
        for mechanism in MECHANISMS[1:]
        for option in ("--add-scram", f"{mechanism}=[name=ann,password=secret]")
    ]
    home = tmp_path_factory.mktemp("kafka")
    with apache_kafka(
        home, protocol="SASL_SSL", settings=SETTINGS, format_options=users
    ) as listening:
        yield listening


def settings(port: int, mechanism: str, password: str = "secret") -> ClientSettings:
    return ClientSettings(
        bootstrap=((HOST, port),),
        tls=Tls(ca_file=str(CERTIFICATE)),
        credentials=Credentials(username="ann", password=password, mechanism=mechanism),
    )


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_records_and_offsets_over_a_login(port: int, mechanism: str) -> None:
    topic = f"orders-{mechanism}"
    target = TopicPartition(topic, 0)
    login: dict[str, Any] = {
        "sasl_mechanism": mechanism,
        "sasl_username": "ann",
        "sasl_password": "secret",
    }
    tls: dict[str, Any] = {"security_protocol": "SASL_SSL", "ssl_ca_location": str(CERTIFICATE)}
    with connect(f"{HOST}:{port}", timeout_s=60, **tls, **login) as client:
        client.admin.create_topic(topic)
        client.produce(topic, "hello")
        assert client.admin.list_transactions() == ()
    cluster = Cluster(settings(port, mechanism))

    assert b"hello" in bytes(cluster.fetch(target, 0).records)
    # The first commit of all creates the topic of offsets, which takes Kafka a moment.
    cluster.retry("commit", lambda: commit(cluster, "readers", {target: 1}))
    # Longer than a session: Kafka would close a connection that is used beyond its end (KIP-368).
    time.sleep(SESSION_MS / 1000 + 0.5)
    assert committed(cluster, "readers", [target]) == {target: 1}
    cluster.forget()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_refused_at_once(port: int, mechanism: str) -> None:
    with pytest.raises(AuthenticationFailed, match="refuses user 'ann'"):
        Cluster(settings(port, mechanism, password="guess")).topics()


def test_the_client_library_says_denied(port: int) -> None:
    login: dict[str, Any] = {
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_username": "ann",
        "sasl_password": "secret",
    }
    tls: dict[str, Any] = {
        "security_protocol": "SASL_SSL",
        "enable_ssl_certificate_verification": "false",
    }
    with connect(f"{HOST}:{port}", timeout_s=60, **tls, **login) as client:
        client._link._settings["sasl.password"] = "guess"

        with pytest.raises(Denied):
            client.admin.list_transactions()
