"""Users, roles and ACLs, as a fold over commands.

Owns the records of users, the names of roles, all ACLs, and the rules that hold on every node.
Pure: proofs of passwords are checked in `engine.access`, `decision` judges by what is here.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, NamedTuple

from millstream.control.acls import Acls, check_acl
from millstream.control.commands import (
    AccessCommand,
    AddAcls,
    AlterUsers,
    Credential,
    DeleteRole,
    PutRole,
    RemoveAcls,
    ReplaceAcls,
    UserChange,
)
from millstream.errors import InvalidRequest, RequestError
from millstream.errors.access import DuplicateUser, UnknownRole, UnknownUser, UserExists
from millstream.model import ANONYMOUS, PRINCIPAL_NAME_LENGTH_MAX, Offset, Session

SCRAM_MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
# The mechanisms whose users have a record: without it, the name is no user any more.
PASSWORD_MECHANISMS: Final = frozenset((*SCRAM_MECHANISMS, "PLAIN", "BASIC"))
ROLES_OF_USER_MAX = 100

# Built in: not stored, not alterable. Their rights are in `decision`.
BUILT_IN_ROLES: Final = ("admin", "producer", "consumer", "guest")

_CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    name: str
    roles: tuple[str, ...] = ()
    is_enabled: bool = True
    credentials: Mapping[str, Credential] = field(default_factory=dict)  # By mechanism.
    created_ms: int = 0
    updated_ms: int = 0
    created_at: Offset = 0  # In the control log: a user of the same name made later has another.
    credentials_version: int = 0  # Changes whenever a password does.


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    name: str
    description: str = ""
    created_ms: int = 0
    updated_ms: int = 0


class AccessChange(NamedTuple):
    """The reply to a command: its changes that were refused, by place in the command."""

    version: int
    refusals: Mapping[int, RequestError]
    # Of those that made a user or a role, where the command alone does not say so.
    created: frozenset[int] = frozenset()


_NO_REFUSALS: Mapping[int, RequestError] = MappingProxyType({})


class Access:
    """All users, roles and ACLs. `version` counts the changes: an answer of an older one may be
    wrong."""

    def __init__(self) -> None:
        self.version = 0
        self.users: dict[str, User] = {}
        self.roles: dict[str, Role] = {}
        self.acls = Acls()
        self.salt_key = b""  # Of the salts that unknown users are shown.

    def is_barred(self, session: Session) -> bool:
        """Whether the session's user was disabled, or deleted after a login by password."""
        if session.principal.kind != "User":
            return False
        user = self.users.get(session.principal.name)
        if user is None:
            return session.mechanism in PASSWORD_MECHANISMS
        return not user.is_enabled

    def roles_of(self, session: Session) -> tuple[str, ...]:
        """The roles of a session at this moment: its token's and those of its user."""
        user = self.users.get(session.principal.name)
        if user is None or session.principal.kind != "User" or not session.mechanism:
            return session.roles
        return tuple(dict.fromkeys((*user.roles, *session.roles)))

    def has_role(self, name: str) -> bool:
        return name in self.roles or name in BUILT_IN_ROLES

    def check(self, command: AccessCommand) -> None:
        """Raise a `RequestError` for names that are not allowed; before the proposal."""
        match command:
            case AlterUsers(changes=changes):
                names = [change.name for change in changes]
                if len(set(names)) != len(names):
                    raise DuplicateUser(next(name for name in names if names.count(name) > 1))
                for change in changes:
                    check_user_change(change)
            case PutRole(name=name) | DeleteRole(name=name):
                check_name("role", name)
                if name in BUILT_IN_ROLES:
                    raise InvalidRequest(f"the role {name!r} is built in and cannot be changed")
            case AddAcls(acls=added) | ReplaceAcls(added=added):
                for acl in added:
                    check_acl(acl)

    def note_owner(self) -> None:
        """The owner of a topic is another one: answers of before may be wrong."""
        self.version += 1

    def apply(self, command: AccessCommand, offset: Offset) -> AccessChange:
        """Change users or roles; a refusal of the whole command is raised."""
        at_ms = 0 if command.by is None else command.by.at_ms
        match command:
            case AlterUsers(changes=changes, salt_key=salt_key):
                self.salt_key = self.salt_key or salt_key
                refusals: dict[int, RequestError] = {}
                created = frozenset(
                    place for place, change in enumerate(changes) if change.name not in self.users
                )
                for place, change in enumerate(changes):
                    try:
                        self._alter_user(change, at_ms, offset)
                    except RequestError as refusal:
                        refusals[place] = refusal
                self.version += 1
                return AccessChange(self.version, refusals, created)
            case PutRole(name=name, description=description):
                known = self.roles.get(name)
                created_ms = at_ms if known is None else known.created_ms
                self.roles[name] = Role(
                    name=name, description=description, created_ms=created_ms, updated_ms=at_ms
                )
                self.version += 1
                is_new = frozenset({0} if known is None else ())
                return AccessChange(self.version, _NO_REFUSALS, is_new)
            case DeleteRole(name=name):
                self._delete_role(name)
            case AddAcls() | RemoveAcls() | ReplaceAcls():
                self._change_acls(command)
        self.version += 1
        return AccessChange(self.version, _NO_REFUSALS)

    def _alter_user(self, change: UserChange, at_ms: int, offset: Offset) -> None:
        user = self.users.get(change.name)
        if user is None and (change.existence == "existing" or change.is_deleted):
            raise UnknownUser(change.name)
        if user is not None and change.existence == "new":
            raise UserExists(change.name)
        if change.is_deleted:
            del self.users[change.name]
            return
        for role in change.roles or ():
            if not self.has_role(role):
                raise UnknownRole(role)
        if user is None:
            user = User(name=change.name, created_ms=at_ms, created_at=offset)
        merged = {**user.credentials, **change.credentials}
        self.users[change.name] = replace(
            user,
            roles=user.roles if change.roles is None else change.roles,
            is_enabled=user.is_enabled if change.is_enabled is None else change.is_enabled,
            credentials={name: value for name, value in merged.items() if value is not None},
            updated_ms=at_ms,
            credentials_version=(
                self.version + 1 if change.credentials else user.credentials_version
            ),
        )

    def _change_acls(self, command: AddAcls | RemoveAcls | ReplaceAcls) -> None:
        removed = command.acls if isinstance(command, RemoveAcls) else ()
        added = command.acls if isinstance(command, AddAcls) else ()
        if isinstance(command, ReplaceAcls):
            removed, added = command.removed, command.added
        for acl in removed:
            self.acls.remove(acl)
        for acl in added:
            self.acls.add(acl)

    def _delete_role(self, name: str) -> None:
        if name not in self.roles:
            raise UnknownRole(name)
        del self.roles[name]
        # Else a role of the same name, made later, would have the rights of this one.
        for acl in list(self.acls.of_principal(f"Role:{name}")):
            self.acls.remove(acl)
        for user in list(self.users.values()):
            if name in user.roles:
                left = tuple(role for role in user.roles if role != name)
                self.users[user.name] = replace(user, roles=left)


def check_name(kind: str, name: str) -> None:
    """Raise `InvalidRequest` for a name of a user or role that no principal may have."""
    if not 1 <= len(name) <= PRINCIPAL_NAME_LENGTH_MAX:
        raise InvalidRequest(
            f"the name of a {kind} has {len(name)} characters, not 1 to {PRINCIPAL_NAME_LENGTH_MAX}"
        )
    if _CONTROL_CHARACTERS.search(name):
        raise InvalidRequest(f"the name of a {kind} has control characters")


def check_user_change(change: UserChange) -> None:
    check_name("user", change.name)
    if change.name == ANONYMOUS.name:
        raise InvalidRequest(f"{ANONYMOUS.name} is the name of clients without a login")
    if change.roles is not None and len(change.roles) > ROLES_OF_USER_MAX:
        raise InvalidRequest(f"{len(change.roles)} roles, a user has at most {ROLES_OF_USER_MAX}")
    for mechanism in change.credentials:
        if mechanism not in SCRAM_MECHANISMS:
            raise InvalidRequest(f"there are no credentials for {mechanism[:100]!r}")
