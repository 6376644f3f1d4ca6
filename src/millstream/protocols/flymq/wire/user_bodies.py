"""The bodies about users, their rights, and the audit trail of their actions.

Owns the layouts, as `bodies` does for all others.
"""

from typing import Annotated, NamedTuple

from millstream.protocols.flymq.wire.shapes import I32, I64, U32, Bool, Bytes4, Sized, Str1, Str2


class Authenticate(NamedTuple):
    user: Str2
    password: Str2


class Authenticated(NamedTuple):
    success: Bool
    user: Str2
    roles: tuple[Str1, ...]
    error: Str2


class Identity(NamedTuple):
    """Both clients encode the anonymous user alike, but not a named one."""

    is_authenticated: Bool
    user: Str2
    roles: tuple[Str2, ...]
    permissions: tuple[Str2, ...]


class UserOnly(NamedTuple):
    user: Str2


class UserRequest(NamedTuple):
    user: Str2
    password: Str2
    old_password: Str2
    roles: tuple[Str2, ...]
    is_enabled: Bool


class User(NamedTuple):
    user: Str2
    roles: tuple[Str2, ...]
    permissions: tuple[Str2, ...]
    is_enabled: Bool
    created_s: I64
    updated_s: I64


class Users(NamedTuple):
    users: tuple[User, ...]


class SetAcl(NamedTuple):
    topic: Str2
    is_public: Bool
    users: tuple[Str2, ...]
    roles: tuple[Str2, ...]


class AclChanged(NamedTuple):
    success: Bool
    topic: Str2


class Acl(NamedTuple):
    topic: Str2
    exists: Bool
    is_public: Bool
    is_public_by_default: Bool
    users: tuple[Str2, ...]
    roles: tuple[Str2, ...]


class ListedAcl(NamedTuple):
    topic: Str2
    exists: Bool
    is_public: Bool
    users: tuple[Str2, ...]
    roles: tuple[Str2, ...]


class Acls(NamedTuple):
    acls: tuple[ListedAcl, ...]
    is_public_by_default: Bool


class Role(NamedTuple):
    name: Str2
    permissions: tuple[Str2, ...]
    description: Str2


class Roles(NamedTuple):
    roles: tuple[Role, ...]


class AuditQuery(NamedTuple):
    start_s: I64  # 0: open, as is the end.
    end_s: I64
    kinds: tuple[Str2, ...]
    user: Str2
    resource: Str2
    result: Str2
    search: Str2
    limit: I32
    offset: I32


class AuditDetail(NamedTuple):
    key: Str2
    value: Str2


class AuditEvent(NamedTuple):
    id: Str2
    timestamp_ms: I64
    kind: Str2
    user: Str2
    address: Str2
    resource: Str2
    action: Str2
    result: Str2
    node_id: Str2
    details: tuple[AuditDetail, ...]


class AuditEvents(NamedTuple):
    events: tuple[Annotated[AuditEvent, Sized], ...]
    total: U32
    has_more: Bool


class ExportAudit(NamedTuple):
    query: Annotated[AuditQuery, Sized]
    format: Str2


class AuditExport(NamedTuple):
    format: Str2
    data: Bytes4
