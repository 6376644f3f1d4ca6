"""Users and roles as administrators ask for them: describe, alter, set a password.

Owns the checks of a change before it goes to the control log, and turns passwords into credentials:
no password is stored or passed on.
"""

import asyncio
from collections.abc import Mapping, Sequence

from millstream.config import Config
from millstream.control.access import SCRAM_MECHANISMS, User, check_user_change
from millstream.control.commands import AlterUsers, Credential, UserChange
from millstream.engine.access.authentication import (
    CLEAR_REFUSED,
    Authentication,
    takes_clear,
)
from millstream.engine.controller import Controller
from millstream.engine.gate import Gate, Operation
from millstream.engine.sasl.scram import SALT_BYTES, make_credential
from millstream.errors import InvalidRequest, RequestError
from millstream.errors.access import LoginFailed, UnknownUser
from millstream.model import SYSTEM_SESSION, Session
from millstream.ports import Ports

_CLUSTER = "cluster"
SALT_KEY_BYTES = 32
PASSWORD_BYTES_MAX = 255


class Users:
    def __init__(
        self,
        gate: Gate,
        controller: Controller,
        config: Config,
        ports: Ports,
        authentication: Authentication,
    ) -> None:
        self.access = controller.state.access  # For roles of sessions, which are their own.
        self._gate = gate
        self._controller = controller
        self._config = config
        self._ports = ports
        self._authentication = authentication
        self._altering = asyncio.Lock()  # So that all fit into `users_max`.

    def list(self, session: Session) -> list[User]:
        """Every user, by name."""
        self._gate.admit(session, Operation.DESCRIBE, _CLUSTER)
        return sorted(self._controller.state.access.users.values(), key=lambda user: user.name)

    def describe(self, session: Session, name: str) -> User:
        """A user; the session's own needs no right."""
        if not _is_own(session, name):
            self._gate.admit(session, Operation.DESCRIBE, _CLUSTER)
        user = self._controller.state.access.users.get(name)
        if user is None:
            raise UnknownUser(name)
        return user

    async def alter(
        self, session: Session, changes: Sequence[UserChange]
    ) -> Mapping[int, RequestError]:
        """Make, change and delete users, all that are allowed in one command; return the others'
        refusals, by place."""
        self._gate.admit(session, Operation.ALTER, _CLUSTER)
        return await self._alter(session, changes)

    async def set_password(self, session: Session, name: str, password: str) -> None:
        """Give a user another password; connections stay."""
        self._gate.admit(session, Operation.ALTER, _CLUSTER)
        await self._set_password(session, name, password)

    async def change_own_password(
        self, session: Session, old: str, change: UserChange | str
    ) -> None:
        """Give the session's user another password, or credentials made of it; that needs the
        one before and no right."""
        if session.mechanism == "":
            self._gate.admit(session, Operation.ALTER, _CLUSTER)
        name = session.principal.name
        if isinstance(change, str):
            made = await self._credentials(change)
        else:
            made = dict(change.credentials)
            if change != UserChange(
                name=name, existence=change.existence, credentials=change.credentials
            ):
                raise InvalidRequest("with its old password a user changes its own password only")
        if not takes_clear(self._authentication.security, session):
            raise LoginFailed(CLEAR_REFUSED, "clear password", name)
        try:
            await self._authentication.by_password(name, old)
        except LoginFailed as problem:
            await self._authentication.refuse(problem, session, "PLAIN")
            raise
        change = UserChange(name=name, existence="existing", credentials=made)
        for refusal in (await self._alter(session, [change])).values():
            raise refusal

    def disconnect(self, session: Session, name: str) -> None:
        """Close the connections of a user to this node."""
        self._gate.admit(session, Operation.ALTER, _CLUSTER)
        self._authentication.disconnect(name)

    async def credentials(self, session: Session, password: str) -> dict[str, Credential | None]:
        """What proves a password, for `alter`."""
        self._gate.admit(session, Operation.ALTER, _CLUSTER)
        return await self._credentials(password)

    # -- parts -------------------------------------------------------------------------------------

    async def _set_password(self, session: Session, name: str, password: str) -> None:
        made = await self._credentials(password)
        change = UserChange(name=name, existence="existing", credentials=made)
        for refusal in (await self._alter(session, [change])).values():
            raise refusal

    async def _alter(
        self, session: Session, changes: Sequence[UserChange]
    ) -> Mapping[int, RequestError]:
        async with self._altering:
            refusals: dict[int, RequestError] = {}
            good: dict[int, UserChange] = {}
            for place, change in enumerate(changes):
                try:
                    check_user_change(change)
                except RequestError as refusal:
                    refusals[place] = refusal
                else:
                    good[place] = change
            self._check_count(list(good.values()))
            if good:
                salt_key = b""
                if not self._controller.state.access.salt_key:
                    salt_key = self._ports.entropy.randbytes(SALT_KEY_BYTES)
                command = AlterUsers(changes=tuple(good.values()), salt_key=salt_key)
                applied = await self._controller.alter_access(session, command)
                places = list(good)
                refusals |= {places[at]: refusal for at, refusal in applied.refusals.items()}
        return refusals

    def _check_count(self, changes: Sequence[UserChange]) -> None:
        known = self._controller.state.access.users
        added = [change for change in changes if change.name not in known]
        most = self._config.limits.users_max
        if added and len(known) + len(added) > most:
            raise InvalidRequest(f"there are {len(known)} users, at most {most} may be")

    async def _credentials(self, password: str) -> dict[str, Credential | None]:
        size = len(password.encode())
        if not 1 <= size <= PASSWORD_BYTES_MAX:
            raise InvalidRequest(f"a password has 1 to {PASSWORD_BYTES_MAX} bytes, not {size}")
        if "\0" in password:
            raise InvalidRequest("a password has no NUL")
        iterations = self._config.security.scram_iterations
        salts = {name: self._ports.entropy.randbytes(SALT_BYTES) for name in SCRAM_MECHANISMS}
        return await self._ports.threads.run(
            lambda: {
                name: make_credential(name, password, salt=salt, iterations=iterations)
                for name, salt in salts.items()
            }
        )


def _is_own(session: Session, name: str) -> bool:
    return bool(session.mechanism) and session.principal.name == name


async def create_first(users: Users, name: str, password: str) -> bool:
    """Make the administrator, for the node itself, while there is no user; False if there is."""
    if users.access.users:
        return False
    made = UserChange(
        name=name,
        existence="new",
        roles=("admin",),
        credentials=await users._credentials(password),
    )
    for refusal in (await users._alter(SYSTEM_SESSION, [made])).values():
        raise refusal
    return True
