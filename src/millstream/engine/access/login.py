"""The login of one connection: what it may offer, its exchanges, and the session that follows.

A protocol's gateway asks it; no gateway makes a session of its own. Invariant: a connection has one
principal. Logging in again is taken from the same principal only.
"""

from collections.abc import Callable
from typing import Final

from millstream.engine.access.authentication import (
    CLEAR_REFUSED,
    Authentication,
    Identity,
    takes_clear,
)
from millstream.engine.sasl import oauth, plain
from millstream.engine.sasl.scram import ScramServer
from millstream.errors import ProtocolError
from millstream.errors.access import LoginFailed
from millstream.model import Session

# Mechanisms that send the password itself.
CLEAR: Final = "PLAIN"


class Login:
    """`session` is the client's, ANONYMOUS until `is_done`."""

    def __init__(
        self,
        authentication: Authentication,
        session: Session,
        *,
        mechanisms: tuple[str, ...],
        requests_max: int,
        hang_up: Callable[[], None],
        drop: Callable[[], None],
        done: Callable[[], None],
    ) -> None:
        """`hang_up` ends the connection after the reply, `drop` at once; `done` is called once."""
        self.session = session
        self.is_done = False
        self.user_made_at: int | None = None
        self.takes_clear_passwords = takes_clear(authentication.security, session)
        self.mechanisms = tuple(
            name for name in mechanisms if name != CLEAR or self.takes_clear_passwords
        )
        self.hang_up = hang_up
        self.drop = drop
        self.done_also: Callable[[], None] | None = None  # Set by the gateway.
        self.failures = 0  # Counted by gateways whose clients may try again.
        self._done = done
        self._authentication = authentication
        self._requests_left = requests_max

    def count_request(self) -> None:
        """Raise `ProtocolError` for a client that asks much and does not log in."""
        if not self.is_done:
            self._requests_left -= 1
            if self._requests_left < 0:
                raise ProtocolError("too many requests before a login")

    async def by_password(self, user: str, password: str, mechanism: str = CLEAR) -> Session:
        """Log in; raise `LoginFailed` after its wait."""
        try:
            if not self.takes_clear_passwords:
                raise LoginFailed(CLEAR_REFUSED, "clear password", user)
            return self._complete(await self._authentication.by_password(user, password, mechanism))
        except LoginFailed as problem:
            await self._authentication.refuse(problem, self.session, mechanism)
            raise

    async def by_token(self, token: str) -> Session:
        """Log in with a token of the issuer; raise `LoginFailed` after its wait."""
        try:
            return self._complete(await self._authentication.by_token(token))
        except LoginFailed as problem:
            await self._authentication.refuse(problem, self.session, "OAUTHBEARER")
            raise

    def admit(self) -> None:
        """Let the connection stay: its requests prove each who sends them, and one has."""
        if not self.is_done:
            self.is_done = True
            self._done()

    def exchange(self, mechanism: str) -> "Exchange":
        return Exchange(self, self._authentication, mechanism)

    async def step(self, exchange: "Exchange", message: bytes) -> bytes:
        """Take the client's next message; raise `LoginFailed` after its wait."""
        try:
            reply = await exchange.step(message)
            if exchange.identity is not None:
                self._complete(exchange.identity)
            return reply
        except LoginFailed as problem:
            await self._authentication.refuse(problem, self.session, exchange.mechanism)
            raise

    def close(self) -> None:
        self._authentication.leave(self)

    def _complete(self, identity: Identity) -> Session:
        before = self.session
        if self.is_done and identity.principal != before.principal:
            self.hang_up()
            raise LoginFailed(
                "Cannot change principals during re-authentication from "
                f"{before.principal.kind}.{before.principal.name}: "
                f"{identity.principal.kind}.{identity.principal.name}",
                "another principal",
                identity.principal.name,
            )
        if self.is_done:
            self._authentication.leave(self, is_end=False)
        session = self._authentication.accept(identity, before)
        self.session = session
        record = self._authentication.access.users.get(identity.principal.name)
        self.user_made_at = None if record is None else record.created_at
        self._authentication.enter(self)
        if not self.is_done:
            self.is_done = True
            self._done()
        if self.done_also is not None:
            self.done_also()
        return session


class Exchange:
    """One exchange of a SASL mechanism; `identity` is there when it has succeeded."""

    def __init__(self, login: Login, authentication: Authentication, mechanism: str) -> None:
        self.mechanism = mechanism
        self.identity: Identity | None = None
        self._authentication = authentication
        self._scram: ScramServer | None = None
        self._has_failed: LoginFailed | None = None

    async def step(self, message: bytes) -> bytes:
        assert self.identity is None, "the exchange has ended"
        if self.mechanism == CLEAR:
            login = plain.parse(message)
            self.identity = await self._authentication.by_password(login.user, login.password)
            return b""
        if self.mechanism == "OAUTHBEARER":
            return await self._bearer(message)
        return self._scram_step(message)

    async def _bearer(self, message: bytes) -> bytes:
        if self._has_failed is not None:
            raise self._has_failed
        login = oauth.parse(message)
        try:
            identity = await self._authentication.by_token(login.token)
            name = identity.principal.name
            if login.authorization_id and login.authorization_id != name:
                raise LoginFailed(oauth.FAILURE_TEXT, "authorization id", name)
        except LoginFailed as problem:
            self._has_failed = problem
            return oauth.INVALID_TOKEN
        self.identity = identity
        return b""

    def _scram_step(self, message: bytes) -> bytes:
        if self._scram is None:
            lookup = self._authentication.scram_lookup(self.mechanism)
            nonce = self._authentication.server_nonce()
            self._scram = ScramServer(self.mechanism, lookup, nonce)
            return self._scram.first(message)
        reply = self._scram.final(message)
        self.identity = self._authentication.proved(self._scram.user, self.mechanism)
        return reply
