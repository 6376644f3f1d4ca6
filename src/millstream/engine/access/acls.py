"""ACLs and roles as administrators ask for them: list, create, delete, explain.

Owns the checks of a change before it goes to the control log, and who may make it: with ALTER on
the cluster all of it, the owner of a topic the ACLs of its literal name.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.config import Limits
from millstream.control.access import BUILT_IN_ROLES, Role
from millstream.control.acls import (
    Acl,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
    check_acl,
)
from millstream.control.commands import AddAcls, DeleteRole, PutRole, RemoveAcls, ReplaceAcls
from millstream.engine.controller import Controller
from millstream.engine.gate import CLUSTER, Gate, Operation, topic_resource
from millstream.errors import InvalidRequest, RequestError
from millstream.errors.access import AuthorizationOff, TooManyAcls, UnknownRole
from millstream.model import Principal, Session

if TYPE_CHECKING:  # Loaded where authorization is on.
    from millstream.control.decision import Decision
    from millstream.engine.access.rights import Rights


# What FlyMQ's ACL of a topic grants: both, or neither.
SHARED: Final = frozenset({AclOperation.READ, AclOperation.WRITE})
_ANY_HOST: Final = "*"


class Question(NamedTuple):
    """May this principal, from this address, do that?"""

    principal: Principal
    address: str
    operation: AclOperation
    resource_type: ResourceType
    name: str


class RoleView(NamedTuple):
    role: Role
    is_built_in: bool
    users: Sequence[str]


class AccessRules:
    def __init__(
        self, gate: Gate, controller: Controller, limits: Limits, rights: "Rights | None"
    ) -> None:
        """`rights` is None where authorization is off."""
        self._gate = gate
        self._controller = controller
        self._limits = limits
        self._rights = rights
        self._changing = asyncio.Lock()  # So that all fit into `acls_max`.

    # -- ACLs ------------------------------------------------------------------------------------

    def acls(self, session: Session, acl_filter: AclFilter) -> list[Acl]:
        """The ACLs that a filter means, oldest first."""
        self._gate.admit(session, Operation.DESCRIBE, CLUSTER)
        self._check_on()
        acl_filter.check()
        return self._controller.state.access.acls.select(acl_filter)

    async def create(self, session: Session, acls: Sequence[Acl]) -> Mapping[int, RequestError]:
        """Store ACLs, all that can be in one command; return the others' refusals, by place."""
        self._admit_change(session, acls)
        self._check_on()
        refusals: dict[int, RequestError] = {}
        async with self._changing:
            known = self._controller.state.access.acls
            added: dict[Acl, None] = {}
            for place, acl in enumerate(acls):
                try:
                    check_acl(acl)
                    if acl not in known and acl not in added:
                        if len(known) + len(added) >= self._limits.acls_max:
                            raise TooManyAcls(self._limits.acls_max)
                        added[acl] = None
                except RequestError as refusal:
                    refusals[place] = refusal
            if added:
                await self._controller.alter_access(session, AddAcls(acls=tuple(added)))
        return refusals

    async def delete(self, session: Session, filters: Sequence[AclFilter]) -> list[list[Acl]]:
        """Remove what the filters mean; return it, for each filter."""
        if not (filters and all(self._owns_named(session, acl_filter) for acl_filter in filters)):
            self._gate.admit(session, Operation.ALTER, CLUSTER)
        self._check_on()
        for acl_filter in filters:
            acl_filter.check()
        async with self._changing:
            known = self._controller.state.access.acls
            removed = [known.select(acl_filter) for acl_filter in filters]
            every = tuple(dict.fromkeys(acl for acls in removed for acl in acls))
            if every:
                await self._controller.alter_access(session, RemoveAcls(acls=every))
        return removed

    async def replace(self, session: Session, removed: Sequence[Acl], added: Sequence[Acl]) -> None:
        """Put ACLs in the place of others, in one step."""
        self._admit_change(session, [*removed, *added])
        self._check_on()
        for acl in added:
            check_acl(acl)
        async with self._changing:
            if len(self._controller.state.access.acls) + len(added) > self._limits.acls_max:
                raise TooManyAcls(self._limits.acls_max)
            command = ReplaceAcls(removed=tuple(removed), added=tuple(added))
            await self._controller.alter_access(session, command)

    def of_topic(self, session: Session, topic: str) -> list[Acl]:
        """The ACLs of a topic's literal name, oldest first."""
        self._gate.admit(session, Operation.DESCRIBE, topic_resource(topic))
        self._check_on()
        return self._controller.state.access.acls.select(_named(topic))

    async def share(self, session: Session, topic: str, principals: Sequence[str]) -> bool:
        """Let exactly these principals read and write a topic, as far as `is_shared` rules of its
        name say so, in one step; return whether there was any before."""
        if not self._gate.owns(session, topic):
            self._gate.admit(session, Operation.ALTER, CLUSTER)
        self._check_on()
        added = [
            Acl(
                resource_type=ResourceType.TOPIC,
                resource_name=topic,
                pattern_type=PatternType.LITERAL,
                principal=principal,
                host=_ANY_HOST,
                operation=operation,
                permission=Permission.ALLOW,
            )
            for principal in dict.fromkeys(principals)
            for operation in sorted(SHARED)
        ]
        named = self._controller.state.access.acls.select(_named(topic))
        removed = [acl for acl in named if is_shared(acl)]
        if removed or added:
            await self.replace(session, removed, added)
        return bool(removed)

    def explain(self, session: Session, question: Question) -> "Decision":
        """The answer to a question about rights and its rule; one's own need no right."""
        if not session.mechanism or question.principal != session.principal:
            self._gate.admit(session, Operation.DESCRIBE, CLUSTER)
        rights = self._check_on()
        if question.operation is AclOperation.ALL:
            raise InvalidRequest("ask for one operation: ALL is none of its own")
        asker = rights.asker(question.principal, question.address)
        return rights.judge(asker, question.operation, question.resource_type, question.name)

    # -- roles -----------------------------------------------------------------------------------

    def roles(self, session: Session) -> list[RoleView]:
        """Every role with its users, those that are built in first."""
        self._gate.admit(session, Operation.DESCRIBE, CLUSTER)
        access = self._controller.state.access
        stored = sorted(access.roles.values(), key=lambda role: role.name)
        users: dict[str, list[str]] = {}
        for user in sorted(access.users.values(), key=lambda user: user.name):
            for name in user.roles:
                users.setdefault(name, []).append(user.name)
        return [
            *(RoleView(Role(name=name), True, users.get(name, ())) for name in BUILT_IN_ROLES),
            *(RoleView(role, False, users.get(role.name, ())) for role in stored),
        ]

    async def put_role(
        self, session: Session, name: str, *, description: str = "", must_be_new: bool = False
    ) -> None:
        """Make a role, or describe it anew."""
        self._gate.admit(session, Operation.ALTER, CLUSTER)
        async with self._changing:
            known = self._controller.state.access.roles
            if name in known and must_be_new:
                raise InvalidRequest(f"role {name!r} exists already")
            if name not in known and len(known) >= self._limits.roles_max:
                raise InvalidRequest(
                    f"there are {len(known)} roles, at most {self._limits.roles_max} may be"
                )
            await self._controller.alter_access(
                session, PutRole(name=name, description=description)
            )

    async def delete_role(self, session: Session, name: str) -> None:
        """Delete a role with its ACLs; its users keep their other roles."""
        self._gate.admit(session, Operation.ALTER, CLUSTER)
        if name not in self._controller.state.access.roles and name not in BUILT_IN_ROLES:
            raise UnknownRole(name)
        await self._controller.alter_access(session, DeleteRole(name=name))

    # -- parts -----------------------------------------------------------------------------------

    def _check_on(self) -> "Rights":
        if self._rights is None:
            raise AuthorizationOff
        return self._rights

    def _admit_change(self, session: Session, acls: Sequence[Acl]) -> None:
        if not (acls and all(self._owns(session, acl) for acl in acls)):
            self._gate.admit(session, Operation.ALTER, CLUSTER)

    def _owns(self, session: Session, acl: Acl) -> bool:
        return (
            acl.resource_type is ResourceType.TOPIC
            and acl.pattern_type is PatternType.LITERAL
            and self._gate.owns(session, acl.resource_name)
        )

    def _owns_named(self, session: Session, acl_filter: AclFilter) -> bool:
        return (
            acl_filter.resource_type == ResourceType.TOPIC
            and acl_filter.is_exact
            and self._gate.owns(session, acl_filter.resource_name or "")
        )


def is_shared(acl: Acl) -> bool:
    """Whether a rule lets a principal read or write a topic of its literal name, from anywhere."""
    return (
        acl.resource_type is ResourceType.TOPIC
        and acl.pattern_type is PatternType.LITERAL
        and acl.permission is Permission.ALLOW
        and acl.host == _ANY_HOST
        and acl.operation in SHARED
    )


def _named(topic: str) -> AclFilter:
    return AclFilter(ResourceType.TOPIC, topic, PatternType.LITERAL)
