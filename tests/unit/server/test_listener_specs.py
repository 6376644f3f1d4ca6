"""Listeners: which there are, and what keeps a node from starting."""

import pytest

from millstream.config import Config
from millstream.errors import StartupError
from millstream.security.settings import ListenerSettings, OAuth, Security, Tls
from millstream.server.listener_specs import insecure, listener_specs

TLS = Tls(certificate="c.pem", key="k.pem")


def test_flat_settings_make_a_listener_for_each_port() -> None:
    specs = {spec.name: spec for spec in listener_specs(Config())}

    assert list(specs) == ["kafka", "flux", "classic"]
    assert specs["kafka"].protocols == ("kafka", "flymq")
    assert specs["flux"].port == 4222
    assert insecure(list(specs.values())) == []


def test_named_listeners_replace_them() -> None:
    config = Config(
        tls=TLS,
        security=Security(protocol="sasl_tls"),
        listener={
            "internal": ListenerSettings(protocols=("kafka",), port=1, security="plaintext"),
            "external": ListenerSettings(
                protocols=("kafka",), host="0.0.0.0", port=2, advertised_host="b.example"
            ),
        },
    )

    internal, external = listener_specs(config)

    assert (internal.transport.has_sasl, internal.host) == (False, "127.0.0.1")
    assert (external.transport.has_sasl, external.advertised_host) == (True, "b.example")
    assert external.authenticates


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (Config(host="0.0.0.0"), "would let the network in without a login"),
        (
            Config(host="0.0.0.0", tls=TLS, security=Security(protocol="tls")),
            "would let the network in without a login",
        ),
        (Config(security=Security(protocol="tls")), "has TLS and no certificate"),
        (
            Config(security=Security(protocol="sasl_plaintext", mechanisms=("OAUTHBEARER",))),
            "OAUTHBEARER needs oauth.jwks",
        ),
        (Config(listener={"x": ListenerSettings()}), "listener.x.protocols is empty"),
        (
            Config(listener={"x": ListenerSettings(protocols=("kafka", "flux"))}),
            "only kafka and flymq share a port",
        ),
    ],
)
def test_what_cannot_work_is_one_sentence(config: Config, sentence: str) -> None:
    with pytest.raises(StartupError, match=sentence):
        listener_specs(config)


def test_an_operator_may_mean_an_open_network_and_certificates_close_it() -> None:
    meant = Config(host="0.0.0.0", security=Security(allow_insecure_network=True))
    mutual = Tls(
        certificate="c.pem", key="k.pem", client_ca="ca.pem", client_certificates="required"
    )
    closed = Config(host="0.0.0.0", tls=mutual, security=Security(protocol="tls"))

    assert len(insecure(listener_specs(meant))) == 3
    assert insecure(listener_specs(closed)) == []
    assert not OAuth().is_set
