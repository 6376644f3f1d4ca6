"""What becomes of every setting of Kafka's clients: nothing is ignored in silence."""

import logging
from pathlib import Path

import pytest

from millstream.kafka_client.settings import OAuth
from millstream.spark.errors import InvalidOption
from millstream.spark.options.kafka import KNOWN, _warn_of_idle
from millstream.spark.options.migration import (
    CONNECTION,
    CONSUMER,
    PRODUCER,
    SINK_OPTIONS,
    SOURCE_OPTIONS,
    Setting,
    Treatment,
)
from millstream.spark.options.sink import SinkOptions, sink_options
from millstream.spark.options.source import SourceOptions, source_options
from tests.support.each import check_each

SOURCE = {"kafka.bootstrap.servers": "a:1", "subscribe": "orders"}
SINK = {"kafka.bootstrap.servers": "a:1", "topic": "orders"}


def source(**settings: str) -> SourceOptions:
    return source_options({**SOURCE, **kafka(settings)}, is_streaming=False)


def sink(**settings: str) -> SinkOptions:
    return sink_options({**SINK, **kafka(settings)}, is_streaming=False)


def kafka(settings: dict[str, str]) -> dict[str, str]:
    return {f"kafka.{name.replace('_', '.')}": text for name, text in settings.items()}


@pytest.mark.parametrize(
    ("settings", "raw", "read"),
    [
        ((*CONNECTION, *CONSUMER), SOURCE, source_options),
        ((*CONNECTION, *PRODUCER), SINK, sink_options),
    ],
    ids=["source", "sink"],
)
def test_every_setting_has_the_treatment_that_the_table_says(
    settings: tuple[Setting, ...], raw: dict[str, str], read: object
) -> None:
    def check(setting: Setting) -> None:
        options = {**raw, f"kafka.{setting.name}": "x"}
        match setting.treatment:
            case Treatment.NO_EFFECT:
                assert read(options, is_streaming=False) == read(raw, is_streaming=False)  # type: ignore[operator]
            case Treatment.REFUSED:
                with pytest.raises(InvalidOption) as problem:
                    read(options, is_streaming=False)  # type: ignore[operator]
                assert str(problem.value).endswith(setting.note)
            case Treatment.SAME:
                assert setting.name in KNOWN or setting in PRODUCER

    check_each(settings, check)


def test_each_refusal_and_each_setting_without_effect_has_a_reason() -> None:
    settings = (*CONNECTION, *CONSUMER, *PRODUCER)

    assert [s.name for s in settings if s.treatment is not Treatment.SAME and not s.note] == []
    assert len({s.name for s in settings}) == len(settings)


def test_every_option_of_the_connector_is_known() -> None:
    for option in SOURCE_OPTIONS:
        with pytest.raises(InvalidOption) as problem:
            source_options({**SOURCE, option.name + "x": "1"}, is_streaming=False)
        assert option.name in str(problem.value)
    assert {option.name for option in SINK_OPTIONS} == {"topic", "includeHeaders"}


def test_settings_without_effect_are_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    _warn_of_idle.cache_clear()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            source(max_poll_records="5", session_timeout_ms="10000", linger_ms="5")

    (record,) = caplog.records
    assert "kafka.linger.ms, kafka.max.poll.records, kafka.session.timeout.ms" in record.message


def test_one_dict_of_settings_serves_source_and_sink() -> None:
    both = {"batch_size": "1000", "isolation_level": "read_uncommitted", "group_id": "g"}

    assert source(**both).group == "g"
    assert sink(**both).batch_bytes_max == 1000


def test_a_secret_may_lie_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("s3cret\n", "utf-8")
    (tmp_path / "users.properties").write_text("# users\nann = s3cret\n", "utf-8")
    for text in (
        f"${{directory:{tmp_path}:password}}",
        f"${{file:{tmp_path}/users.properties:ann}}",
    ):
        plain = source(
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_jaas_config=f'x required username="ann" password="{text}";',
        ).client.credentials
        assert plain is not None
        assert plain.password == "s3cret"
    with pytest.raises(InvalidOption, match="has no key bob"):
        source(client_id=f"${{file:{tmp_path}/users.properties:bob}}")
    with pytest.raises(InvalidOption, match="can't be read"):
        source(client_id=f"${{directory:{tmp_path}:nothing}}")


OAUTH = {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}
ENDPOINT = {"sasl_oauthbearer_token_endpoint_url": "https://idp/token"}


def test_oauthbearer_is_told_as_to_java() -> None:
    jaas = 'x required clientId="ann" clientSecret="s3cret" scope="kafka";'
    credentials = source(
        **OAUTH,
        **ENDPOINT,
        sasl_jaas_config=jaas,
        sasl_login_callback_handler_class="org.apache.kafka.common.security.oauthbearer.secured."
        "OAuthBearerLoginCallbackHandler",
    ).client.credentials

    assert credentials is not None
    assert credentials.oauth == OAuth(
        endpoint="https://idp/token", client_id="ann", client_secret="s3cret", scope="kafka"
    )


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({}, r"needs kafka\.sasl\.oauthbearer\.token\.endpoint\.url"),
        (ENDPOINT, "needs kafka.sasl.oauthbearer.client.credentials.client.id"),
        (ENDPOINT | {"sasl_login_callback_handler_class": "aws.Iam"}, "a Java class; only"),
    ],
)
def test_oauthbearer_that_lacks_something_says_what(
    settings: dict[str, str], sentence: str
) -> None:
    with pytest.raises(InvalidOption, match=sentence):
        source(**OAUTH, **settings)


def test_certificates_may_be_the_settings_themselves() -> None:
    tls = source(
        security_protocol="SSL",
        ssl_truststore_type="PEM",
        ssl_truststore_certificates="CA",
        ssl_keystore_certificate_chain="CHAIN",
        ssl_keystore_key="KEY",
    ).client.tls

    assert tls is not None
    assert (tls.ca_pem, tls.certificate_pem) == ("CA", "CHAIN\nKEY\n")
    with pytest.raises(InvalidOption, match="need each other"):
        source(security_protocol="SSL", ssl_keystore_key="KEY")
