"""Accepts other nodes: in clear by the loop's own server, or with TLS, by hand.

By hand, because each connection gets the certificate of the moment, and because a handshake that
fails has to be told: the loop's server would drop it in silence.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable, Coroutine

from millstream.server.peering.connection import GREETING_S_MAX, PeerConnection
from millstream.server.system.descriptors import Socket, bind
from millstream.server.system.tls import PeerTls

_log = logging.getLogger(__name__)

ACCEPT_PAUSE_S = 0.1  # After an error of the system, such as too many open files.
HANDSHAKES_MAX = 100  # At once; beyond, the newest are closed.
BACKLOG = 128
# A sentence about a stranger is said once in this time; so many are remembered.
SAID_AGAIN_S = 60.0
SAID_MAX = 100

_REASONS = {
    "CERTIFICATE_VERIFY_FAILED": "its certificate is not one of peers.ca",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it shows no certificate",
    "WRONG_VERSION_NUMBER": "one side speaks TLS (peers.certificate), and the other does not",
    "HTTP_REQUEST": "it speaks HTTP",
}


def explain(problem: Exception) -> str:
    """Why a connection to a node could not be opened, in words."""
    if isinstance(problem, ssl.SSLCertVerificationError):
        return f"{_REASONS['CERTIFICATE_VERIFY_FAILED']}: {problem.verify_message}"
    if isinstance(problem, ssl.SSLError):
        reason = problem.reason or ""
        return _REASONS.get(reason, f"no TLS with it: {reason.lower().replace('_', ' ')}")
    return str(problem) or type(problem).__name__


class Complaints:
    """Says what is wrong with strangers, each thing at most once in `SAID_AGAIN_S`."""

    def __init__(self) -> None:
        self._said: dict[tuple[str, str], float] = {}

    def say(self, address: str, problem: str) -> None:
        now = asyncio.get_running_loop().time()
        until = self._said.get((address, problem), now)
        if until > now:
            return
        if len(self._said) >= SAID_MAX:
            self._said = {key: end for key, end in self._said.items() if end > now}
        if len(self._said) < SAID_MAX:
            self._said[address, problem] = now + SAID_AGAIN_S
            _log.warning("refused a peer address=%s problem=%s", address, problem)


class Acceptor:
    """`make` gives the connection of each newcomer."""

    def __init__(
        self, make: Callable[[], PeerConnection], tls: PeerTls | None, complaints: Complaints
    ) -> None:
        self._make = make
        self._tls = tls
        self._complaints = complaints
        self._server: asyncio.Server | None = None
        self._sockets: list[Socket] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, host: str, port: int) -> int:
        """Accept there; return the port. Raises `OSError`."""
        loop = asyncio.get_running_loop()
        if self._tls is None:
            self._server = await loop.create_server(self._make, host, port)
            name = self._server.sockets[0].getsockname()
        else:
            self._sockets = bind(host, port)
            for bound in self._sockets:
                bound.listen(BACKLOG)
                self._begin(self._accept(bound, self._tls))
            self._begin(self._tls.follow())
            name = self._sockets[0].getsockname()
        return int(name[1])

    def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        if self._server is not None:
            self._server.close()
        for bound in self._sockets:
            bound.close()

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, bound: Socket, tls: PeerTls) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(bound)
            except OSError as problem:
                _log.warning("cannot accept peers problem=%s", problem)
                await asyncio.sleep(ACCEPT_PAUSE_S)
                continue
            if len(self._tasks) >= HANDSHAKES_MAX:
                accepted.close()
                continue
            self._begin(self._shake_hands(accepted, str(address[0]), tls))

    async def _shake_hands(self, accepted: Socket, address: str, tls: PeerTls) -> None:
        connection = self._make()
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection,
                accepted,
                ssl=tls.accepting,
                ssl_handshake_timeout=GREETING_S_MAX,
            )
        except OSError as problem:
            connection.end("no TLS handshake")
            accepted.close()
            self._complaints.say(address, explain(problem))
        except asyncio.CancelledError:
            connection.end("stopped")
            accepted.close()
            raise
