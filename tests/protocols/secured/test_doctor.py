"""`millstream doctor` at a secured node: chain, name, days left, mechanisms, without a password."""

import json
from typing import Any

import pytest
from click.testing import CliRunner

from millstream.cli.main import commands
from tests.support.secured import ADMIN, PASSWORD, SecuredNode


def examined(
    secured: SecuredNode, listener: str, host: str = "localhost", **settings: str
) -> dict[str, Any]:
    """The findings by check."""
    shown = [f"{key.replace('_', '.')}={value}" for key, value in settings.items()]
    flags = [part for setting in shown for part in ("-X", setting)]
    address = f"{host}:{secured.ports[listener]}"
    result = CliRunner().invoke(
        commands, ["doctor", "--bootstrap", address, *flags, "--output", "json"]
    )
    return {check["check"]: check for check in json.loads(result.stdout)}


def test_a_client_with_everything_right_is_told_so(secured: SecuredNode) -> None:
    findings = examined(
        secured,
        "sasl_tls",
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_username=ADMIN,
        sasl_password=PASSWORD,
        ssl_ca_location=str(secured.files / "ca.pem"),
    )

    assert {check["verdict"] for check in findings.values()} <= {"ok", "warning"}, findings
    assert "ends in 36" in findings["certificate"]["said"]
    assert "SCRAM-SHA-256, PLAIN, OAUTHBEARER" in findings["login"]["said"]
    assert "a broker answers" in findings["protocol"]["said"]


@pytest.mark.parametrize(
    ("listener", "settings", "check", "said"),
    [
        ("sasl_tls", {"security_protocol": "SASL_SSL"}, "certificate", "self-signed|unable to get"),
        ("sasl", {}, "login", "the port asks for one: SCRAM-SHA-512"),
        (
            "sasl",
            {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "GSSAPI"},
            "login",
            "GSSAPI is not among",
        ),
        ("plain", {"security_protocol": "SASL_PLAINTEXT"}, "login", "the port takes none"),
        ("sasl_tls", {}, "TLS", "but it is off here"),
        ("sasl", {"security_protocol": "SASL_SSL"}, "TLS", "the port does not speak it"),
    ],
)
def test_what_does_not_fit_is_named(
    secured: SecuredNode, listener: str, settings: dict[str, str], check: str, said: str
) -> None:
    finding = examined(secured, listener, **settings)[check]

    assert finding["verdict"] == "problem"
    assert any(part in finding["said"] for part in said.split("|")), finding
    assert finding["advice"]
