"""The principal of a request, and what it may do."""

import asyncio

import msgspec

from millstream.control.acls import AclOperation
from millstream.model import NEVER_EXPIRES
from millstream.protocols.http.calls import Call
from millstream.protocols.http.router import Params, Route

NO_OPERATIONS = -(2**31)  # Kafka's number for "not told".


class Asked(Params, frozen=True, kw_only=True):
    topic: str | None = None  # A topic to tell the operations of.


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    principal: str
    roles: list[str]
    mechanism: str  # Empty without a login.
    listener: str
    is_tls: bool
    address: str
    session_ms: int | None  # Until the session ends; null: never.
    cluster_operations: list[str]
    topic_operations: list[str] | None = None


def whoami(call: Call, params: Asked) -> Identity:
    session, topics = call.session, call.services.topics
    left_s = session.expires_at - asyncio.get_running_loop().time()
    return Identity(
        principal=str(session.principal),
        roles=list(call.services.users.access.roles_of(session)),
        mechanism=session.mechanism,
        listener=session.listener,
        is_tls=session.is_tls,
        address=session.address,
        session_ms=None if session.expires_at == NEVER_EXPIRES else max(0, int(left_s * 1000)),
        cluster_operations=_names(topics.cluster_operations(session)),
        topic_operations=None
        if params.topic is None
        else _names(topics.operations(session, params.topic)),
    )


def _names(bits: int) -> list[str]:
    """The operations of a bit field of Kafka's (KIP-430)."""
    if bits == NO_OPERATIONS:
        return []
    return [operation.name.lower() for operation in AclOperation if bits & 1 << operation]


ROUTES = (
    Route(
        method="GET",
        path="/v1/whoami",
        handler=whoami,
        summary="Who asks, and what it may do to the cluster and, if asked, to a topic",
        params=Asked,
        reply=Identity,
    ),
)
