"""Logins: each mechanism lets a client in, over plain text and TLS, and no wrong password does.

A folder's test module subclasses `Secured`, which makes pytest collect it there.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.interop.programs.process import Program, Refused, from_wire, plain
from tests.support.secured import ADMIN, PASSWORD, SecuredNode, running_secured, secured_config


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    files = tmp_path_factory.mktemp("secured")
    with running_secured(secured_config(files), files) as node:
        yield node


@contextmanager
def logged_in(
    node: SecuredNode,
    command: list[str | Path],
    log: Path,
    *,
    listener: str = "sasl",
    mechanism: str = "SCRAM-SHA-512",
    password: str = PASSWORD,
) -> Iterator[Program]:
    """A client program that logs in as the administrator."""
    variables = {"MECHANISM": mechanism, "USER": ADMIN, "PASSWORD": password}
    if "tls" in listener:
        variables["CA"] = str(node.files / "ca.pem")
    settings = [f"INTEROP_{name}={value}" for name, value in variables.items()]
    program = Program(["env", *settings, *command], f"localhost:{node.ports[listener]}", log)
    try:
        yield program
    finally:
        program.kill()


class Secured:
    @pytest.mark.parametrize("listener", ["sasl", "sasl_tls"])
    @pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
    def test_records_are_written_and_read(
        self,
        secured: SecuredNode,
        command: list[str | Path],
        tmp_path: Path,
        topic: str,
        listener: str,
        mechanism: str,
    ) -> None:
        log = tmp_path / "client.log"
        with logged_in(secured, command, log, listener=listener, mechanism=mechanism) as client:
            client.call("create_topic", topic=topic, partitions=1)
            client.call("produce", topic=topic, records=plain(["secret"]))
            (record,) = from_wire(client.call("read", topic=topic, count=1))

        assert record.value == b"secret"

    def test_a_wrong_password_is_refused(
        self, secured: SecuredNode, command: list[str | Path], tmp_path: Path, topic: str
    ) -> None:
        log = tmp_path / "client.log"
        with (
            logged_in(secured, command, log, password="wrong") as client,
            pytest.raises(Refused, match=r"(?i)authentication|credentials"),
        ):
            client.call("create_topic", topic=topic, partitions=1)
