"""The same user and password at FlyMQ, Flux, classic and HTTP; nothing before a login."""

import base64
import http.client
import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from millstream.classic import BrokerClient
from millstream.protocols.classic.wire import Frame, Kind, decode, encode
from millstream.protocols.flymq.wire import bodies, user_bodies
from millstream.protocols.flymq.wire.frames import HEAD, Opcode
from tests.support.flymq import asking
from tests.support.secured import ADMIN, PASSWORD, SecuredNode, issuer
from tests.support.sockets import receive_exactly


@contextmanager
def dial(secured: SecuredNode, listener: str) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", secured.ports[listener]), 10) as plain:
        if not listener.endswith("tls"):
            yield plain
            return
        context = ssl.create_default_context(cafile=str(secured.files / "ca.pem"))
        with context.wrap_socket(plain, server_hostname="localhost") as wrapped:
            yield wrapped


def line(connection: socket.socket) -> str:
    data = b""
    while not data.endswith(b"\r\n"):
        data += receive_exactly(connection, 1)
    return data.decode().strip()


# -- Flux ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("listener", ["flux", "flux_tls"])
def test_a_flux_client_logs_in_and_publishes(secured: SecuredNode, listener: str) -> None:
    with dial(secured, listener) as connection:
        greeting = json.dumps({"user": ADMIN, "pass": PASSWORD})
        connection.sendall(b"PUB orders 5\r\nhello\r\nINFO\r\nPING\r\n")
        refused, info, pong = line(connection), line(connection), line(connection)
        connection.sendall(f"CONNECT {greeting}\r\n".encode())
        answer = line(connection)
        connection.sendall(b"PUB orders 5\r\nhello\r\n")
        published = line(connection)

    assert refused.startswith("-ERR AUTHENTICATION_REQUIRED")
    assert set(json.loads(info.removeprefix("INFO "))) == {
        "version",
        "auth_required",
        "tls_required",
    }
    assert pong == "PONG"
    assert answer == "+OK"
    assert published.startswith("+OK")


def test_a_person_with_a_terminal_logs_in_by_auth_and_a_program_by_token(
    secured: SecuredNode,
) -> None:
    secured.run(_make_user(secured, "typist", "letters"))
    with dial(secured, "flux") as connection:
        connection.sendall(b"AUTH typist letters\r\n")
        assert line(connection) == "+OK"
    with dial(secured, "flux") as connection:
        connection.sendall(b'CONNECT {"auth_token": "%b"}\r\n' % issuer.token().encode())
        assert line(connection) == "+OK"


async def _make_user(secured: SecuredNode, name: str, password: str) -> None:
    from millstream.control.commands import UserChange
    from millstream.model import SYSTEM_SESSION

    users = secured.node.users
    made = await users.credentials(SYSTEM_SESSION, password)
    change = UserChange(name=name, roles=("consumer",), credentials=made, is_enabled=True)
    assert not await users.alter(SYSTEM_SESSION, [change])


def test_three_wrong_passwords_end_a_flux_connection(secured: SecuredNode) -> None:
    with dial(secured, "flux") as connection:
        for _ in range(3):
            connection.sendall(b"AUTH admin wrong\r\n")
            assert line(connection).startswith("-ERR AUTHENTICATION_FAILED")
        with pytest.raises(ConnectionResetError):
            receive_exactly(connection, 1)


# -- FlyMQ -----------------------------------------------------------------------------------------


def flymq_reply(connection: socket.socket) -> tuple[int, bytes]:
    head = receive_exactly(connection, HEAD.size)
    _, _, opcode, _, size = HEAD.unpack(head)
    return opcode, receive_exactly(connection, size)


@pytest.mark.parametrize("listener", ["sasl", "sasl_tls"])
def test_a_flymq_client_logs_in(secured: SecuredNode, listener: str) -> None:
    with dial(secured, listener) as connection:
        connection.sendall(asking(Opcode.LIST_TOPICS, bodies.Nothing()))
        _, refused = flymq_reply(connection)
        login = user_bodies.Authenticate(ADMIN, PASSWORD)
        connection.sendall(asking(Opcode.AUTH, login))
        _, answer = flymq_reply(connection)
        connection.sendall(asking(Opcode.WHOAMI, bodies.Nothing()))
        _, identity = flymq_reply(connection)
        connection.sendall(asking(Opcode.LIST_TOPICS, bodies.Nothing()))
        opcode, _ = flymq_reply(connection)

    assert b"authentication required" in refused
    assert answer[0] == 1
    assert ADMIN.encode() in identity
    assert b"write" in identity
    assert opcode == Opcode.LIST_TOPICS


def test_a_wrong_password_at_flymq_is_told_in_its_own_words(secured: SecuredNode) -> None:
    with dial(secured, "sasl") as connection:
        connection.sendall(asking(Opcode.AUTH, user_bodies.Authenticate(ADMIN, "wrong")))
        _, answer = flymq_reply(connection)

    assert answer[0] == 0
    assert b"invalid username or password" in answer


# -- classic ---------------------------------------------------------------------------------------


def classic_answer(connection: socket.socket) -> Frame:
    while True:
        head = receive_exactly(connection, 4)
        frame = decode(head + receive_exactly(connection, int.from_bytes(head) - 4))
        if frame.kind != Kind.HEARTBEAT:
            return frame


def test_a_classic_client_logs_in(secured: SecuredNode) -> None:
    with dial(secured, "classic") as connection:
        create = Frame(Kind.CREATE_TOPIC, 1, 0, {"topic": "classics"})
        connection.sendall(encode(create))
        refused = classic_answer(connection)
        wrong = {"user": ADMIN, "password": "wrong"}
        connection.sendall(encode(Frame(Kind.AUTHENTICATE, 2, 0, wrong)))
        failed = classic_answer(connection)
        right = {"user": ADMIN, "password": PASSWORD}
        connection.sendall(encode(Frame(Kind.AUTHENTICATE, 3, 0, right)))
        done = classic_answer(connection)
        connection.sendall(encode(create))
        created = classic_answer(connection)

    assert refused.properties["error"] == "Authentication required"
    assert failed.properties["error"] == "invalid username or password"
    assert (done.properties["status"], done.properties["roles"]) == ("success", "admin")
    assert created.properties["status"] == "success"


def test_the_client_of_the_classic_protocol_logs_in(secured: SecuredNode) -> None:
    port = secured.ports["classic"]
    with BrokerClient("127.0.0.1", port, user=ADMIN, password=PASSWORD) as client:
        assert client.create_topic("more-classics")
    with pytest.raises(ConnectionError, match="invalid username or password"):
        BrokerClient("127.0.0.1", port, user=ADMIN, password="wrong").connect()


# -- HTTP ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("listener", ["http", "http_tls"])
def test_metrics_need_a_login(secured: SecuredNode, listener: str) -> None:
    port = secured.ports[listener]
    connection = http.client.HTTPConnection("localhost", port, timeout=10)
    if listener == "http_tls":
        context = ssl.create_default_context(cafile=str(secured.files / "ca.pem"))
        connection = http.client.HTTPSConnection("localhost", port, timeout=10, context=context)

    def status(authorization: str) -> tuple[int, str]:
        headers = {"Authorization": authorization} if authorization else {}
        connection.request("GET", "/metrics", headers=headers)
        response = connection.getresponse()
        response.read()
        return response.status, response.headers.get("WWW-Authenticate", "")

    basic = base64.b64encode(f"{ADMIN}:{PASSWORD}".encode()).decode()
    wrong = base64.b64encode(f"{ADMIN}:wrong".encode()).decode()

    assert status("")[0] == 401
    assert "Basic" in status("")[1]
    assert status(f"Basic {wrong}")[0] == 401
    assert status("Basic !")[0] == 401
    assert status(f"Basic {basic}")[0] == 200
    assert status(f"Basic {basic}")[0] == 200
    connection.close()
    assert status(f"Bearer {issuer.token(sub=ADMIN)}")[0] == 200
    connection.close()
