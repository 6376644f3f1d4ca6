"""Kafka's own tools and Java clients against a secured node: users, ACLs, quotas, TLS and SASL."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.java.releases import Release
from tests.interop.java.tools import Tools
from tests.support.secured import (
    ADMIN,
    PASSWORD,
    SecuredNode,
    issuer,
    running_secured,
    secured_config,
)

LOGIN = "org.apache.kafka.common.security"
URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
FILES = "org.apache.kafka.sasl.oauthbearer.allowed.files"
MODULES = {
    "PLAIN": "plain.PlainLoginModule",
    "SCRAM-SHA-256": "scram.ScramLoginModule",
    "SCRAM-SHA-512": "scram.ScramLoginModule",
}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    files = tmp_path_factory.mktemp("secured")
    with running_secured(secured_config(files), files) as node:
        yield node


class Shell:
    """The tools of a release, as one user at one listener."""

    def __init__(
        self,
        release: Release,
        node: SecuredNode,
        directory: Path,
        listener: str = "sasl_tls",
        mechanism: str = "SCRAM-SHA-512",
        user: str = ADMIN,
        password: str = PASSWORD,
    ) -> None:
        self.tools = Tools(release, f"localhost:{node.ports[listener]}")
        lines = {"security.protocol": listener.upper().replace("TLS", "SSL")}
        if listener == "sasl":
            lines["security.protocol"] = "SASL_PLAINTEXT"
        if "tls" in listener:
            lines |= {
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(node.files / "ca.pem"),
            }
        if listener == "tls":
            pair = directory / "svc-pair.pem"
            pair.write_text(
                (node.files / "svc.key").read_text() + (node.files / "svc.pem").read_text()
            )
            lines |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(pair)}
        else:
            lines["sasl.mechanism"] = mechanism
        if mechanism == "OAUTHBEARER":
            token = directory / "token"
            token.write_text(issuer.token(sub=ADMIN))
            lines |= {
                "sasl.jaas.config": f"{LOGIN}.oauthbearer.OAuthBearerLoginModule required;",
                "sasl.oauthbearer.token.endpoint.url": f"file://{token}",
                "sasl.login.callback.handler.class": (
                    f"{LOGIN}.oauthbearer.OAuthBearerLoginCallbackHandler"
                ),
            }
        elif listener != "tls":
            lines["sasl.jaas.config"] = (
                f'{LOGIN}.{MODULES[mechanism]} required username="{user}" password="{password}";'
            )
        self._file = directory / f"{listener}-{mechanism}-{user}.properties"
        text = "\n".join(f"{key}={value}" for key, value in lines.items())
        self._file.write_text(
            text.encode("ascii", "backslashreplace").decode().replace("\\xfc", "\\u00fc")
        )

    def ask(self, name: str, *options: str, text: str = "") -> str:
        return self.tools.ask(name, *self._config(name), *options, text=text)

    def start(self, name: str, *options: str, text: str = "") -> str:
        """What it prints, whether it succeeds or not."""
        address = ("--bootstrap-server", self.tools.address)
        done: subprocess.CompletedProcess[str] = self.tools.start(
            name, *address, *self._config(name), *options, text=text
        )
        return done.stdout + done.stderr

    def _config(self, name: str) -> tuple[str, str]:
        flags = {"console-producer": "--producer.config", "console-consumer": "--consumer.config"}
        return flags.get(name, "--command-config"), str(self._file)


def written_and_read(shell: Shell, topic: str) -> str:
    shell.ask("console-producer", "--topic", topic, text="hello\n")
    reading = ("--from-beginning", "--max-messages", "1", "--timeout-ms", "30000")
    return shell.ask("console-consumer", "--topic", topic, *reading)


@pytest.mark.parametrize(
    ("listener", "mechanism"),
    [
        ("sasl", "PLAIN"),
        ("sasl", "SCRAM-SHA-256"),
        ("sasl_tls", "SCRAM-SHA-512"),
        ("sasl_tls", "OAUTHBEARER"),
        ("tls", "SCRAM-SHA-512"),
    ],
    ids=["plain", "scram-256", "scram-512-tls", "oauth-tls", "certificate"],
)
def test_records_are_written_and_read(
    release: Release,
    secured: SecuredNode,
    tmp_path: Path,
    topic: str,
    listener: str,
    mechanism: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Since 4.0 the client reads a token from nowhere that the operator has not allowed.
    allowed = f"-D{URLS}=file://{tmp_path / 'token'} -D{FILES}={tmp_path / 'token'}"
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", allowed)
    shell = Shell(release, secured, tmp_path, listener, mechanism)

    assert "hello" in written_and_read(shell, topic)


def test_a_wrong_password_is_told_so(
    release: Release, secured: SecuredNode, tmp_path: Path
) -> None:
    shell = Shell(release, secured, tmp_path, password="wrong")

    assert "invalid credentials with SASL mechanism" in shell.start("topics", "--list")


def test_users_acls_and_quotas_are_made_by_kafkas_tools(
    release: Release, secured: SecuredNode, tmp_path: Path, topic: str
) -> None:
    admin = Shell(release, secured, tmp_path)
    name = f"ann-{release.line[0]}"
    user = ("--entity-type", "users", "--entity-name", name)
    rule = ("--allow-principal", f"User:{name}", "--topic", topic)
    admin.ask("topics", "--create", "--topic", topic)
    credentials = "SCRAM-SHA-512=[iterations=8192,password=anns]"
    admin.ask("configs", "--alter", *user, "--add-config", credentials)
    admin.ask("configs", "--alter", *user, "--add-config", "producer_byte_rate=1048576")
    described = admin.ask("configs", "--describe", *user)
    ann = Shell(release, secured, tmp_path, user=name, password="anns")

    # The console's producer prints no refusal without a logger: the end of the topic tells.
    ann.start("console-producer", "--topic", topic, text="hello\n")
    before = admin.ask("get-offsets", "--topic", topic)
    hidden = ann.ask("topics", "--list")
    admin.ask("acls", "--add", *rule, "--producer")
    admin.ask("acls", "--add", *rule, "--consumer", "--group", "*")
    listed = admin.ask("acls", "--list", "--topic", topic)
    allowed = written_and_read(ann, topic)
    refused = ann.start("acls", "--list")
    admin.ask("acls", "--remove", "--force", *rule, "--producer")
    ann.start("console-producer", "--topic", topic, text="hello\n")
    after = admin.ask("get-offsets", "--topic", topic)
    admin.ask("configs", "--alter", *user, "--delete-config", "SCRAM-SHA-512")
    gone = ann.start("topics", "--list")

    assert "SCRAM-SHA-512=iterations=8192" in described
    assert "producer_byte_rate=1048576" in described
    assert before.split() == [f"{topic}:0:0"]
    assert topic not in hidden.split()
    assert f"principal=User:{name}, host=*, operation=WRITE, permissionType=ALLOW" in listed
    assert "hello" in allowed
    assert "ClusterAuthorizationException" in refused
    assert after.split() == [f"{topic}:0:1"]
    assert "invalid credentials with SASL mechanism" in gone
