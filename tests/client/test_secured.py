"""A secured cluster: librdkafka and our own connections, with the same settings.

The broker has neither TLS nor logins yet, so `SecureProxy` stands in front of it. librdkafka logs
in at the same proxy: an independent client shows that the proxy plays its part right.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream.client import Client, connect
from millstream.client.errors import ClientError, Denied, NotSupported, Refused, Unreachable
from millstream.client.extensions.requests import connection_settings, list_transactions
from millstream.client.models import BrokerNode
from millstream.kafka_client.cluster import Cluster
from millstream.kafka_client.coordinator import commit, committed
from millstream.kafka_client.settings import ClientSettings, Credentials, Tls
from millstream.model import TopicPartition
from tests.support.broker_process import BrokerProcess
from tests.support.secure_proxy import CERTIFICATE, SecureProxy

TIMEOUT_S = 40.0
USERS = {"ann": "secret", "bob=,": "p=w,"}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
TLS = {"security_protocol": "SASL_SSL", "ssl_ca_location": str(CERTIFICATE)}


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureProxy]:
    proxy = SecureProxy(USERS)
    broker = BrokerProcess(
        tmp_path_factory.mktemp("broker"), ADVERTISED_HOST="127.0.0.1", ADVERTISED_PORT=proxy.port
    )
    broker.start()
    proxy.broker = (broker.host, broker.port)
    yield proxy
    proxy.close()
    broker.kill()


def secured(proxy: SecureProxy, **settings: Any) -> Client:
    address = f"127.0.0.1:{proxy.port}"
    return connect(address, timeout_s=TIMEOUT_S, **{**TLS, **settings})


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("user", USERS)
def test_requests_of_our_own_log_in_as_librdkafka_does(
    proxy: SecureProxy, mechanism: str, user: str
) -> None:
    login = {"sasl_mechanism": mechanism, "sasl_username": user, "sasl_password": USERS[user]}
    topic = f"orders-{mechanism}-{user.removesuffix('=,')}"
    with secured(proxy, **login) as client:
        client.admin.create_topic(topic)
        client.produce(topic, b"1")
        before = len(proxy.logins)

        (partition,) = client.health(topic).partitions
        transactions = client.admin.list_transactions()

    assert (partition.high_watermark, transactions) == (1, ())
    assert proxy.logins[before:].count((mechanism, user)) >= 2


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_records_are_read_and_offsets_committed_by_the_blocking_client(
    proxy: SecureProxy, mechanism: str
) -> None:
    topic = f"read-{mechanism}"
    with secured(
        proxy, sasl_mechanism="PLAIN", sasl_username="ann", sasl_password="secret"
    ) as client:
        client.admin.create_topic(topic)
        client.produce(topic, "hello", key="k")
    target = TopicPartition(topic, 0)
    settings = ClientSettings(
        bootstrap=(("127.0.0.1", proxy.port),),
        tls=Tls(ca_file=str(CERTIFICATE)),
        credentials=Credentials(username="ann", password="secret", mechanism=mechanism),
    )
    cluster = Cluster(settings)

    assert topic in cluster.topics()
    fetched = cluster.fetch(target, 0)
    commit(cluster, "readers", {target: 1})

    assert b"hello" in bytes(fetched.records)
    assert committed(cluster, "readers", [target]) == {target: 1}
    cluster.forget()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_denied_and_not_shown(proxy: SecureProxy, mechanism: str) -> None:
    node = BrokerNode(node_id=1, host="127.0.0.1", port=proxy.port)
    login = {"sasl.mechanism": mechanism, "sasl.username": "ann", "sasl.password": "guess-me"}
    config = {"security.protocol": "sasl_ssl", "ssl.ca.location": str(CERTIFICATE), **login}

    with pytest.raises(Denied, match="refuses user 'ann'") as caught:
        list_transactions([node], config, timeout_s=TIMEOUT_S)

    assert "guess-me" not in str(caught.value)


def test_a_certificate_that_no_authority_signed_is_denied(proxy: SecureProxy) -> None:
    node = BrokerNode(node_id=1, host="127.0.0.1", port=proxy.port)

    with pytest.raises(Denied, match="is not trusted"):
        list_transactions([node], {"security.protocol": "ssl"}, timeout_s=TIMEOUT_S)


NODE = BrokerNode(node_id=1, host="127.0.0.1", port=1)


@pytest.mark.parametrize(
    ("settings", "kind", "reason"),
    [
        ({"security.protocol": "quic"}, NotSupported, "quic"),
        ({"security.protocol": "sasl_ssl"}, NotSupported, "GSSAPI"),
        (
            {"security.protocol": "sasl_plaintext", "sasl.mechanisms": "OAUTHBEARER"},
            NotSupported,
            "OAUTHBEARER without oauth_cb",
        ),
        (
            {"security.protocol": "ssl", "ssl.keystore.location": "a.p12"},
            NotSupported,
            "ssl.keystore.location",
        ),
        ({"security.protocol": "ssl", "ssl.ca.location": "/nowhere"}, Refused, "/nowhere"),
    ],
)
def test_an_unsupported_protection_is_refused_before_anything_is_sent(
    settings: dict[str, str], kind: type[ClientError], reason: str
) -> None:
    with pytest.raises(kind, match=reason):
        list_transactions([NODE], settings, timeout_s=TIMEOUT_S)


def test_settings_of_librdkafka_become_those_of_a_connection(tmp_path: Path) -> None:
    settings = connection_settings(
        (NODE.host, NODE.port),
        {
            "security.protocol": "SSL",
            "ssl.ca.location": "probe",
            "ssl.certificate.location": str(CERTIFICATE),
            "ssl.endpoint.identification.algorithm": "none",
            "enable.ssl.certificate.verification": "false",
            "client.id": "me",
        },
        doing="test",
        timeout_s=1.5,
    )

    assert settings.tls == Tls(
        certificate_file=str(CERTIFICATE), checks_certificate=False, checks_hostname=False
    )
    assert (settings.client_id, settings.request_ms_max) == ("me", 1_500)


def test_a_broker_that_is_not_there_is_named() -> None:
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1"):
        list_transactions([NODE], {}, timeout_s=TIMEOUT_S)
