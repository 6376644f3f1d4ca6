"""Flaws that other brokers had, tried on this one. docs/security/known-flaws.md names each test."""

import ast
import base64
import hashlib
import re
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any

import jwt
import pytest

from millstream.kafka_wire.apis.data import FetchRequest
from millstream.kafka_wire.apis.discovery import ApiVersionsRequest
from millstream.kafka_wire.apis.table import APIS
from millstream.model import SYSTEM_SESSION, Acks, TopicPartition
from millstream.server.node import Node
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
from tests.support.nodes import batch
from tests.support.secured import ADMIN, PASSWORD, SecuredNode, issuer
from tests.support.source_tree import ROOT
from tests.support.tokens import Issuer

FAILED = 58
REFUSED_TOKEN = b'{"status":"invalid_token"}'
PAGE = ROOT / "docs" / "security" / "known-flaws.md"


# -- the table -------------------------------------------------------------------------------------


def test_every_test_that_the_page_names_is_there() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE.read_text(encoding="utf-8"))
    missing = [f"{path}::{name}" for path, name in named if name not in _functions(ROOT / path)]

    assert len(named) >= 20
    assert missing == []


def _functions(path: Any) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


# -- tokens: CVE-2026-110985, CVE-2026-33557, CVE-2021-22160, CVE-2026-49998 -----------------------


def shared_secret_token() -> str:
    """Signed with the public key as if it were a shared secret; PyJWT refuses to make one."""
    body = jwt.encode({"sub": ADMIN}, "x" * 32, algorithm="HS256", headers={"kid": "r1"})
    signed, _, _ = body.rpartition(".")
    digest = hashlib.sha256(issuer.public_pem() + signed.encode()).digest()
    return f"{signed}.{base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"


@pytest.mark.parametrize(
    "token",
    [
        lambda: jwt.encode({"sub": ADMIN}, "", algorithm="none", headers={"kid": "r1"}),
        shared_secret_token,
        lambda: Issuer().token(sub=ADMIN),  # Another issuer's key under the same kid.
        lambda: issuer.token(sub=ADMIN, iss="https://other.example"),
        lambda: issuer.token(sub=ADMIN, aud="other"),
        lambda: issuer.token(sub=ADMIN, exp=int(time.time()) - 1_000),
    ],
    ids=["none", "shared secret", "same kid", "issuer", "audience", "expired"],
)
def test_a_token_that_proves_nothing_is_refused(
    secured: SecuredNode, token: Callable[[], str]
) -> None:
    with dial(secured, "sasl") as connection:
        handshake(connection, "OAUTHBEARER")
        first = authenticate(connection, b"n,,\x01auth=Bearer " + token().encode() + b"\x01\x01")
        second = authenticate(connection, b"\x01")

        assert (first.error_code, first.auth_bytes) == (0, REFUSED_TOKEN)
        assert second.error_code == FAILED
        assert is_closed(connection)


# -- decompression: CVE-2026-111073, CVE-2023-34455 ------------------------------------------------


def test_metrics_of_clients_which_would_be_unpacked_are_not_taken() -> None:
    assert {71, 72}.isdisjoint(APIS)


# -- identity: CVE-2017-12610, CVE-2021-38153 ------------------------------------------------------


@pytest.mark.parametrize(
    ("mechanism", "message"),
    [
        ("PLAIN", b"root" + PLAIN),
        ("SCRAM-SHA-256", b"n,a=root,n=admin,r=abcdefgh"),
        ("OAUTHBEARER", b"n,a=root,\x01auth=Bearer %s\x01\x01"),
    ],
)
def test_no_user_acts_as_another(secured: SecuredNode, mechanism: str, message: bytes) -> None:
    """The authorization id is another name than that of the user who proves itself."""
    if b"%s" in message:
        message = message % issuer.token(sub=ADMIN).encode()
    with dial(secured, "sasl") as connection:
        handshake(connection, mechanism)
        answer = authenticate(connection, message)
        if mechanism == "OAUTHBEARER" and answer.error_code == 0:
            assert answer.auth_bytes == REFUSED_TOKEN
            answer = authenticate(connection, b"\x01")

        assert answer.error_code == FAILED
        assert is_closed(connection)


def test_an_unknown_user_costs_what_a_known_one_does(
    secured: SecuredNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By work, not by the clock: the same number of hashes of the same length."""
    hashes: list[tuple[str, int]] = []
    derive = hashlib.pbkdf2_hmac

    def counted(name: str, password: bytes, salt: bytes, iterations: int) -> bytes:
        hashes.append((name, iterations))
        return derive(name, password, salt, iterations)

    monkeypatch.setattr(hashlib, "pbkdf2_hmac", counted)
    work = {}
    for user in (ADMIN, "stranger"):
        hashes.clear()
        with dial(secured, "sasl") as connection:
            handshake(connection, "PLAIN")
            assert authenticate(connection, f"\0{user}\0wrong".encode()).error_code == FAILED
        work[user] = list(hashes)

    assert work[ADMIN]
    assert work[ADMIN] == work["stranger"]


# -- replicas: CVE-2018-1288 -----------------------------------------------------------------------


async def one_record(node: Node, topic: str) -> None:
    await node.topics.create(SYSTEM_SESSION, topic)
    await node.partitions.append(
        SYSTEM_SESSION, TopicPartition(topic, 0), batch(b"the only one"), Acks.ALL
    )


def test_a_client_that_calls_itself_a_replica_gets_and_moves_nothing_more(
    secured: SecuredNode,
) -> None:
    """Behind the end, too: a follower's fetch from there would move the high watermark."""
    secured.run(one_record(secured.node, "replicated"))
    answers: dict[int, list[bytes]] = {0: [], 1: []}
    with dial(secured, "sasl") as connection:
        log_in(connection)
        for replica_id in (-1, 0, 1, 7):
            for offset, gathered in answers.items():
                connection.sendall(request(fetch(replica_id, offset), 11))
                gathered.append(reply(connection))

    assert len(set(answers[0])) == len(set(answers[1])) == 1
    assert b"the only one" in answers[0][0]


def fetch(replica_id: int, offset: int) -> FetchRequest:
    part = FetchRequest.Topic.Partition(partition=0, fetch_offset=offset, partition_max_bytes=1_000)
    topic = FetchRequest.Topic(topic="replicated", partitions=[part])
    return FetchRequest(replica_id=replica_id, max_wait_ms=0, min_bytes=0, topics=[topic])


# -- TLS: CVE-2025-23419 ---------------------------------------------------------------------------


VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


def client_context(secured: SecuredNode, version: ssl.TLSVersion) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(secured.files / "ca.pem"))
    context.minimum_version = context.maximum_version = version
    return context


def session_of(
    secured: SecuredNode,
    listener: str,
    context: ssl.SSLContext,
    session: ssl.SSLSession | None = None,
) -> ssl.SSLSession | None:
    """The session after one request and its answer."""
    with (
        socket.create_connection(("127.0.0.1", secured.ports[listener]), 10) as plain,
        context.wrap_socket(plain, server_hostname="localhost", session=session) as wrapped,
    ):
        wrapped.sendall(request(ApiVersionsRequest(), 0))
        assert reply(wrapped)
        return wrapped.session


@pytest.mark.parametrize("version", VERSIONS)
def test_with_client_certificates_there_is_no_ticket(
    secured: SecuredNode, version: ssl.TLSVersion
) -> None:
    context = client_context(secured, version)
    context.load_cert_chain(secured.files / "svc.pem", secured.files / "svc.key")

    session = session_of(secured, "tls", context)

    assert session is None or not session.has_ticket


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_of_another_listener_is_no_certificate(
    secured: SecuredNode, version: ssl.TLSVersion
) -> None:
    context = client_context(secured, version)
    session = session_of(secured, "sasl_tls", context)

    with pytest.raises((ssl.SSLError, ConnectionResetError)):
        session_of(secured, "tls", context, session)


# -- paths: CVE-2026-105949 ------------------------------------------------------------------------

SECRET_PATHS = ("/v1/topics", "/v1/users", "/api/v1/users", "/metrics", "/subjects")


def mutations(path: str) -> list[str]:
    head, _, tail = path.rpartition("/")
    return [
        path,
        f"{path}/",
        f"{path}/extra",
        f"/{path}",
        f"{head}//{tail}",
        f"/health/..{path}",
        f"/health/%2e%2e{path}",
        f"/health{path}",
        f"/v1/session{path}",
        f"{head}/./{tail}",
        f"{path}%00",
        f"{path}%2F",
        f"{path};/health",
        f"{path}?/health",
        path.upper(),
        path.replace("/", "/%2F", 1),
        path.replace("/", "%2F"),
        f"/..;{path}",
    ]


@pytest.mark.parametrize("path", SECRET_PATHS)
def test_no_spelling_of_a_path_gets_past_the_login(secured: SecuredNode, path: str) -> None:
    for spelled in mutations(path):
        with dial(secured, "http") as connection:
            head = f"GET {spelled} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            connection.sendall(head.encode())
            data = b""
            while piece := connection.recv(4096):
                data += piece

        status = int(data.split(b" ", 2)[1])
        assert status in (400, 401), (spelled, data[:200])


def test_the_password_itself_is_in_no_answer(secured: SecuredNode) -> None:
    """CVE-2026-33558 at the wire; logs, trail and metrics are searched by `test_lives`."""
    with dial(secured, "sasl") as connection:
        handshake(connection, "PLAIN")
        answer = authenticate(connection, f"\0{ADMIN}\0{PASSWORD}x".encode())

    assert PASSWORD not in (answer.error_message or "")
