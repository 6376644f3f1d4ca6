"""The policy of a node with authorization: Kafka's rights for the engine's operations.

Owns the table from operations to rights, and the cache of answers. `control.decision` judges.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

from millstream.config import Config
from millstream.control.access import Access
from millstream.control.acls import CLUSTER_NAME, AclOperation, ResourceType
from millstream.control.catalog import OWNER, Catalog
from millstream.control.decision import (
    Asker,
    Decision,
    Resource,
    Rules,
    asker_of,
    decide,
    decide_any,
    operations_of,
)
from millstream.engine.gate import Operation
from millstream.model import Principal, Session
from millstream.security.settings import Security

_log = logging.getLogger(__name__)

Watcher = Callable[[], None]

_T, _G, _C, _X = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
KINDS: Final = {"topic": _T, "group": _G, "cluster": _C, "transactional_id": _X}
# Listings ask for nothing: they leave out what the session may not see.
LISTINGS: Final = frozenset({"topics", "groups", "transactional_ids"})


class Right(NamedTuple):
    operation: AclOperation
    on: ResourceType
    is_on_any: bool = False  # One name that could be meant is enough.


def _rights(operation: AclOperation, *kinds: ResourceType) -> dict[ResourceType, tuple[Right, ...]]:
    return {kind: (Right(operation, kind),) for kind in kinds}


_CREATE = Right(AclOperation.CREATE, _C)
# What each operation needs of a kind of resource: any one of these.
RIGHTS: Final[dict[str, dict[ResourceType, tuple[Right, ...]]]] = {
    Operation.APPEND.words: _rights(AclOperation.WRITE, _T),
    Operation.READ.words: _rights(AclOperation.READ, _T),
    Operation.DESCRIBE.words: _rights(AclOperation.DESCRIBE, _T, _G, _C, _X),
    Operation.CREATE.words: {_T: (_CREATE, Right(AclOperation.CREATE, _T)), _C: (_CREATE,)},
    Operation.ALTER.words: _rights(AclOperation.ALTER, _T, _C),
    Operation.DELETE.words: _rights(AclOperation.DELETE, _T, _G),
    Operation.DELETE_RECORDS.words: _rights(AclOperation.DELETE, _T),
    Operation.JOIN.words: _rights(AclOperation.READ, _G),
    Operation.COMMIT.words: _rights(AclOperation.READ, _G),
    Operation.TRANSACT.words: _rights(AclOperation.WRITE, _X),
    Operation.DESCRIBE_CONFIGS.words: _rights(AclOperation.DESCRIBE_CONFIGS, _T, _G, _C),
    Operation.ALTER_CONFIGS.words: _rights(AclOperation.ALTER_CONFIGS, _T, _G, _C),
    Operation.IDEMPOTENT_WRITE.words: {
        _C: (
            Right(AclOperation.IDEMPOTENT_WRITE, _C),
            Right(AclOperation.WRITE, _T, is_on_any=True),
        )
    },
    Operation.CLUSTER_ACTION.words: _rights(AclOperation.CLUSTER_ACTION, _C),
}
_LISTED: Final = Decision(True, "listings leave out what may not be seen")


class Rights:
    def __init__(self, access: Access, catalog: Catalog, config: Config) -> None:
        self._access = access
        self._catalog = catalog
        self._rules = rules_of(config.security)
        self._decisions_max = config.limits.decisions_max
        self._decisions: dict[tuple[object, ...], bool] = {}
        self._decided_at = access.version
        self._stale_s = config.security.stale_ms_max / 1000
        self._stale_timer: asyncio.TimerHandle | None = None
        self._stale_changes = 0

    @property
    def version(self) -> int:
        return self._access.version + self._stale_changes

    def follow(self, leader: Callable[[], object], watch: Callable[[Watcher], None]) -> None:
        """Deny all but super users while no leader of the control log was known for long: then
        this node may not have heard of rights that were revoked.

        `leader` is the one that is known, or None; `watch` registers a call for its changes.
        """
        watch(lambda: self._note_leader(leader() is not None))

    def _note_leader(self, is_known: bool) -> None:
        if not is_known:
            if self._stale_timer is None:
                loop = asyncio.get_running_loop()
                self._stale_timer = loop.call_later(self._stale_s, self._set_stale, True)
        elif self._stale_timer is not None:
            self._stale_timer.cancel()
            self._stale_timer = None
            if self._rules.is_stale:
                self._set_stale(False)

    def _set_stale(self, is_stale: bool) -> None:
        self._rules = replace(self._rules, is_stale=is_stale)
        self._decisions.clear()
        self._stale_changes += 1  # Open reads ask again.
        words = "denying all but super users" if is_stale else "asking ACLs again"
        _log.warning("%s: the leader of the control log is known=%s", words, not is_stale)

    def allows(self, session: Session, operation: Operation, resource: str) -> bool:
        decisions = self._decisions
        if self._decided_at != self._access.version or len(decisions) >= self._decisions_max:
            decisions.clear()
            self._decided_at = self._access.version
        key = (
            session.principal,
            session.roles,
            session.mechanism,
            session.address,
            operation.words,
            resource,
        )
        allowed = decisions.get(key)
        if allowed is None:
            decision = self.explain(asker_of(self._access, session), operation, resource)
            allowed = decisions[key] = decision.is_allowed
        return allowed

    def explain(self, asker: Asker, operation: Operation, resource: str) -> Decision:
        """The decision and its rule, from the rights that an operation of the engine needs."""
        kind_name, _, name = resource.partition(":")
        if kind_name in LISTINGS:
            return _LISTED
        kind = KINDS[kind_name]
        decision = None
        for right in RIGHTS[operation.words][kind]:
            on = name if right.on is kind else ""
            decision = (
                self._judge_any(asker, right)
                if right.is_on_any
                else self.judge(asker, right.operation, right.on, on)
            )
            if decision.is_allowed:
                break
        assert decision is not None
        return decision

    def audit_words(self, session: Session, operation: Operation, resource: str) -> tuple[str, str]:
        """The right that was asked for and the rule that decided, as the audit trail has them."""
        kind_name = resource.partition(":")[0]
        if kind_name in LISTINGS:
            return operation.name, ""
        right = RIGHTS[operation.words][KINDS[kind_name]][0]
        decision = self.explain(asker_of(self._access, session), operation, resource)
        return right.operation.name, str(decision.rule)

    def judge(
        self, asker: Asker, operation: AclOperation, kind: ResourceType, name: str
    ) -> Decision:
        """The decision about one right."""
        return decide(self._access, self._rules, asker, operation, self._resource(kind, name))

    def _judge_any(self, asker: Asker, right: Right) -> Decision:
        owned = (
            topic.name
            for topic in self._catalog.topics()
            if topic.overrides.get(OWNER) in asker.principals
        )
        return decide_any(self._access, self._rules, asker, right.operation, right.on, owned)

    def operations_of(self, session: Session, resource: str) -> int:
        kind_name, _, name = resource.partition(":")
        asker = asker_of(self._access, session)
        return operations_of(
            self._access, self._rules, asker, self._resource(KINDS[kind_name], name)
        )

    def owns(self, session: Session, topic: str) -> bool:
        owner = self._catalog.owner_of(topic)
        return bool(owner) and owner in asker_of(self._access, session).principals

    def asker(self, principal: Principal, address: str) -> Asker:
        """A client of that principal, as it would be after a login."""
        if principal.kind == "Role":
            return Asker((str(principal),), (principal.name,), address)
        session = Session(principal=principal, address=address, mechanism="TLS")
        return asker_of(self._access, session)

    def _resource(self, kind: ResourceType, name: str) -> Resource:
        if kind is _C:
            return Resource(kind, CLUSTER_NAME)
        return Resource(kind, name, self._catalog.owner_of(name) if kind is _T else "")


def rules_of(security: Security) -> Rules:
    return Rules(
        super_users=frozenset(security.super_users),
        allows_without_acl=security.when_no_acl == "allow",
    )
