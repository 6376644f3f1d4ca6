"""Peer links by mutual TLS: both sides show a certificate of the cluster's CA that names them."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from ssl import PEM_cert_to_DER_cert
from typing import Any

import pytest
import uvloop

from millstream.errors import StartupError
from millstream.raft.link_messages import Heartbeat
from millstream.security.settings import Peers
from millstream.server.peering.sockets import PeerSockets
from millstream.server.system.dev_certificates import make_dev_certificates
from millstream.server.system.peer_ports import IN_CLEAR
from millstream.server.system.secrets import SystemSecrets
from millstream.server.system.tls import PeerTls
from tests.support.nodes import InlineThreads
from tests.unit.server.peering.test_sockets import (
    ONE,
    TWO,
    Recorder,
    Side,
    identity_of,
    linked,
    records_of,
    until,
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tls")
    make_dev_certificates(directory, nodes=[1, 2, 3])
    return directory


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same names, signed by another CA."""
    directory = tmp_path_factory.mktemp("foreign")
    make_dev_certificates(directory, nodes=[1, 2])
    return directory


def certified(files: Path, name: str, *, ca: Path | None = None) -> Peers:
    return Peers(
        certificate=str(files / f"{name}.pem"),
        key=str(files / f"{name}.key"),
        ca=str((ca or files) / "ca.pem"),
    )


@asynccontextmanager
async def nodes(settings_1: Peers, settings_2: Peers) -> AsyncIterator[tuple[Side, Side]]:
    first, second = Side(ONE, settings_1), Side(TWO, settings_2)
    try:
        await first.start()
        await second.start()
        first.peers.set_peers({TWO: second.address})
        second.peers.set_peers({ONE: first.address})
        yield first, second
    finally:
        first.peers.close()
        second.peers.close()
        for _ in range(10):  # Aborted transports close their sockets in the next turns.
            await asyncio.sleep(0)


def test_records_and_heartbeats_cross_by_mutual_tls(files: Path) -> None:
    async def main() -> None:
        async with nodes(certified(files, "node-1"), certified(files, "node-2")) as (first, second):
            await linked(first, second)
            large = [records_of(3 * 2**20, offset=n) for n in range(2)]
            for message in large:
                second.peers.send(ONE, message)
            for number in range(100):
                first.peers.send(TWO, Heartbeat(number, 0, False))
            await until(lambda: len(first.heard.messages) == 2, "records lost")
            await until(lambda: len(second.heard.messages) == 100, "heartbeats lost")
            assert first.heard.messages == large

    uvloop.run(main())


@pytest.mark.parametrize(
    ("mine", "theirs", "sentence"),
    [
        ("tls", "foreign", "its certificate is not one of peers.ca"),
        ("foreign", "tls", "its certificate is not one of peers.ca"),
        ("tls", "clear", "one side speaks TLS (peers.certificate), and the other does not"),
        ("clear", "tls", "refused a peer address=127.0.0.1"),
    ],
)
def test_a_node_without_a_certificate_of_the_cluster_gets_no_link(
    mine: str,
    theirs: str,
    sentence: str,
    files: Path,
    foreign: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def settings(kind: str, name: str) -> Peers:
        if kind == "clear":
            return IN_CLEAR
        return certified(files if kind == "tls" else foreign, name)

    async def main() -> None:
        ours, others = settings(mine, "node-1"), settings(theirs, "node-2")
        async with nodes(ours, others) as (first, second):
            await until(lambda: sentence in caplog.text, "not said")
            await until(lambda: "cannot reach a peer node=1" in caplog.text, "not said")
            assert first.heard.events == second.heard.events == []

    uvloop.run(main())


def test_a_certificate_of_another_node_speaks_for_that_node_only(
    files: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A stolen certificate is worth one node: node 2 cannot be spoken for with that of node 3."""
    settings = certified(files, "node-3")
    sentence = "the certificate of node 2 names node-3, not node-2"

    async def main() -> None:
        honest = Side(TWO, settings)
        with pytest.raises(StartupError, match="this is node 2"):
            await honest.start()
        first, heard = Side(ONE, certified(files, "node-1")), Recorder()
        await first.start()
        tls = PeerTls(settings, 3, SystemSecrets(), InlineThreads())
        liar = PeerSockets(identity_of(TWO), heard, Random(2), records_bytes_max=1, tls=tls)
        try:
            liar.set_peers({ONE: first.address})
            await until(lambda: caplog.text.count(sentence) >= 2, "not said on both sides")
            assert first.heard.events == heard.events == []
        finally:
            liar.close()
            first.peers.close()
            await asyncio.sleep(0.05)

    uvloop.run(main())


def test_new_certificates_are_taken_without_a_restart(files: Path, tmp_path: Path) -> None:
    """Both nodes move to another CA, file by file; links that are up stay."""
    make_dev_certificates(tmp_path / "next", nodes=[1, 2])
    live = tmp_path / "live"
    shutil.copytree(files, live)
    settings = [replace(certified(live, name), reload_ms=20) for name in ("node-1", "node-2")]
    next_certificate = PEM_cert_to_DER_cert((tmp_path / "next" / "node-1.pem").read_text())

    def shown_certificate(side: Side) -> bytes | None:
        """The certificate that node 1 shows to this node."""
        assert side.peers._sockets is not None
        link = side.peers._sockets._links.get(ONE)
        transport = None if link is None else link.steady._transport
        if transport is None:
            return None
        shown: bytes = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return shown

    async def main() -> None:
        async with nodes(*settings) as (first, second):
            await linked(first, second)
            assert shown_certificate(second) not in (None, next_certificate)
            shutil.copytree(tmp_path / "next", live, dirs_exist_ok=True)
            async with asyncio.timeout(20):
                while shown_certificate(second) != next_certificate:
                    second.peers.end(ONE, "the test dials again")
                    await until(lambda: second.peers.is_up(ONE), "no link")

    uvloop.run(main())


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"certificate": "nowhere.pem"}, "cannot read nowhere.pem"),
        ({"key": "foreign"}, "does not fit the certificate"),
        ({"ca": "key"}, "cannot read"),
    ],
)
def test_files_that_do_not_fit_are_a_sentence_at_the_start(
    change: dict[str, Any], sentence: str, files: Path, foreign: Path
) -> None:
    paths = {"foreign": str(foreign / "node-1.key"), "key": str(files / "node-1.key")}
    wrong = {name: paths.get(path, path) for name, path in change.items()}

    async def main() -> None:
        side = Side(ONE, replace(certified(files, "node-1"), **wrong))
        with pytest.raises(StartupError, match=sentence):
            await side.start()

    uvloop.run(main())


def test_half_of_the_settings_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"peers.key and peers.ca is missing"):
        Peers(certificate="node-1.pem")
    with pytest.raises(ValueError, match=r"'2=nowhere' is not ID=HOST:PORT"):
        Peers(addresses=("2=nowhere",))


def test_an_address_in_the_settings_is_taken_instead_of_the_one_in_the_book() -> None:
    async def main() -> None:
        first = Side(ONE)
        await first.start()
        second = Side(TWO, Peers(addresses=(f"1={first.address}",)))
        await second.start()
        try:
            second.peers.set_peers({ONE: "127.0.0.1:1"})
            await linked(first, second)
        finally:
            first.peers.close()
            second.peers.close()
            await asyncio.sleep(0)

    uvloop.run(main())
