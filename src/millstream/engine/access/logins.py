"""Logins of protocols that prove who asks with every request, such as HTTP.

Good passwords are remembered for a minute. A session that a person began is known by a token, of
which only the hash is kept.
"""

import asyncio
import hmac
from base64 import urlsafe_b64encode
from collections import OrderedDict
from dataclasses import replace

from millstream.engine.access.authentication import CLEAR_REFUSED, Authentication, takes_clear
from millstream.errors.access import LoginFailed
from millstream.model import Session, user_principal
from millstream.ports import Ports

SESSIONS_MAX = 10_000
TOKEN_BYTES = 32
TOKEN_PREFIX = "ms-"  # A JWT never begins so.


class Logins:
    def __init__(self, authentication: Authentication, ports: Ports, *, is_required: bool) -> None:
        self.is_required = is_required
        self._authentication = authentication
        self._ports = ports
        self._key = ports.entropy.randbytes(32)
        self._sessions: OrderedDict[bytes, Session] = OrderedDict()

    async def by_password(
        self, user: str, password: str, address: str, *, listener: str = "", is_tls: bool = False
    ) -> Session:
        """Log in by HTTP Basic; raise `LoginFailed` after its wait."""
        session = self._session(address, listener, is_tls)
        try:
            if not takes_clear(self._authentication.security, session):
                raise LoginFailed(CLEAR_REFUSED, "clear password", user)
            identity = await self._authentication.by_password(user, password, "BASIC")
            return self._authentication.accept(identity, session)
        except LoginFailed as problem:
            await self._authentication.refuse(problem, session, "BASIC")
            raise

    async def by_bearer(
        self, token: str, address: str, *, listener: str = "", is_tls: bool = False
    ) -> Session:
        """Log in with a token of the issuer, or go on with a session that `begin` has made."""
        session = self._session(address, listener, is_tls)
        try:
            if token.startswith(TOKEN_PREFIX):
                return self._known(token, address)
            identity = await self._authentication.by_token(token)
            return self._authentication.accept(identity, session)
        except LoginFailed as problem:
            await self._authentication.refuse(problem, session, "BEARER")
            raise

    def by_certificate(self, name: str, address: str, *, listener: str = "") -> Session | None:
        """The session of a user that a certificate names; None if the user is disabled."""
        session = self._session(address, listener, True)
        session = replace(session, principal=user_principal(name), mechanism="TLS")
        if self._authentication.access.is_barred(session):
            return None
        self._authentication.note_login(session)
        return session

    def begin(self, session: Session, lifetime_s: int) -> str:
        """Remember a session; the token is returned once and not kept."""
        if len(self._sessions) >= SESSIONS_MAX:
            self._sessions.popitem(last=False)
        random = self._ports.entropy.randbytes(TOKEN_BYTES)
        token = TOKEN_PREFIX + urlsafe_b64encode(random).decode().rstrip("=")
        expires_at = min(asyncio.get_running_loop().time() + lifetime_s, session.expires_at)
        self._sessions[self._hash(token)] = replace(session, expires_at=expires_at)
        return token

    def csrf_token(self, token: str) -> str:
        """What a page must show beside the cookie with this token; it follows from the token."""
        return urlsafe_b64encode(self._hash(f"csrf {token}")).decode().rstrip("=")

    def end(self, token: str) -> None:
        self._sessions.pop(self._hash(token), None)

    def _known(self, token: str, address: str) -> Session:
        key = self._hash(token)
        session = self._sessions.get(key)
        now = asyncio.get_running_loop().time()
        if session is None or now >= session.expires_at:
            self._sessions.pop(key, None)
            raise LoginFailed("the session has ended", "unknown session")
        if self._authentication.access.is_barred(session):
            self._sessions.pop(key, None)
            raise LoginFailed("the session has ended", "former user", session.principal.name)
        return replace(session, address=address)

    def _hash(self, token: str) -> bytes:
        return hmac.digest(self._key, token.encode(), "sha256")

    def _session(self, address: str, listener: str, is_tls: bool) -> Session:
        return Session(listener=listener, is_tls=is_tls, address=address, protocol="http")
