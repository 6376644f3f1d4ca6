"""kcat logs in at a secured node, with each mechanism that it has, over plain text and TLS."""

import re
import subprocess

import pytest

from tests.interop.kcat.clients import Kcat
from tests.interop.programs.secured import secured
from tests.support.secured import PASSWORD, SecuredNode

__all__ = ["secured"]
pytestmark = pytest.mark.interop


def logged_in(program: str, node: SecuredNode, listener: str, mechanism: str, **more: str) -> Kcat:
    settings = node.librdkafka(listener, mechanism, **more)
    client = Kcat(program, str(settings.pop("bootstrap.servers")))
    client._command += [part for item in settings.items() for part in ("-X", "=".join(item))]
    return client


def can_scram(program: str) -> bool:
    """Whether its librdkafka is 2.6.1 or newer: older ones send the nonce twice (FINDINGS.md)."""
    shown = subprocess.run([program, "-V"], capture_output=True, text=True, check=True).stdout
    version = re.search(r"librdkafka (\d+)\.(\d+)\.(\d+)", shown)
    assert version is not None, shown
    return tuple(map(int, version.groups())) >= (2, 6, 1)


@pytest.mark.parametrize("listener", ["sasl", "sasl_tls"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_records_are_written_and_read(
    program: str, secured: SecuredNode, topic: str, listener: str, mechanism: str
) -> None:
    kcat = logged_in(program, secured, listener, mechanism)
    if mechanism != "PLAIN" and not can_scram(program):
        assert "invalid credentials with SASL mechanism" in kcat.refusal(
            "-P", "-t", topic, stdin=b"secret"
        )
        return

    kcat.ask("-P", "-t", topic, stdin=b"secret")
    read = kcat.ask("-C", "-t", topic, "-o", "beginning", "-c", "1")

    assert read.strip() == b"secret"


def test_a_wrong_password_is_told_so(program: str, secured: SecuredNode) -> None:
    kcat = logged_in(program, secured, "sasl", "PLAIN", sasl_password=f"{PASSWORD}?")

    assert "Authentication failed" in kcat.refusal("-P", "-t", "any", stdin=b"secret")
