"""Logins that end: sessions, disabled and deleted users, replaced certificates, restarts."""

import asyncio
import logging
import shutil
import ssl
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from millstream.control.commands import UserChange
from millstream.kafka_wire.apis.discovery import MetadataRequest
from millstream.model import SYSTEM_SESSION
from millstream.server.system.dev_certificates import make_dev_certificates
from tests.protocols.secured.test_hostile import (
    PLAIN,
    authenticate,
    handshake,
    is_closed,
    log_in,
    reply,
    request,
)
from tests.protocols.secured.test_other_protocols import dial
from tests.support.secured import PASSWORD, SecuredNode, running_secured, secured_config

OTHER_MECHANISM = (
    "SASL mechanism 'SCRAM-SHA-256' requested by client is not supported for "
    "re-authentication of mechanism 'PLAIN'"
)
OTHER_PRINCIPAL = "Cannot change principals during re-authentication from User.admin: User.bob"


def test_a_session_ends_unless_the_client_logs_in_again(tmp_path: Path) -> None:
    config = secured_config(tmp_path, session_ms_max=2_500)
    with running_secured(config, tmp_path) as node, dial(node, "sasl") as connection:
        handshake(connection, "PLAIN")
        first = authenticate(connection, PLAIN)
        early = handshake(connection, "PLAIN")
        time.sleep(1.1)
        again = handshake(connection, "PLAIN")
        second = authenticate(connection, PLAIN)
        connection.sendall(request(MetadataRequest(topics=None)))
        answered = reply(connection)
        time.sleep(2.6)
        connection.sendall(request(MetadataRequest(topics=None)))

        assert 0 < first.session_lifetime_ms <= 2_500
        assert early.error_code == 34
        assert (again.error_code, second.error_code) == (0, 0)
        assert answered
        assert is_closed(connection)


def test_who_logs_in_again_is_the_same_by_the_same_mechanism(tmp_path: Path) -> None:
    config = secured_config(tmp_path, session_ms_max=60_000)
    with running_secured(config, tmp_path) as node:
        change_user(node, "bob", "bobs")
        texts = []
        for mechanism, token in (("SCRAM-SHA-256", b"n,,n=admin,r=abc"), ("PLAIN", b"\0bob\0bobs")):
            with dial(node, "sasl") as connection:
                log_in(connection)
                time.sleep(1.1)
                handshake(connection, mechanism)
                refused = authenticate(connection, token)
                texts.append(refused.error_message)
                assert refused.error_code == 58
                assert is_closed(connection)

    assert texts == [OTHER_MECHANISM, OTHER_PRINCIPAL]


def change_user(node: SecuredNode, name: str, password: str = "", **changes: Any) -> None:
    async def change() -> None:
        users = node.node.users
        made = await users.credentials(SYSTEM_SESSION, password) if password else {}
        altered = UserChange(name=name, credentials=made, **changes)
        assert not await users.alter(SYSTEM_SESSION, [altered])

    node.run(change())


@pytest.mark.parametrize("change", [{"is_enabled": False}, {"is_deleted": True}])
def test_the_connections_of_a_former_user_end_within_a_second(
    secured: SecuredNode, change: dict[str, Any]
) -> None:
    change_user(secured, "eve", "eves", is_enabled=True)
    with dial(secured, "sasl") as connection:
        handshake(connection, "PLAIN")
        assert authenticate(connection, b"\0eve\0eves").error_code == 0
        change_user(secured, "eve", **change)
        connection.settimeout(3)

        assert is_closed(connection)
    with dial(secured, "sasl") as connection:
        handshake(connection, "PLAIN")
        assert authenticate(connection, b"\0eve\0eves").error_code == 58


def test_a_certificate_is_replaced_while_connections_stay(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with (
        running_secured(secured_config(tmp_path), tmp_path) as node,
        dial(node, "sasl_tls") as connection,
    ):
        log_in(connection)
        before = serial(node)
        shutil.copy(tmp_path / "svc.key", tmp_path / "server.key")
        assert node.run(node.service.listeners.reload()) is False
        unfitting = serial(node)
        fresh = tmp_path / "fresh"
        fresh.mkdir()
        for name in ("ca.pem", "ca.key"):
            shutil.copy(tmp_path / name, fresh / name)
        make_dev_certificates(fresh, hosts=["localhost"])
        for name in ("server.pem", "server.key"):
            shutil.copy(fresh / name, tmp_path / name)
        assert node.run(node.service.listeners.reload()) is True
        connection.sendall(request(MetadataRequest(topics=None)))

        assert reply(connection)
        assert before == unfitting != serial(node)
    assert "kept the old certificate: the key" in caplog.text


def serial(node: SecuredNode) -> object:
    with dial(node, "flux_tls") as connection:
        assert isinstance(connection, ssl.SSLSocket)
        certificate = connection.getpeercert()
        assert certificate is not None
        return certificate["serialNumber"]


def test_users_and_the_first_password_survive_a_kill(tmp_path: Path) -> None:
    base = secured_config(tmp_path)
    config = replace(
        base,
        storage="disk",
        data_dir=str(tmp_path / "data"),
        security=replace(base.security, admin_password=type(base.security.admin_password)()),
    )
    with running_secured(config, tmp_path) as node:
        change_user(node, "ann", "anns", roles=("consumer",))
        salt = node.node.users.access.salt_key
        made = dict(node.node.users.access.users)
    password_file = tmp_path / "data" / "initial-admin-password"
    password = password_file.read_text().strip()
    with running_secured(config, tmp_path) as node:
        assert dict(node.node.users.access.users) == made
        assert node.node.users.access.salt_key == salt
        assert password_file.stat().st_mode & 0o777 == 0o600
        with dial(node, "sasl") as connection:
            handshake(connection, "PLAIN")
            assert authenticate(connection, f"\0admin\0{password}".encode()).error_code == 0


def test_no_log_line_has_a_secret(secured: SecuredNode, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    canary = "canary-password"
    with dial(secured, "sasl") as connection:
        handshake(connection, "PLAIN")
        authenticate(connection, f"\0admin\0{canary}".encode())
    with dial(secured, "flux") as connection:
        connection.sendall(f"AUTH admin {canary}\r\n".encode())
        connection.recv(1000)

    async def metrics() -> str:
        await asyncio.sleep(0)
        return "".join(str(sample) for sample in secured.node.metrics.samples())

    assert "login failed" in caplog.text
    assert canary not in caplog.text
    assert PASSWORD not in caplog.text
    assert canary not in secured.run(metrics())
