"""Checks passwords and tokens, and knows the logins of this node.

Owns the waits after failures, the memory of good passwords, the key set of the issuer, and the end
of the connections of users that were disabled or deleted. There is one store of credentials for all
protocols: a plain password is checked against the SCRAM credential of its user.
"""

import asyncio
import hmac
import logging
from base64 import urlsafe_b64encode
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import replace
from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple, Protocol

from millstream.config import Config
from millstream.control.access import Access, User
from millstream.control.commands import Credential
from millstream.engine.access.login_failures import LoginFailures
from millstream.engine.sasl import oauth
from millstream.engine.sasl.plain import INVALID_CREDENTIALS
from millstream.engine.sasl.scram import (
    ALGORITHMS,
    SERVER_NONCE_BYTES,
    Known,
    fake_credential,
    is_password_of,
)
from millstream.errors import StartupError
from millstream.errors.access import LoginFailed
from millstream.metrics import LOGINS, Metrics
from millstream.model import (
    ANONYMOUS,
    NEVER_EXPIRES,
    PRINCIPAL_NAME_LENGTH_MAX,
    Principal,
    Session,
    user_principal,
)
from millstream.ports import Ports
from millstream.security.settings import Security

if TYPE_CHECKING:
    from millstream.engine.audit.recorder import Recorder

_log = logging.getLogger(__name__)

REMEMBERED_S = 60.0  # A good password, so that HTTP does not pay for each request.
REMEMBERED_MAX = 10_000
KEY_SET_AGE_S_MIN = 30.0  # An unknown key id reads the key set again, this often at most.
BARRED_CHECK_S = 0.5  # How late the connections of a disabled user are closed.
CLEAR_REFUSED = "Passwords are taken over TLS only here"
_PLAIN_CHECKED_BY = ("SCRAM-SHA-512", "SCRAM-SHA-256")  # The first that the user has.


class Identity(NamedTuple):
    """What a login has proved."""

    principal: Principal
    mechanism: str
    roles: tuple[str, ...] = ()  # Of a token; those of the user's record are looked up.
    expires_at: float = NEVER_EXPIRES  # By the loop's clock.


class Live(Protocol):
    """A connection that has logged in."""

    session: Session
    user_made_at: int | None  # When its user was made; None for a principal without a record.

    def drop(self) -> None: ...


class Authentication:
    def __init__(
        self,
        access: Access,
        config: Config,
        ports: Ports,
        metrics: Metrics,
        recorder: "Recorder | None" = None,
    ) -> None:
        security, limits = config.security, config.limits
        self.access = access
        self.security = security
        self._limits = limits
        self._oauth = config.oauth
        self._ports = ports
        self._metrics = metrics
        self.recorder = recorder  # Of the audit trail, where there is one.
        self._failures = LoginFailures(
            first_ms=security.failed_login_delay_ms,
            most_ms=security.failed_login_delay_ms_max,
            entries_max=limits.login_failures_max,
        )
        self._slots = asyncio.Semaphore(limits.authentications_max)
        self._process_key = ports.entropy.randbytes(32)
        self._remembered: OrderedDict[bytes, float] = OrderedDict()
        self._keys: oauth.KeySet | None = None
        self._keys_read_at = float("-inf")
        self._live: set[Live] = set()
        self._by_principal: Counter[Principal] = Counter()

    async def run(self) -> None:
        """Close the connections of users that are disabled or deleted, until cancelled."""
        version = self.access.version
        while True:
            await asyncio.sleep(BARRED_CHECK_S)
            if version != self.access.version:
                version = self.access.version
                for live in [live for live in self._live if self._is_gone(live)]:
                    _log.info(
                        "closed a connection of a former user user=%s", live.session.principal
                    )
                    live.drop()

    # -- proofs ------------------------------------------------------------------------------------

    async def by_password(self, user: str, password: str, mechanism: str = "PLAIN") -> Identity:
        """Check a password; raise `LoginFailed` without a wait: the caller has it counted."""
        record = self.access.users.get(user)
        method, credential = self._credential(record, user)
        is_usable = record is not None and record.is_enabled and bool(record.credentials)
        if not (is_usable and self._is_remembered(record, password)):
            async with self._slots:
                is_right = await self._ports.threads.run(
                    lambda: is_password_of(method, credential, password)
                )
            if not (is_right and is_usable):
                reason = "wrong password" if is_usable else _absence(record)
                raise LoginFailed(INVALID_CREDENTIALS, reason, user)
            self._remember(record, password)
        return self.proved(user, mechanism)

    def scram_lookup(self, mechanism: str) -> Callable[[str], Known]:
        def find(user: str) -> Known:
            record = self.access.users.get(user)
            if record is not None and record.is_enabled and mechanism in record.credentials:
                return Known(record.credentials[mechanism], is_real=True)
            return Known(self._fake(mechanism, user), is_real=False)

        return find

    def proved(self, user: str, mechanism: str) -> Identity:
        """The identity of a user whose proof was right."""
        return Identity(user_principal(user), mechanism, expires_at=self._expires_at())

    def server_nonce(self) -> str:
        return urlsafe_b64encode(self._ports.entropy.randbytes(SERVER_NONCE_BYTES)).decode()

    async def by_token(self, token: str) -> Identity:
        """Check a token of the issuer; raise `LoginFailed`."""
        if not self._oauth.is_set:
            raise LoginFailed(oauth.FAILURE_TEXT, "tokens are not taken here")
        now_s = self._ports.clock.now_ms() / 1000
        keys = await self._key_set()
        try:
            try:
                claims = await self._verified(token, keys, now_s)
            except oauth.UnknownKey:
                keys = await self._key_set(age_s_max=KEY_SET_AGE_S_MIN)
                claims = await self._verified(token, keys, now_s)
        except oauth.UnknownKey:
            raise LoginFailed(oauth.FAILURE_TEXT, "unknown key") from None
        record = self.access.users.get(claims.name)
        if record is not None and not record.is_enabled:
            raise LoginFailed(oauth.FAILURE_TEXT, _absence(record), claims.name)
        left_s = claims.expires_s - now_s
        expires_at = min(asyncio.get_running_loop().time() + left_s, self._expires_at())
        roles = tuple(role for role in claims.roles if self.access.has_role(role))
        return Identity(user_principal(claims.name), "OAUTHBEARER", roles, expires_at)

    async def read_keys(self) -> None:
        """Read the key set of the issuer at start; `StartupError` if it cannot be had."""
        if self._oauth.is_set:
            await self._key_set()

    # -- outcomes ----------------------------------------------------------------------------------

    async def refuse(self, problem: LoginFailed, session: Session, mechanism: str) -> None:
        """Count a failure, and hold its answer back."""
        self._metrics.add(LOGINS, 1, session.protocol, mechanism, "failed")
        delay_ms = self._failures.failed(problem.user, session.address)
        if self.recorder is not None:
            user = user_principal(problem.user[:PRINCIPAL_NAME_LENGTH_MAX] or ANONYMOUS.name)
            tried = replace(session, principal=user, mechanism=mechanism)
            self.recorder.note(
                "auth.failure", tried, result="failure", details={"reason": problem.reason}
            )
            if self.recorder.refuses:
                delay_ms = self.security.failed_login_delay_ms_max
        _log.info(
            "login failed user=%r address=%s protocol=%s mechanism=%s reason=%s",
            problem.user[:100],
            session.address,
            session.protocol,
            mechanism,
            problem.reason,
        )
        await asyncio.sleep(delay_ms / 1000)

    def accept(self, identity: Identity, session: Session) -> Session:
        """The session of a client that has logged in; `LoginFailed` if there are too many."""
        most = self._limits.principal_connections_max
        name = identity.principal.name
        if most and self._by_principal[identity.principal] >= most:
            raise LoginFailed(f"Too many connections of this user: {most}", "too many", name)
        self._check_trail(identity, session)
        self._metrics.add(LOGINS, 1, session.protocol, identity.mechanism, "succeeded")
        self._failures.succeeded(name, session.address)
        accepted = Session(
            principal=identity.principal,
            roles=identity.roles,
            mechanism=identity.mechanism,
            listener=session.listener,
            is_tls=session.is_tls,
            expires_at=identity.expires_at,
            client_id=session.client_id,
            address=session.address,
            protocol=session.protocol,
        )
        self.note_login(accepted)
        return accepted

    def note_login(self, session: Session) -> None:
        """Note a login in the audit trail; those of HTTP come with each request, and are summed."""
        if self.recorder is not None:
            roles = self.access.roles_of(session)
            with_roles = session if roles == session.roles else replace(session, roles=roles)
            is_summed = session.protocol == "http"
            self.recorder.note("auth.success", with_roles, is_summed=is_summed)

    def note_logout(self, session: Session) -> None:
        if self.recorder is not None:
            self.recorder.note("auth.logout", session)

    def enter(self, live: Live) -> None:
        """Note a connection that has logged in."""
        self._live.add(live)
        self._by_principal[live.session.principal] += 1

    def leave(self, live: Live, *, is_end: bool = True) -> None:
        """Forget a connection; not `is_end`: it goes on with another login."""
        if live in self._live:
            if is_end:
                self.note_logout(live.session)
            self._live.discard(live)
            self._by_principal[live.session.principal] -= 1
            self._by_principal += Counter()  # Forgets those at zero.

    def disconnect(self, name: str) -> None:
        """Close all connections of a user."""
        for live in [live for live in self._live if live.session.principal.name == name]:
            live.drop()

    # -- parts -------------------------------------------------------------------------------------

    def _check_trail(self, identity: Identity, session: Session) -> None:
        """While nothing can be written, only super users of this machine come in."""
        if self.recorder is None or not self.recorder.refuses:
            return
        user = self.access.users.get(identity.principal.name)
        roles = (*identity.roles, *(() if user is None else user.roles))
        names = {str(identity.principal), *(f"Role:{role}" for role in roles)}
        if not (names & set(self.security.super_users) and is_loopback(session.address)):
            text = "The audit trail cannot be written: logins are refused"
            raise LoginFailed(text, "audit trail", identity.principal.name)

    def _is_gone(self, live: Live) -> bool:
        if self.access.is_barred(live.session):
            return True
        user = self.access.users.get(live.session.principal.name)
        return live.user_made_at is not None and (
            user is None or user.created_at != live.user_made_at
        )

    def _expires_at(self) -> float:
        if not self.security.session_ms_max:
            return NEVER_EXPIRES
        return asyncio.get_running_loop().time() + self.security.session_ms_max / 1000

    def _credential(self, record: User | None, user: str) -> tuple[str, Credential]:
        for mechanism in _PLAIN_CHECKED_BY:
            if record is not None and mechanism in record.credentials:
                return mechanism, record.credentials[mechanism]
        return _PLAIN_CHECKED_BY[0], self._fake(_PLAIN_CHECKED_BY[0], user)

    def _fake(self, mechanism: str, user: str) -> Credential:
        assert mechanism in ALGORITHMS
        salt_key = self.access.salt_key or self._process_key
        iterations = self.security.scram_iterations
        return fake_credential(mechanism, user, salt_key=salt_key, iterations=iterations)

    def _memory_key(self, record: User, password: str) -> bytes:
        text = f"{record.name}\0{record.created_at}\0{record.credentials_version}\0{password}"
        return hmac.digest(self._process_key, text.encode(), "sha256")

    def _is_remembered(self, record: User | None, password: str) -> bool:
        if record is None:
            return False
        until = self._remembered.get(self._memory_key(record, password))
        return until is not None and asyncio.get_running_loop().time() < until

    def _remember(self, record: User | None, password: str) -> None:
        assert record is not None
        if len(self._remembered) >= REMEMBERED_MAX:
            self._remembered.popitem(last=False)
        until = asyncio.get_running_loop().time() + REMEMBERED_S
        self._remembered[self._memory_key(record, password)] = until

    async def _verified(self, token: str, keys: oauth.KeySet, now_s: float) -> oauth.TokenIdentity:
        # On a thread: the first call imports PyJWT, which takes a tenth of a second.
        return await self._ports.threads.run(
            lambda: oauth.verify(token, keys, self._oauth, now_s=now_s)
        )

    async def _key_set(self, age_s_max: float | None = None) -> oauth.KeySet:
        limit_s = self._oauth.jwks_refresh_ms / 1000 if age_s_max is None else age_s_max
        now = asyncio.get_running_loop().time()
        if self._keys is not None and now - self._keys_read_at < limit_s:
            return self._keys
        self._keys_read_at = now  # Also of a failure: others wait for the next turn.
        try:
            self._keys = await self._ports.threads.run(
                lambda: oauth.KeySet(self._ports.secrets.read_key_set(self._oauth.jwks))
            )
        except (StartupError, ValueError) as problem:
            if self._keys is None:
                raise StartupError(f"oauth.jwks = {self._oauth.jwks}: {problem}") from None
            _log.warning("kept the old keys jwks=%s problem=%s", self._oauth.jwks, problem)
        return self._keys


def _absence(record: User | None) -> str:
    if record is None:
        return "unknown user"
    return "no password" if record.is_enabled else "disabled user"


def takes_clear(security: Security, session: Session) -> bool:
    """Whether a password may cross this connection as it is."""
    policy = security.clear_passwords
    if session.is_tls or policy == "always":
        return True
    return policy == "loopback" and is_loopback(session.address)


def is_loopback(address: str) -> bool:
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address == "localhost"
    mapped = getattr(parsed, "ipv4_mapped", None)
    return (mapped or parsed).is_loopback
