"""The audit trail of a node with every listener: who came by which protocol, and no secret."""

import base64
import http.client
import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from millstream.classic import BrokerClient
from millstream.cli.main import commands
from millstream.client import Denied, connect
from millstream.engine.audit.trail import AuditQuery, all_pages
from millstream.model import SYSTEM_SESSION
from millstream.protocols.flymq.wire import bodies, user_bodies
from millstream.protocols.flymq.wire.frames import Opcode
from millstream.security.audit_events import Event
from tests.protocols.secured.test_hostile import PLAIN, authenticate, handshake, log_in
from tests.protocols.secured.test_other_protocols import dial, flymq_reply, line
from tests.protocols.secured.test_rights import address_of, login
from tests.support.flymq import asking
from tests.support.secured import ADMIN, PASSWORD, SecuredNode, running_secured, secured_config

WRONG = "a canary that is no password"
GUEST, GUEST_PASSWORD = "guest", "the canary of a guest"


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    files = tmp_path_factory.mktemp("audited")
    config = secured_config(files)
    config = replace(config, audit=replace(config.audit, window_ms=200))
    with running_secured(config, files) as node:
        users = node.node.users

        async def make_guest() -> None:
            from millstream.control.commands import UserChange

            made = await users.credentials(SYSTEM_SESSION, GUEST_PASSWORD)
            change = UserChange(name=GUEST, roles=("guest",), credentials=made)
            assert not await users.alter(SYSTEM_SESSION, [change])

        node.run(make_guest())
        yield node


def trail(node: SecuredNode, **query: object) -> list[Event]:
    """The events that match, oldest first."""

    async def read() -> list[Event]:
        assert node.node.audit.writer is not None
        assert await node.node.audit.writer.flush(is_last=True)
        pages = all_pages(node.node.audit, SYSTEM_SESSION, AuditQuery(**query))  # type: ignore[arg-type]
        return [each.event async for page in pages for each in page.events if each.event][::-1]

    events: list[Event] = node.run(read())
    return events


def protocols(events: list[Event], user: str) -> set[str]:
    return {event.data.protocol for event in events if event.data.principal == f"User:{user}"}


def log_in_everywhere(node: SecuredNode, user: str, password: str) -> None:
    """Try to log in by each protocol, and go away."""
    with dial(node, "sasl") as connection:
        handshake(connection, "PLAIN")
        authenticate(connection, f"\0{user}\0{password}".encode())
    with dial(node, "sasl") as connection:
        connection.sendall(asking(Opcode.AUTH, user_bodies.Authenticate(user, password)))
        flymq_reply(connection)
    with dial(node, "flux") as connection:
        greeting = json.dumps({"user": user, "pass": password})
        connection.sendall(f"CONNECT {greeting}\r\n".encode())
        line(connection)
    client = BrokerClient("127.0.0.1", node.ports["classic"], user=user, password=password)
    with suppress(ConnectionError):
        client.connect()
    client.disconnect()
    web = http.client.HTTPConnection("127.0.0.1", node.ports["http"], timeout=10)
    basic = base64.b64encode(f"{user}:{password}".encode()).decode()
    web.request("GET", "/metrics", headers={"Authorization": f"Basic {basic}"})
    web.getresponse().read()
    web.close()


EVERY = {"kafka", "flymq", "flux", "classic", "http"}


def test_logins_of_every_protocol_are_noted(audited: SecuredNode) -> None:
    log_in_everywhere(audited, ADMIN, PASSWORD)
    log_in_everywhere(audited, ADMIN, WRONG)

    assert protocols(trail(audited, events=("auth.success",)), ADMIN) >= EVERY
    failed = trail(audited, events=("auth.failure",))
    assert protocols(failed, ADMIN) >= EVERY
    assert {event.data.details["reason"] for event in failed} == {"wrong password"}
    assert protocols(trail(audited, events=("auth.logout",)), ADMIN) >= {"kafka", "flymq", "flux"}


def test_refusals_name_the_request_of_their_protocol(audited: SecuredNode) -> None:
    with dial(audited, "sasl") as connection:
        connection.sendall(asking(Opcode.AUTH, user_bodies.Authenticate(GUEST, GUEST_PASSWORD)))
        flymq_reply(connection)
        connection.sendall(asking(Opcode.CREATE_TOPIC, bodies.CreateTopic("mine", 1)))
        flymq_reply(connection)
    with dial(audited, "flux") as connection:
        connection.sendall(f"AUTH {GUEST} x\r\n".encode())
        line(connection)
        greeting = json.dumps({"user": GUEST, "pass": GUEST_PASSWORD})
        connection.sendall(f"CONNECT {greeting}\r\nPUB mine 2\r\nhi\r\n".encode())
        assert line(connection) == "+OK"
        assert line(connection).startswith("-ERR DENIED")
        connection.sendall(b"JOIN 2 localhost:1\r\n")
        assert line(connection).startswith("-ERR DENIED")
    with (
        connect(address_of(audited), **login(GUEST, GUEST_PASSWORD)) as client,
        pytest.raises(Denied),
    ):
        client.users.list()

    denied = {event.data.action: event for event in trail(audited, events=("access.denied",))}
    assert {"CREATE_TOPIC", "PUB", "JOIN", "DescribeUsers v0"} <= set(denied)
    assert denied["PUB"].data.operation in {"WRITE", "CREATE"}
    assert denied["PUB"].data.resource == "topic:mine"
    assert denied["PUB"].data.roles == ()
    assert denied["PUB"].data.mechanism == "PLAIN"
    assert denied["JOIN"].data.operation == "ALTER"


def test_certificates_and_reloads_are_noted(audited: SecuredNode) -> None:
    context = ssl.create_default_context(cafile=str(audited.files / "ca.pem"))
    context.load_cert_chain(audited.files / "svc.pem", audited.files / "svc.key")
    with (
        socket.create_connection(("127.0.0.1", audited.ports["tls"]), 10) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as wrapped,
    ):
        wrapped.sendall(asking(Opcode.WHOAMI, bodies.Nothing()))
        flymq_reply(wrapped)
    audited.run(audited.service.listeners.reload())

    assert [e.data.mechanism for e in trail(audited, principal="svc")][:2] == ["TLS", "TLS"]
    reloads = trail(audited, events=("tls.reload",))
    assert {event.data.details["listener"] for event in reloads} >= {"tls", "sasl_tls"}


def test_the_trail_is_asked_by_kafka_flymq_and_the_command_line(
    audited: SecuredNode, tmp_path: Path
) -> None:
    with dial(audited, "sasl") as connection:
        log_in(connection)
    with connect(address_of(audited), **login()) as client:
        assert client.audit.query(events=["auth.*"], principal=ADMIN, limit=3)
        assert client.audit.verify().problems == ()
        head = next(iter(client.audit.verify().heads.values()))
        assert client.audit.verify(heads=[head]).problems == ()
        assert client.audit.verify(heads=[head[:-1] + "x"]).problems
    with dial(audited, "sasl") as connection:
        connection.sendall(asking(Opcode.AUTH, user_bodies.Authenticate(ADMIN, PASSWORD)))
        flymq_reply(connection)
        query = user_bodies.AuditQuery(0, 0, ("auth.success",), ADMIN, "", "", "", 2, 0)
        connection.sendall(asking(Opcode.AUDIT_QUERY, query))
        opcode, answer = flymq_reply(connection)
        assert opcode == Opcode.AUDIT_QUERY
        assert int.from_bytes(answer[:4]) == 2
        connection.sendall(asking(Opcode.AUDIT_EXPORT, user_bodies.ExportAudit(query, "csv")))
        _, answer = flymq_reply(connection)
        assert b"ID,Timestamp,Type,User,ClientIP" in answer
    settings = [part for key, value in login().items() for part in ("-X", f"{key}={value}")]
    common = ["--bootstrap", address_of(audited), *settings]
    for arguments in (
        ["audit", "query", "--type", "auth.success", "--limit", "2", "--output", "json"],
        ["audit", "export", "--format", "csv", "--file", str(tmp_path / "trail.csv")],
        ["audit", "verify"],
    ):
        result = CliRunner().invoke(commands, [*arguments, *common])
        assert result.exit_code == 0, result.output
    reads = trail(audited, events=("audit.read",))
    assert {event.data.protocol for event in reads} >= {"kafka", "flymq"}


def test_no_secret_is_in_the_trail(audited: SecuredNode) -> None:
    log_in_everywhere(audited, ADMIN, WRONG)
    log_in_everywhere(audited, GUEST, GUEST_PASSWORD)

    async def stored() -> bytes:
        page = await audited.node.audit.follow(SYSTEM_SESSION, AuditQuery(), events_max=0)
        return b"".join(each.value for each in page.events)

    trail(audited)
    text = audited.run(stored())
    assert text
    for canary in (PASSWORD, WRONG, GUEST_PASSWORD, base64.b64encode(PLAIN).decode()):
        assert canary.encode() not in text
        assert json.dumps(canary)[1:-1].encode() not in text
