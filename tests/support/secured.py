"""A secured node with listeners of every kind, on a thread of its own."""

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from millstream.config import Config
from millstream.security.secrets import Secret
from millstream.security.settings import ListenerSettings, OAuth, Security, Tls
from millstream.server.service import Service
from millstream.server.system.dev_certificates import make_dev_certificates
from millstream.server.system.real_ports import real_ports
from tests.support.tokens import AUDIENCE, ISSUER, Issuer

ADMIN, PASSWORD = "admin", "a secret, with = and ü"
MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "OAUTHBEARER")
START_S_MAX = 30.0
issuer = Issuer()


class SecuredNode:
    """`ports` by name of listener; `files` has the certificates."""

    def __init__(self, service: Service, loop: asyncio.AbstractEventLoop, files: Path) -> None:
        self.service = service
        self.node = service.node
        self.loop = loop
        self.files = files
        self.ports = {name: at.port for name, at in service.addresses.items()}

    def run(self, work: Any) -> Any:
        """Run a coroutine on the node's loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(START_S_MAX)

    def librdkafka(self, listener: str, mechanism: str = "SCRAM-SHA-512", **more: Any) -> Any:
        """Settings of a client of confluent-kafka."""
        is_tls, has_sasl = "tls" in listener, "sasl" in listener
        settings: dict[str, Any] = {
            "bootstrap.servers": f"localhost:{self.ports[listener]}",
            "security.protocol": ("sasl_" if has_sasl else "") + ("ssl" if is_tls else "plaintext"),
            "broker.address.family": "v4",
        }
        if is_tls:
            settings["ssl.ca.location"] = str(self.files / "ca.pem")
        if has_sasl:
            settings["sasl.mechanism"] = mechanism
            if mechanism == "OAUTHBEARER":
                settings["oauth_cb"] = lambda _: (issuer.token(sub=ADMIN), 4_000_000_000.0)
            else:
                settings |= {"sasl.username": ADMIN, "sasl.password": PASSWORD}
        return settings | {name.replace("_", "."): value for name, value in more.items()}


def secured_config(files: Path, **security: Any) -> Config:
    """Listeners `sasl`, `sasl_tls`, `tls` (client certificates) and one for each protocol."""
    make_dev_certificates(files, clients=["svc"])
    (files / "jwks.json").write_bytes(issuer.key_set())
    password = files / "password"
    password.write_text(PASSWORD, encoding="utf-8")
    password.chmod(0o600)
    tls = Tls(certificate=str(files / "server.pem"), key=str(files / "server.key"))
    mutual = replace(
        tls,
        client_ca=str(files / "ca.pem"),
        client_certificates="required",
        principal_rules=r"RULE:^CN=(.*)$/$1/L,DEFAULT",
    )
    return Config(
        storage="memory",
        host="127.0.0.1",
        security=Security(
            **{
                "protocol": "sasl_plaintext",
                "mechanisms": MECHANISMS,
                "admin_password": Secret.parse(f"file:{password}"),
                "failed_login_delay_ms": 20,
                "scram_iterations": 4096,
                # Tests of logins ask for no rights.
                "super_users": ("User:svc", "User:bob"),
                **security,
            }
        ),
        oauth=OAuth(jwks=f"file:{files / 'jwks.json'}", issuer=ISSUER, audience=AUDIENCE),
        tls=tls,
        listener={
            "sasl": ListenerSettings(protocols=("kafka", "flymq")),
            "sasl_tls": ListenerSettings(protocols=("kafka", "flymq"), security="SASL_SSL"),
            "tls": ListenerSettings(protocols=("kafka", "flymq"), security="tls", tls=mutual),
            "flux": ListenerSettings(protocols=("flux",)),
            "flux_tls": ListenerSettings(protocols=("flux",), security="sasl_tls"),
            "classic": ListenerSettings(protocols=("classic",)),
            "http": ListenerSettings(protocols=("http",)),
            "http_tls": ListenerSettings(protocols=("http",), security="sasl_tls"),
            "plain": ListenerSettings(protocols=("kafka", "flymq"), security="plaintext"),
        },
    )


@contextmanager
def running_secured(config: Config, files: Path) -> Iterator[SecuredNode]:
    started: list[SecuredNode | BaseException] = []
    is_up = threading.Event()

    async def live() -> None:
        service = Service(config, real_ports(config))

        async def announce() -> None:
            await service.opened.wait()
            started.append(SecuredNode(service, asyncio.get_running_loop(), files))
            is_up.set()

        async with asyncio.TaskGroup() as group:
            group.create_task(announce())
            await service.run()

    def serve() -> None:
        try:
            asyncio.run(live(), debug=bool(os.environ.get("DEBUG_LOOP")))
        except BaseException as problem:
            started.append(problem)
            is_up.set()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    assert is_up.wait(START_S_MAX)
    node = started[0]
    if isinstance(node, BaseException):
        raise node
    try:
        yield node
    finally:
        node.loop.call_soon_threadsafe(node.service.stop)
        thread.join(START_S_MAX)
