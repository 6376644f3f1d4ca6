"""The root of replicated state: one fold over the control log.

Invariant: a command is applied once, in log order, on every node, and its reply or refusal is the
same everywhere. The control log is kept whole, so a node that starts, or joins, folds it from its
first record.
"""

from millstream.control.access import Access, AccessChange
from millstream.control.catalog import Catalog, Topic
from millstream.control.commands import (
    AccessCommand,
    AlterQuotas,
    AlterResource,
    AnyCommand,
    ChangeNode,
    ClusterCommand,
    FinalizeLevel,
    MoveReplicas,
    NodeCommand,
    RaiseSchemaIds,
    RequireEncryption,
    ReserveProducerIds,
    TopicCommand,
    decode,
)
from millstream.control.levels import check_written
from millstream.control.nodes import Invitation, Node, Nodes, NodeState
from millstream.control.quotas import Entity, Quotas
from millstream.control.quotas import check as check_quotas
from millstream.control.resources import Resource, ResourceKind, Resources
from millstream.control.resources import check as check_resource
from millstream.errors import InvalidRequest, RequestError, UnusableCommand
from millstream.errors.cluster import NodeRefused
from millstream.model import NodeId

# The reply to a command: the topic, entity, resource or node it changed, the ids it reserved, or
# the highest id of a schema.
Outcome = Topic | Entity | Resource | AccessChange | Node | Invitation | range | int


class State:
    """Everything the cluster has agreed on, up to `applied_offset` (exclusive)."""

    def __init__(self) -> None:
        self.catalog = Catalog()
        self.quotas = Quotas()
        self.resources = Resources()
        self.access = Access()
        self.nodes = Nodes()
        self.schema_ids: dict[str, int] = {}  # The highest ones given, by context.
        self.applied_offset = 0
        self._producer_ids = 0  # How many were reserved, ever.

    def check(self, command: AnyCommand) -> None:
        """Raise a `RequestError` for a command that the rules of this version do not allow."""
        if not isinstance(command, FinalizeLevel):  # It says which levels all nodes know.
            check_written(type(command).__name__, command.LEVEL, self.nodes.level)
        if isinstance(command, ReserveProducerIds):
            if command.count < 1:
                raise InvalidRequest(f"{command.count} producer ids were asked for, not 1 or more")
        elif isinstance(command, RaiseSchemaIds):
            if command.highest < 0:
                raise InvalidRequest(f"{command.highest} is no id of a schema")
        elif isinstance(command, AlterQuotas):
            check_quotas(Entity(command.user, command.client_id, command.ip), command.changes)
        elif isinstance(command, AlterResource):
            check_resource(Resource(ResourceKind(command.kind), command.name), command.changes)
        elif isinstance(command, AccessCommand):
            self.access.check(command)
        elif isinstance(command, ClusterCommand):
            self._check_removal(command)
            self.nodes.check(command)
        else:
            self._check_targets(command)
            self.catalog.check(command)

    def fold(self, offset: int, data: bytes | None) -> tuple[AnyCommand, Outcome]:
        """Decode and apply the command at `offset`; raise its refusal, a `RequestError`, or
        `UnusableCommand`: the log is damaged or of a newer version, or this is a bug."""
        try:
            command = decode(data or b"")
            return command, self.apply(offset, command)
        except RequestError:
            raise
        except Exception as problem:
            self.applied_offset = offset + 1
            raise UnusableCommand(offset, problem) from problem

    def apply(self, offset: int, command: AnyCommand) -> Outcome:
        """Apply the command at `offset`; a `RequestError` is its reply and changes nothing else."""
        assert offset >= self.applied_offset, "a command was applied twice"
        self.applied_offset = offset + 1
        if isinstance(command, ReserveProducerIds):
            first, self._producer_ids = self._producer_ids, self._producer_ids + command.count
            return range(first, self._producer_ids)
        if isinstance(command, RaiseSchemaIds):
            highest = max(self.schema_ids.get(command.context, 0), command.highest)
            self.schema_ids[command.context] = highest
            return highest
        if isinstance(command, AlterQuotas):
            return self.quotas.apply(command)
        if isinstance(command, AlterResource):
            return self.resources.apply(command)
        if isinstance(command, AccessCommand):
            return self.access.apply(command, offset)
        if isinstance(command, NodeCommand):
            self._check_removal(command)
            return self.nodes.apply(command, offset)
        if isinstance(command, RequireEncryption):
            return self.nodes.require_encryption(command)
        if isinstance(command, FinalizeLevel):
            return self.nodes.finalize(command, offset)
        self._check_targets(command)
        owner = self.catalog.owner_of(command.name)
        topic = self.catalog.apply(command, offset)
        if self.catalog.owner_of(command.name) != owner:
            self.access.note_owner()
        return topic

    # Rules over nodes and topics: a node that is removed holds nothing, and stays so.

    def _check_removal(self, command: ClusterCommand) -> None:
        if not isinstance(command, ChangeNode) or command.state != NodeState.REMOVED.value:
            return
        held = len(self.catalog.partitions_on(NodeId(command.node_id)))
        if held:
            raise NodeRefused(
                f"node {command.node_id} holds {held} partitions: "
                f"millstream cluster decommission {command.node_id} moves them first"
            )

    def _check_targets(self, command: TopicCommand) -> None:
        if isinstance(command, MoveReplicas):
            topic = self.catalog.find_own(command.name)
            for partition, nodes in command.targets.items():
                if nodes and 0 <= partition < topic.partition_count:
                    for node in sorted(set(nodes).difference(topic.assigned(partition))):
                        self.nodes.check_takes_replicas(node)
