"""A node that asks for rights, and ACLs in few words."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from millstream.config import Config
from millstream.control.acls import Acl, AclOperation, PatternType, Permission, ResourceType
from millstream.model import Session, user_principal
from millstream.ports import Files
from millstream.security.settings import Security
from millstream.server.node import Node
from tests.support.nodes import SESSION, running_node

ROOT = SESSION  # One of the super users below.
ANN = Session(principal=user_principal("ann"), mechanism="TLS", address="10.0.0.7")
BOB = Session(principal=user_principal("bob"), mechanism="TLS", address="10.0.0.8")
SECURITY = Security(authorization="on", super_users=("User:test",))

_TYPES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "cluster": ResourceType.CLUSTER,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
}


def acl(
    operation: str,
    resource: str,
    *,
    principal: str = "User:ann",
    host: str = "*",
    denies: bool = False,
) -> Acl:
    """`acl("READ", "topic:orders")`; a name that ends in `...` is a prefix."""
    kind, _, name = resource.partition(":")
    is_prefix = name.endswith("...")
    return Acl(
        resource_type=_TYPES[kind],
        resource_name=name.removesuffix("...") or "kafka-cluster",
        pattern_type=PatternType.PREFIXED if is_prefix else PatternType.LITERAL,
        principal=principal,
        host=host,
        operation=AclOperation[operation],
        permission=Permission.DENY if denies else Permission.ALLOW,
    )


@asynccontextmanager
async def secured_node(
    *acls: Acl,
    config: Config | None = None,
    security: Security = SECURITY,
    files: Files | None = None,
) -> AsyncIterator[Node]:
    config = replace(config or Config(), security=security)
    async with running_node(config, files=files) as node:
        if acls:
            assert await node.access_rules.create(ROOT, acls) == {}
        yield node
