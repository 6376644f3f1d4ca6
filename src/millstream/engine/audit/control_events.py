"""The events of a committed control command.

Pure: the same command and outcome give the same events on every node, so that the trail can be
completed from the control log after any crash.
"""

from collections.abc import Iterator, Mapping
from itertools import groupby, islice
from typing import Any, Final, NamedTuple, assert_never

from millstream.control.acls import Acl
from millstream.control.commands import (
    AccessCommand,
    Actor,
    AddAcls,
    AddPartitions,
    AddReplicas,
    AlterQuotas,
    AlterResource,
    AlterTopic,
    AlterUsers,
    AnyCommand,
    ChangeNode,
    ClusterCommand,
    CreateTopic,
    DeleteRole,
    DeleteTopic,
    FinalizeLevel,
    FinishMoves,
    MoveReplicas,
    PutRole,
    RegisterNode,
    RemoveAcls,
    ReplaceAcls,
    RequireEncryption,
    ReserveProducerIds,
    TopicCommand,
    UserChange,
)
from millstream.control.levels import FEATURE
from millstream.security.audit import EVENTS
from millstream.security.audit_events import TEXT_LENGTH_MAX, Facts

CONTROL_EVENTS: Final = frozenset(
    event
    for event in EVENTS
    if event.partition(".")[0] in {"topic", "user", "acl", "role", "quota", "config", "cluster"}
)
ACLS_NAMED_MAX = 100  # In one event; the others are counted.
MOVES_NAMED_MAX = 100
UNKNOWN_ACTOR = Actor(principal="System:unknown", at_ms=0)


class Fate(NamedTuple):
    """What became of a command whose events do not follow from it alone."""

    is_refused: bool = False
    refused_places: frozenset[int] = frozenset()
    created_places: frozenset[int] = frozenset()


USUAL = Fate()


class _Act(NamedTuple):
    event: str
    resource: str
    details: Mapping[str, Any]


def control_events(command: AnyCommand, fate: Fate, offset: int, node_id: int) -> Iterator[Facts]:
    """Events in a fixed order; each has the offset of its command and its place among them."""
    if fate.is_refused:
        return
    by = command.by or UNKNOWN_ACTOR
    for place, act in enumerate(_acts(command, fate)):
        yield Facts(
            event=act.event,
            principal=by.principal,
            roles=by.roles,
            mechanism=by.mechanism,
            listener=by.listener,
            protocol=by.protocol,
            address=by.address,
            client_id=by.client_id,
            action=type(command).__name__,
            resource=act.resource[:TEXT_LENGTH_MAX],
            node=node_id,
            details={**act.details, "control_offset": offset, "control_place": place},
        )


def _acts(command: AnyCommand, fate: Fate) -> Iterator[_Act]:
    if isinstance(command, AccessCommand):
        yield from _access_acts(command, fate)
        return
    if isinstance(command, ClusterCommand):
        yield from _cluster_acts(command)
        return
    if isinstance(command, TopicCommand):
        yield _topic_act(command)
        return
    match command:
        case AlterQuotas(user=user, client_id=client_id, changes=quotas):
            entity = {"user": user, "client_id": client_id}
            yield _Act("quota.change", "cluster", {**entity, "quotas": quotas})
        case AlterResource(kind=kind, name=name, changes=changes):
            yield _Act("config.change", f"{kind}:{name}", {"settings": changes})
        case ReserveProducerIds():
            return


def _cluster_acts(command: ClusterCommand) -> Iterator[_Act]:
    match command:
        case RegisterNode(node_id=node_id, peer=(host, port), version=version):
            details = {"peer": f"{host}:{port}", "version": version}
            yield _Act("cluster.join", f"node:{node_id}", details)
        case ChangeNode(node_id=node_id, state="removed"):
            yield _Act("cluster.leave", f"node:{node_id}", {})
        case ChangeNode(node_id=node_id, state=state):
            yield _Act("config.change", f"node:{node_id}", {"state": state})
        case RequireEncryption(is_required=is_required):
            yield _Act("encryption.change", "cluster", {"is_required": is_required})
        case FinalizeLevel(level=level):
            yield _Act("config.change", "cluster", {FEATURE: level})


def _topic_act(command: TopicCommand) -> _Act:
    match command:
        case CreateTopic(name=name, topic_id=topic_id, placement=placement, overrides=overrides):
            details = {"topic_id": str(topic_id), "partitions": len(placement)}
            return _Act("topic.create", f"topic:{name}", {**details, "settings": overrides})
        case DeleteTopic(name=name):
            return _Act("topic.delete", f"topic:{name}", {})
        case AddPartitions(name=name, count_before=before, placement=placement):
            details = {"partitions": before + len(placement), "partitions_before": before}
            return _Act("topic.modify", f"topic:{name}", details)
        case AddReplicas(name=name, count_before=before, added=added):
            details = {"replicas": before + len(added[0]), "replicas_before": before}
            return _Act("topic.modify", f"topic:{name}", details)
        case MoveReplicas(name=name, targets=targets):
            some = islice(targets.items(), MOVES_NAMED_MAX)
            nodes = {str(partition): replicas for partition, replicas in some}
            details = {"moved_partitions": len(targets), "nodes": nodes}
            return _Act("topic.modify", f"topic:{name}", details)
        case FinishMoves(name=name, moves=moves):
            details = {"moved_partitions": len(moves), "is_finished": True}
            return _Act("topic.modify", f"topic:{name}", details)
        case AlterTopic(name=name, changes=changes):
            return _Act("topic.modify", f"topic:{name}", {"settings": changes})
        case _:
            assert_never(command)


def _access_acts(command: AccessCommand, fate: Fate) -> Iterator[_Act]:
    match command:
        case AlterUsers(changes=user_changes):
            for place, change in enumerate(user_changes):
                if place not in fate.refused_places:
                    yield _user_act(change, is_new=place in fate.created_places)
        case PutRole(name=name):
            event = "role.create" if fate.created_places else "role.update"
            yield _Act(event, f"role:{name}", {})
        case DeleteRole(name=name):
            yield _Act("role.delete", f"role:{name}", {})
        case AddAcls(acls=acls):
            yield from _acl_acts("acl.set", acls)
        case RemoveAcls(acls=acls):
            yield from _acl_acts("acl.delete", acls)
        case ReplaceAcls(removed=removed, added=added):
            yield from _acl_acts("acl.delete", tuple(acl for acl in removed if acl not in added))
            yield from _acl_acts("acl.set", added)


def _user_act(change: UserChange, *, is_new: bool) -> _Act:
    resource = f"user:{change.name}"
    if change.is_deleted:
        return _Act("user.delete", resource, {})
    details: dict[str, Any] = {}
    if change.roles is not None:
        details["roles"] = change.roles
    if change.is_enabled is not None:
        details["enabled"] = change.is_enabled
    if change.credentials:
        details["mechanisms"] = sorted(change.credentials)
    if is_new:
        return _Act("user.create", resource, details)
    is_password_alone = change.roles is None and change.is_enabled is None and change.credentials
    return _Act("user.password" if is_password_alone else "user.update", resource, details)


def _acl_acts(event: str, acls: tuple[Acl, ...]) -> Iterator[_Act]:
    """An event for each resource that ACLs name."""

    def resource_of(acl: Acl) -> str:
        kind = acl.resource_type.name.lower()
        return kind if kind == "cluster" else f"{kind}:{acl.resource_name}"

    for resource, group in groupby(sorted(acls, key=resource_of), resource_of):
        named = [str(acl) for acl in group]
        details = {"acls": named[:ACLS_NAMED_MAX], "acl_count": len(named)}
        yield _Act(event, resource, details)
