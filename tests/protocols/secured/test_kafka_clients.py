"""Kafka clients log in by every mechanism, over plain text and TLS, and not without a proof."""

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka.errors import KafkaError as PythonKafkaError
from kafka.net.compat import KafkaNetClient

from kafka import KafkaProducer
from tests.support.secured import ADMIN, PASSWORD, SecuredNode, issuer

PASSWORD_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
LISTENERS = ("sasl", "sasl_tls")


def produce(settings: dict[str, Any], topic: str, *, limit_ms: int = 8_000) -> KafkaError | None:
    """The error of one record, or of the connection; None if it was delivered."""
    problems: list[KafkaError] = []
    outcome: list[KafkaError | None] = []
    producer = Producer({**settings, "error_cb": problems.append, "message.timeout.ms": limit_ms})
    producer.produce(topic, b"x", callback=lambda error, _: outcome.append(error))
    for _ in range(80):
        producer.poll(0.1)
        if outcome or any(p.code() == KafkaError._AUTHENTICATION for p in problems):
            break
    if outcome and outcome[0] is None:
        return None
    return next((p for p in problems if p.code() == KafkaError._AUTHENTICATION), None) or outcome[0]


@pytest.mark.parametrize("listener", LISTENERS)
@pytest.mark.parametrize("mechanism", [*PASSWORD_MECHANISMS, "OAUTHBEARER"])
def test_librdkafka_logs_in(secured: SecuredNode, listener: str, mechanism: str) -> None:
    assert produce(secured.librdkafka(listener, mechanism), "librdkafka") is None


@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
@pytest.mark.parametrize("user", [ADMIN, "nobody-here"])
def test_librdkafka_with_a_wrong_password_is_told_so(
    secured: SecuredNode, mechanism: str, user: str
) -> None:
    error = produce(
        secured.librdkafka("sasl", mechanism, sasl_username=user, sasl_password="wrong"), "x"
    )

    assert error is not None
    assert error.code() == KafkaError._AUTHENTICATION
    assert "Authentication failed" in error.str()


def test_librdkafka_with_the_token_of_another_issuer_is_refused(secured: SecuredNode) -> None:
    def forged(_: str) -> tuple[str, float]:
        return issuer.token(iss="https://other.example"), 4_000_000_000.0

    settings = secured.librdkafka("sasl", "OAUTHBEARER") | {"oauth_cb": forged}

    assert produce(settings, "x") is not None


def test_a_client_certificate_is_a_login(secured: SecuredNode) -> None:
    files = secured.files
    settings = secured.librdkafka(
        "tls",
        ssl_certificate_location=str(files / "svc.pem"),
        ssl_key_location=str(files / "svc.key"),
    )

    assert produce(settings, "certified") is None
    assert produce(secured.librdkafka("tls"), "certified", limit_ms=1_500) is not None


@pytest.mark.parametrize("listener", LISTENERS)
@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
def test_kafka_python_logs_in(secured: SecuredNode, listener: str, mechanism: str) -> None:
    with _python_producer(_python_settings(secured, listener, mechanism)) as producer:
        assert producer.send("kafka-python", b"x").get(10).offset >= 0


@pytest.mark.slow
def test_kafka_python_with_a_wrong_password_is_refused(secured: SecuredNode) -> None:
    settings = _python_settings(secured, "sasl", "SCRAM-SHA-256") | {"sasl_plain_password": "wrong"}

    with pytest.raises(PythonKafkaError), _python_producer(settings) as producer:
        producer.send("x", b"x").get(3)


@contextmanager
def _python_producer(settings: dict[str, Any]) -> Iterator[KafkaProducer]:
    """Close what the producer opened, also if its constructor fails: that one closes nothing."""
    with ExitStack() as opened:

        def make_client(**config: Any) -> KafkaNetClient:
            return opened.enter_context(closing(KafkaNetClient(**config)))

        producer = KafkaProducer(**settings, kafka_client=make_client)
        opened.callback(producer.close, timeout=1)
        yield producer


def _python_settings(secured: SecuredNode, listener: str, mechanism: str) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap_servers": f"127.0.0.1:{secured.ports[listener]}",
        "security_protocol": "SASL_SSL" if "tls" in listener else "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": ADMIN,
        "sasl_plain_password": PASSWORD,
        "max_block_ms": 10_000,
    }
    if "tls" in listener:
        settings["ssl_cafile"] = str(secured.files / "ca.pem")
    return settings


@pytest.mark.parametrize("listener", LISTENERS)
@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
def test_aiokafka_logs_in(secured: SecuredNode, listener: str, mechanism: str) -> None:
    from aiokafka import AIOKafkaProducer

    async def story() -> int:
        context = None
        if "tls" in listener:
            context = ssl.create_default_context(cafile=str(secured.files / "ca.pem"))
        producer = AIOKafkaProducer(
            bootstrap_servers=f"127.0.0.1:{secured.ports[listener]}",
            security_protocol="SASL_SSL" if context else "SASL_PLAINTEXT",
            ssl_context=context,
            sasl_mechanism=mechanism,
            sasl_plain_username=ADMIN,
            sasl_plain_password=PASSWORD,
        )
        await producer.start()
        try:
            return (await producer.send_and_wait("aiokafka", b"x")).offset
        finally:
            await producer.stop()

    assert asyncio.run(story()) >= 0


def test_scram_users_are_made_and_deleted_by_kafkas_own_api(secured: SecuredNode) -> None:
    admin = AdminClient(secured.librdkafka("sasl"))
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192)
    made = UserScramCredentialUpsertion("bob", info, b"bobs secret")

    admin.alter_user_scram_credentials([made])["bob"].result(10)
    described = described_of(admin, "bob")
    as_bob = secured.librdkafka(
        "sasl", "SCRAM-SHA-256", sasl_username="bob", sasl_password="bobs secret"
    )
    error = produce(as_bob, "bobs")
    plain = produce(as_bob | {"sasl.mechanism": "PLAIN"}, "bobs")
    gone = UserScramCredentialDeletion("bob", ScramMechanism.SCRAM_SHA_256)
    admin.alter_user_scram_credentials([gone])["bob"].result(10)

    assert [i.iterations for i in described.scram_credential_infos] == [8192]
    assert (error, plain) == (None, None)
    assert produce(as_bob, "bobs") is not None
    with pytest.raises(KafkaException, match="does not exist"):
        described_of(admin, "bob")


def described_of(admin: AdminClient, user: str) -> Any:
    futures = admin.describe_user_scram_credentials([user])
    assert isinstance(futures, dict)
    return futures[user].result(10)


@pytest.mark.parametrize(("iterations", "text"), [(100, "Too few"), (16_385, "Too many")])
def test_iterations_have_kafkas_bounds(secured: SecuredNode, iterations: int, text: str) -> None:
    admin = AdminClient(secured.librdkafka("sasl"))
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, iterations)
    made = UserScramCredentialUpsertion("carl", info, b"x")

    with pytest.raises(KafkaException, match=f"{text} iterations"):
        admin.alter_user_scram_credentials([made])["carl"].result(10)
