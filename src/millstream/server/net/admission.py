"""Bounds what clients may do before they have logged in, and says who they are.

Owns the connections that are not logged in yet: how long they may stay and how many there may be,
the oldest goes first; and the connections of each address. A listener's `Guard` makes the session
of a new client, and its login where the listener asks for one.
"""

import asyncio
import logging
from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, Protocol

from millstream.config import Config, Limits
from millstream.engine.access.authentication import Authentication
from millstream.engine.access.login import Login
from millstream.engine.quotas.accounts import Usage
from millstream.metrics import CONNECTIONS_REFUSED, Metrics
from millstream.model import Session, user_principal
from millstream.security.principals import Rule, distinguished_name, parse_rules, user_name
from millstream.server.listener_specs import ListenerSpec

if TYPE_CHECKING:
    from millstream.engine.audit.recorder import Recorder

_log = logging.getLogger(__name__)

MISMATCHES_LOGGED_EVERY_S = 60.0
MISMATCHES_KEPT_MAX = 1_000


class Unwelcome(Exception):
    """The connection is refused: its certificate names no user, or there are too many."""


class Client(Protocol):
    """A connection, as far as admission needs it."""

    def stop(self) -> None: ...

    def drop(self) -> None: ...

    def logged_in(self) -> None: ...


class Droppable(Protocol):
    def drop(self) -> None: ...


class Admission:
    """Shared by all listeners of a node."""

    def __init__(
        self,
        limits: Limits,
        metrics: Metrics,
        recorder: "Recorder | None" = None,
        usage: Usage | None = None,
    ) -> None:
        self.limits = limits
        self._usage = usage
        self._recorder = recorder
        self._metrics = metrics
        # With the timer that drops each. Oldest first.
        self._strangers: OrderedDict[Droppable, asyncio.TimerHandle] = OrderedDict()
        self._by_address: Counter[str] = Counter()

    def reconfigure(self, config: Config) -> None:
        self.limits = config.limits

    @property
    def stranger_count(self) -> int:
        """Connections that have not logged in yet."""
        return len(self._strangers)

    def watch(self, stranger: Droppable, listener: str) -> None:
        """Drop a connection that does not log in in time, or when there are too many of them."""
        if len(self._strangers) >= self.limits.unauthenticated_connections_max:
            oldest = next(iter(self._strangers))
            self.trust(oldest)
            self._metrics.add(CONNECTIONS_REFUSED, 1, listener, "unauthenticated")
            self.note_refused(Session(), "too many connections without a login")
            oldest.drop()
        limit_s = self.limits.authentication_ms_max / 1000
        loop = asyncio.get_running_loop()
        self._strangers[stranger] = loop.call_later(limit_s, self._expire, stranger)

    def note_refused(self, session: Session, reason: str) -> None:
        """Note a connection that was closed, in the audit trail."""
        if self._recorder is not None:
            self._recorder.note(
                "connection.refused", session, result="denied", details={"reason": reason}
            )

    def trust(self, stranger: Droppable) -> None:
        timer = self._strangers.pop(stranger, None)
        if timer is not None:
            timer.cancel()

    def enter_address(self, address: str, listener: str) -> None:
        """Count a connection; raise `Unwelcome` if its address has too many."""
        most = self.limits.address_connections_max
        if most and self._by_address[address] >= most:
            self._metrics.add(CONNECTIONS_REFUSED, 1, listener, "address")
            raise Unwelcome(f"{address} has {most} connections, which is all it may have")
        if self._usage is not None and not self._usage.takes_connection(address):
            self._metrics.add(CONNECTIONS_REFUSED, 1, listener, "rate")
            raise Unwelcome(f"{address} opens connections faster than its quota")
        self._by_address[address] += 1

    def leave_address(self, address: str) -> None:
        self._by_address[address] -= 1
        if self._by_address[address] <= 0:
            del self._by_address[address]

    def _expire(self, stranger: Droppable) -> None:
        if self._strangers.pop(stranger, None) is not None:
            _log.info("dropped a connection without a login")
            self.note_refused(Session(), "no login in time")
            stranger.drop()


class Guard:
    """Of one listener."""

    def __init__(
        self, spec: ListenerSpec, admission: Admission, authentication: Authentication
    ) -> None:
        self.admission = admission
        self.spec = spec
        self._authentication = authentication
        self._rules: list[Rule] = []
        if spec.transport.is_tls and spec.tls.client_certificates != "none":
            self._rules = parse_rules(spec.tls.principal_rules)
        self._mismatches: OrderedDict[str, float] = OrderedDict()
        self._certified_clients: dict[Client, Session] = {}

    def admit(
        self, client: Client, address: str, certificate: bytes | None
    ) -> tuple[Session, Login | None]:
        """The session of a new client, and its login if it must log in; raise `Unwelcome`."""
        spec = self.spec
        session = Session(
            listener=spec.name,
            is_tls=spec.transport.is_tls,
            address=address,
            protocol="+".join(spec.protocols),
        )
        try:
            self.admission.enter_address(address, spec.name)
        except Unwelcome as problem:
            self.admission.note_refused(session, str(problem))
            raise
        if spec.transport.has_sasl:
            return session, self._login(client, session)
        if certificate is not None and self._rules:
            try:
                session = self._certified(session, certificate)
            except Unwelcome as problem:
                self.admission.note_refused(session, str(problem))
                raise
            self._authentication.note_login(session)
            self._certified_clients[client] = session
        return session, None

    def leave(self, client: Client, address: str) -> None:
        self.admission.leave_address(address)
        self.admission.trust(client)
        session = self._certified_clients.pop(client, None)
        if session is not None:
            self._authentication.note_logout(session)

    def note_mismatch(self, address: str, sentence: str) -> None:
        """Log a client that speaks TLS to a plain port or the reverse, once a minute for each."""
        now = asyncio.get_running_loop().time()
        if now < self._mismatches.get(address, float("-inf")) + MISMATCHES_LOGGED_EVERY_S:
            return
        self._mismatches.pop(address, None)
        if len(self._mismatches) >= MISMATCHES_KEPT_MAX:
            self._mismatches.popitem(last=False)
        self._mismatches[address] = now
        _log.warning("listener %s %s", self.spec.name, sentence)

    def _login(self, client: Client, session: Session) -> Login:
        self.admission.watch(client, self.spec.name)

        def done() -> None:
            self.admission.trust(client)
            client.logged_in()

        return Login(
            self._authentication,
            session,
            mechanisms=self.spec.mechanisms,
            requests_max=self.admission.limits.unauthenticated_requests_max,
            hang_up=client.stop,
            drop=client.drop,
            done=done,
        )

    def _certified(self, session: Session, certificate: bytes) -> Session:
        name = distinguished_name(certificate)
        user = user_name(name, self._rules)
        if not user:
            raise Unwelcome(f"no rule of tls.principal_rules fits the certificate of {name!r}")
        record = self._authentication.access.users.get(user)
        if record is not None and not record.is_enabled:
            raise Unwelcome(f"user {user!r} is disabled")
        return Session(
            principal=user_principal(user),
            mechanism="TLS",
            listener=session.listener,
            is_tls=True,
            address=session.address,
            protocol=session.protocol,
        )
