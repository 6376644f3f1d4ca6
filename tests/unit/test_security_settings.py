"""The tables of security: what is wrong is named, and no secret is repeated."""

from pathlib import Path

import pytest

from millstream.config import Config
from millstream.config_sources import load
from millstream.errors import StartupError
from millstream.security.secrets import KeySecret, Secret
from millstream.security.settings import Transport, transport_of
from millstream.server.system.secrets import SystemSecrets

CANARY = "hunter2-canary"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f'[security]\nadmin_password = "{CANARY}"', "security.admin_password must be file:… or"),
        (f'[tls]\nkey_password = "command:{CANARY}"', "tls.key_password must be file:… or env:…"),
        ('[security]\nprotocol = "ssh"', "security.protocol = 'ssh' is not plaintext, tls"),
        ("[security]\nscram_iterations = 100", "is not in 4096 to 16384"),
        (
            '[security]\nmechanisms = ["GSSAPI"]',
            "security.mechanisms = ['GSSAPI'] is not a list of",
        ),
        ('[security]\nsuper_users = ["ann"]', "'ann' is not User:… or Role:…"),
        ('[oauth]\njwks = "file:k.json"\nissuer = "i"', "oauth.audience is missing"),
        ('[oauth]\nissuer = "i"\naudience = "a"', "oauth.jwks is missing"),
        ('[tls]\nclient_certificates = "required"', "needs tls.client_ca"),
        ("[listener.external]\nprot = 1", "there is no key 'listener.external.prot'"),
        ('[listener.external]\nport = "x"', "listener.NAME.port is not a whole number"),
        ('[listener.external]\nprotocols = ["smtp"]', "is not a list of "),
        ('[listener.x.tls]\nkeys = "x"', "there is no key 'listener.x.tls.keys'"),
        ('[tls.sni."a.example"]\nkex = "x"', "there is no key 'tls.sni.a.example.kex'"),
    ],
)
def test_a_value_that_cannot_work_is_refused_without_repeating_a_secret(
    tmp_path: Path, text: str, expected: str
) -> None:
    file = tmp_path / "node.toml"
    file.write_text(text)

    with pytest.raises(StartupError) as raised:
        load(path=str(file), environment={})

    assert expected in str(raised.value)
    assert CANARY not in str(raised.value)


def test_listeners_have_names_and_settings_of_their_own(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text(
        '[listener.external]\nport = 9093\nprotocols = ["kafka"]\nsecurity = "SASL_SSL"\n'
        '[listener.external.tls]\ncertificate = "c.pem"\nkey = "k.pem"\n'
        '[tls.sni."a.example"]\ncertificate = "a.pem"\nkey = "a.key"\n'
    )

    config = load(path=str(file), environment={"MILLSTREAM_LISTENER__EXTERNAL__PORT": "9094"})

    external = config.listener["external"]
    assert (external.port, external.protocols) == (9094, ("kafka",))
    assert external.tls is not None
    assert external.tls.certificate == "c.pem"
    assert config.tls.sni["a.example"].key == "a.key"
    assert transport_of(external.security) == Transport(is_tls=True, has_sasl=True)
    assert transport_of("sasl_tls").kafka_name == "SASL_SSL"
    assert transport_of("plaintext").kafka_name == "PLAINTEXT"


def test_the_text_of_a_secret_is_hidden() -> None:
    secret = Secret.parse("env:PASSWORD")

    assert (str(secret), repr(secret), f"{secret}") == ("[hidden]", "[hidden]", "[hidden]")
    assert secret.reference == "env:PASSWORD"
    assert "PASSWORD" not in repr(Config(security=load(environment={}).security))
    assert not Secret()


def test_secrets_are_read_from_files_variables_and_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "password"
    file.write_text("secret\n")
    file.chmod(0o600)
    monkeypatch.setenv("A_PASSWORD", "from env")
    secrets = SystemSecrets()

    assert secrets.read(Secret.parse(f"file:{file}")) == b"secret"
    assert secrets.read(Secret.parse("env:A_PASSWORD")) == b"from env"
    assert secrets.read(KeySecret.parse("command:echo '$HOME x'")) == b"$HOME x"


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("file:missing", "cannot read file:missing: No such file"),
        ("env:MISSING_VARIABLE", "there is no such variable"),
        ("command:false", "command:false ended with status 1"),
        ("command:no-such-program-here", "cannot run command:no-such-program-here"),
        ("command:true", "command:true is empty"),
        ("command:head -c 5000 /dev/zero", "has more than 4096 bytes"),
    ],
)
def test_a_secret_that_cannot_be_read_is_one_sentence(reference: str, expected: str) -> None:
    with pytest.raises(StartupError, match=expected):
        SystemSecrets().read(KeySecret.parse(reference))


def test_a_secret_that_others_can_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("secret")
    file.chmod(0o644)

    with pytest.raises(StartupError, match="chmod 600"):
        SystemSecrets().read(Secret.parse(f"file:{file}"))
