"""`client.acls`, `roles`, `quotas` and `audit` for asyncio: each call waits on a thread."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from typing import Unpack

    from millstream.client._librdkafka.threads import Threads
    from millstream.client.connection import Client
    from millstream.client.extensions.audit import AuditTrail
    from millstream.client.extensions.quotas import Quotas
    from millstream.client.extensions.rights import Acls, Roles
    from millstream.client.models import (
        AclEntry,
        AclExplanation,
        AuditEvent,
        AuditFilter,
        AuditVerdict,
        Quota,
        Role,
    )


class AsyncAcls:
    """`await client.acls.list()`: as `Acls`."""

    def __init__(self, acls: Acls, threads: Threads) -> None:
        self._acls = acls
        self._threads = threads

    async def list(
        self, *, principal: str | None = None, resource: str | None = None, name: str | None = None
    ) -> tuple[AclEntry, ...]:
        """The ACLs of a principal, of a kind of resource, of a name; without, all of them."""
        return await self._threads.run(
            self._acls.list, principal=principal, resource=resource, name=name
        )

    async def create(self, entries: Sequence[AclEntry]) -> None:
        """Store ACLs; those that are there already stay. The first refusal is raised."""
        await self._threads.run(self._acls.create, entries)

    async def delete(self, entries: Sequence[AclEntry]) -> int:
        """Remove ACLs; return how many there were."""
        return await self._threads.run(self._acls.delete, entries)

    async def explain(
        self, principal: str, operation: str, resource: str, name: str, *, host: str = ""
    ) -> AclExplanation:
        """Whether a principal may do something, and the rule that says so."""
        return await self._threads.run(
            self._acls.explain, principal, operation, resource, name, host=host
        )


class AsyncRoles:
    """`await client.roles.list()`: as `Roles`."""

    def __init__(self, roles: Roles, threads: Threads) -> None:
        self._roles = roles
        self._threads = threads

    async def list(self) -> tuple[Role, ...]:
        """Every role, those that are built in first."""
        return await self._threads.run(self._roles.list)

    async def create(self, name: str, *, description: str = "") -> None:
        """Make a role; its rights are ACLs of `Role:NAME`."""
        await self._threads.run(self._roles.create, name, description=description)

    async def delete(self, name: str) -> None:
        """Delete a role with its ACLs."""
        await self._threads.run(self._roles.delete, name)


class AsyncAudit:
    """`await client.audit.query()`: as `AuditTrail`."""

    def __init__(self, audit: AuditTrail, threads: Threads) -> None:
        self._audit = audit
        self._threads = threads

    async def query(
        self, *, limit: int = 100, **filters: Unpack[AuditFilter]
    ) -> tuple[AuditEvent, ...]:
        """The newest events that match all filters, newest first."""
        return await self._threads.run(self._audit.query, limit=limit, **filters)

    async def verify(self, *, key: bytes = b"", heads: Sequence[str] = ()) -> AuditVerdict:
        """Follow the chain of every node through the whole trail."""
        return await self._threads.run(self._audit.verify, key=key, heads=heads)

    async def export(self, **filters: Unpack[AuditFilter]) -> AsyncIterator[AuditEvent]:
        """All events that match, newest first, read page by page."""
        events = self._audit.export(**filters)
        while (event := await self._threads.run(next, events, None)) is not None:
            yield event

    async def tail(self, **filters: Unpack[AuditFilter]) -> AsyncIterator[AuditEvent]:
        """Events as they are written, from now on, without an end."""
        events = self._audit.tail(**filters)
        while (event := await self._threads.run(next, events, None)) is not None:
            yield event


class AsyncQuotas:
    """`await client.quotas.list()`: as `Quotas`."""

    def __init__(self, quotas: Quotas, threads: Threads) -> None:
        self._quotas = quotas
        self._threads = threads

    async def list(self) -> tuple[Quota, ...]:
        """Every quota."""
        return await self._threads.run(self._quotas.list)

    async def set(
        self,
        limits: Mapping[str, float],
        *,
        user: str | None = None,
        client_id: str | None = None,
        ip: str | None = None,
    ) -> None:
        """Limit a user, a client id, both together, or an address; other limits stay."""
        await self._threads.run(self._quotas.set, limits, user=user, client_id=client_id, ip=ip)

    async def delete(
        self,
        *names: str,
        user: str | None = None,
        client_id: str | None = None,
        ip: str | None = None,
    ) -> None:
        """Take limits away; without names all that the holder has."""
        await self._threads.run(self._quotas.delete, *names, user=user, client_id=client_id, ip=ip)


class AsyncRights:
    """The part of an `AsyncClient` that gives rights."""

    _client: Client
    _threads: Threads

    @cached_property
    def acls(self) -> AsyncAcls:
        return AsyncAcls(self._client.acls, self._threads)

    @cached_property
    def quotas(self) -> AsyncQuotas:
        return AsyncQuotas(self._client.quotas, self._threads)

    @cached_property
    def audit(self) -> AsyncAudit:
        return AsyncAudit(self._client.audit, self._threads)

    @cached_property
    def roles(self) -> AsyncRoles:
        return AsyncRoles(self._client.roles, self._threads)
