"""The nodes of a cluster and the invitations to it, as a fold over commands.

Owns the rules for registering, draining and removing nodes. Pure. A cluster of one that was never
asked to grow registers nothing: its founders are its nodes.

Invariant: a node id is given once. It belongs to the data directory that registered it, and a
removed one is refused for ever: a replica that lost its data never votes under its old name.
"""

from collections.abc import Mapping
from enum import Enum
from uuid import UUID

import msgspec

from millstream.control.commands import (
    ChangeNode,
    ClusterCommand,
    FinalizeLevel,
    InviteNode,
    NodeCommand,
    NodeEncryption,
    RegisterNode,
    RequireEncryption,
)
from millstream.control.levels import check_finalize, unknown_level
from millstream.errors import InvalidPlacement
from millstream.errors.cluster import InvalidInvitation, NodeRefused, UnknownNode
from millstream.model import FIRST_LEVELS, NODE_BITS, LevelRange, NodeId

CONTROLLER, BROKER = "controller", "broker"
ROLES = (CONTROLLER, BROKER)
INVITATIONS_MAX = 1_000  # That are open: expired ones are forgotten when another is made.
LISTENERS_MAX = 100
ADDRESS_LENGTH_MAX = 255


class NodeState(Enum):
    ACTIVE = "active"
    DRAINING = "draining"  # It leads nothing and gets no new replicas.
    LEAVING = "leaving"  # Its replicas move to other nodes; without any it is removed.
    REMOVED = "removed"


# A node that is removed stays so: another machine would answer under its name.
TRANSITIONS: dict[tuple[NodeState, NodeState], bool] = {
    (NodeState.ACTIVE, NodeState.DRAINING): True,
    (NodeState.DRAINING, NodeState.ACTIVE): True,
    (NodeState.ACTIVE, NodeState.LEAVING): True,
    (NodeState.DRAINING, NodeState.LEAVING): True,
    (NodeState.LEAVING, NodeState.ACTIVE): True,
    (NodeState.ACTIVE, NodeState.REMOVED): True,
    (NodeState.DRAINING, NodeState.REMOVED): True,
    (NodeState.LEAVING, NodeState.REMOVED): True,
}

Address = tuple[str, int]


class Node(msgspec.Struct, frozen=True, kw_only=True):
    node_id: NodeId
    directory_id: UUID
    peer: Address
    listeners: dict[str, Address]  # Where clients of each listener are sent.
    rack: str
    machine: str  # What fails together. Empty: this node alone.
    roles: tuple[str, ...]
    version: str
    state: NodeState
    registered_offset: int  # Of the command that gave it its id.
    encryption: NodeEncryption | None = None  # None: it did not say.
    levels: LevelRange = FIRST_LEVELS  # Of the feature `cluster.version`.
    successor: NodeId | None = None  # Of one that leaves: the node that takes its replicas.

    @property
    def machine_name(self) -> str:
        return self.machine or f"node-{self.node_id}"


class Invitation(msgspec.Struct, frozen=True, kw_only=True):
    secret_hash: bytes
    expires_ms: int


class Nodes:
    """All nodes, removed ones included. `apply` changes them, or raises and changes nothing."""

    def __init__(self) -> None:
        self.version = 0  # Grows with every change.
        self.is_encryption_required = False
        self.level = 0  # Of `cluster.version`, as finalized. 0: a node alone, at its highest.
        self.level_offset = 0  # Of the command that finalized it.
        self._nodes: dict[NodeId, Node] = {}
        self._invitations: dict[bytes, Invitation] = {}

    def all(self) -> list[Node]:
        """Every node that was ever registered, by its id."""
        return [self._nodes[node_id] for node_id in sorted(self._nodes)]

    def members(self) -> list[Node]:
        """The nodes that are part of the cluster, draining ones included, by their ids."""
        return [node for node in self.all() if node.state is not NodeState.REMOVED]

    def find(self, node_id: int) -> Node:
        node = self._nodes.get(NodeId(node_id))
        if node is None:
            raise UnknownNode(node_id)
        return node

    def get(self, node_id: int) -> Node | None:
        return self._nodes.get(NodeId(node_id))

    def next_id(self) -> NodeId:
        """An id that no node has ever had."""
        return NodeId(max(self._nodes, default=0) + 1)

    def invitations(self) -> list[Invitation]:
        """Those that were not used; some may have expired."""
        return list(self._invitations.values())

    def encryption_refusal(self, node_id: int, own: NodeEncryption | None) -> str:
        """Why a node may not be part of the cluster with its encryption at rest; empty if it may.

        A key that it has registered stays good, and so does that of a version that did not say.
        """
        if self.is_encryption_required and (own is None or own.mode != "on"):
            return (
                'this cluster requires encryption at rest: set encryption.mode = "on" and '
                "encryption.key"
            )
        known = self._nodes.get(NodeId(node_id))
        if own is None or (known is not None and known.encryption in (None, own)):
            return ""
        return self.key_clash(node_id, own.key_name, own.check)

    def key_clash(self, node_id: int, key_name: str, check: str) -> str:
        """Why a root key may not have its name: another node has another key of that name."""
        for node in self.members():
            other = node.encryption
            if node.node_id == node_id or other is None or not (check and other.check):
                continue
            if other.key_name == key_name and other.check != check:
                return (
                    f'key "{key_name}" here is not that of node {node.node_id} (check {check}, '
                    f"there {other.check}): set the right encryption.key, or give this one a name "
                    "of its own by encryption.key_name"
                )
        return ""

    def check(self, command: ClusterCommand) -> None:
        """Raise what speaks against proposing a command, by the rules of this version."""
        match command:
            case RequireEncryption(is_required=True):
                for node in self.members():
                    if node.encryption is None or node.encryption.mode != "on":
                        raise NodeRefused(clear_text(node.node_id))
            case FinalizeLevel(level=level):
                check_finalize(self._known_levels(), self.level, level)
            case InviteNode():
                if len(command.secret_hash) != 32:
                    raise InvalidInvitation("an invitation needs the hash of its secret")
                is_another = command.expires_ms > command.made_ms
                if is_another and len(self._open(command.made_ms)) >= INVITATIONS_MAX:
                    raise InvalidInvitation(f"{INVITATIONS_MAX} invitations are open already")
            case RegisterNode():
                _check_registration(command)
                self._check_registered(command)
            case ChangeNode():
                self._check_change(command)

    def apply(self, command: NodeCommand, offset: int) -> Node | Invitation:
        self.version += 1
        match command:
            case InviteNode():
                invitation = Invitation(
                    secret_hash=command.secret_hash, expires_ms=command.expires_ms
                )
                self._invitations = self._open(command.made_ms)
                self._invitations.pop(command.secret_hash, None)
                if invitation.expires_ms > command.made_ms:
                    self._invitations[command.secret_hash] = invitation
                return invitation
            case RegisterNode():
                return self._register(command, offset)
            case ChangeNode():
                node = self._check_change(command)
                successor = NodeId(command.successor) if command.successor else None
                changed = msgspec.structs.replace(
                    node, state=NodeState(command.state), successor=successor
                )
                self._nodes[node.node_id] = changed
                return changed

    def check_takes_replicas(self, node_id: NodeId) -> None:
        """Raise `InvalidPlacement` for a node that is given no new replicas."""
        node = self._nodes.get(node_id)
        if node is None or node.state is NodeState.REMOVED:
            raise InvalidPlacement(f"node {node_id} is no node of this cluster")
        if not takes_replicas(node):
            raise InvalidPlacement(f"node {node_id} takes no replicas: it is {node.state.value}")

    # -- parts -----------------------------------------------------------------------------

    def _open(self, now_ms: int) -> dict[bytes, Invitation]:
        invitations: Mapping[bytes, Invitation] = self._invitations
        return {key: each for key, each in invitations.items() if each.expires_ms > now_ms}

    def require_encryption(self, command: RequireEncryption) -> bool:
        """Apply the command; return whether encryption is required from now on."""
        self.version += 1
        self.is_encryption_required = command.is_required
        return self.is_encryption_required

    def finalize(self, command: FinalizeLevel, offset: int) -> int:
        """Apply the command; return the level from now on."""
        check_finalize(self._known_levels(), self.level, command.level)
        self.version += 1
        self.level, self.level_offset = command.level, offset
        return self.level

    def _known_levels(self) -> dict[NodeId, LevelRange]:
        return {node.node_id: node.levels for node in self.members()}

    def _check_registered(self, command: RegisterNode) -> None:
        known = self._nodes.get(NodeId(command.node_id))
        refusal = self.encryption_refusal(command.node_id, command.encryption)
        if refusal:
            raise NodeRefused(refusal)
        if self.level and self.level not in command.levels:
            raise NodeRefused(unknown_level(self.level, command.levels))
        if known is not None:
            if known.state is NodeState.REMOVED:
                raise NodeRefused(f"node {command.node_id} was removed from this cluster for ever")
            if known.directory_id != command.directory_id:
                raise NodeRefused(
                    f"node {command.node_id} has another data directory: join with an empty one "
                    "and get an id of its own"
                )
            return
        if any(each.directory_id == command.directory_id for each in self._nodes.values()):
            raise NodeRefused(f"the data directory {command.directory_id} has another node id")
        if not self._nodes:
            return  # The first node invites itself.
        invitation = self._invitations.get(command.invitation)
        if invitation is None:
            raise InvalidInvitation(
                "this token was used, or was never given: make one with: millstream cluster invite"
            )
        if command.joined_ms >= invitation.expires_ms:
            raise InvalidInvitation(
                "this token has expired: make another one with: millstream cluster invite"
            )

    def _register(self, command: RegisterNode, offset: int) -> Node:
        self._check_registered(command)
        known = self._nodes.get(NodeId(command.node_id))
        self._invitations.pop(command.invitation, None)
        if not self._nodes:  # A cluster begins at the highest level of its first node.
            self.level, self.level_offset = command.levels.highest, offset
        node = Node(
            node_id=NodeId(command.node_id),
            directory_id=command.directory_id,
            peer=command.peer,
            listeners=command.listeners,
            rack=command.rack,
            machine=command.machine,
            roles=command.roles,
            version=command.version,
            state=NodeState.ACTIVE if known is None else known.state,
            successor=None if known is None else known.successor,
            registered_offset=offset if known is None else known.registered_offset,
            encryption=command.encryption,
            levels=command.levels,
        )
        self._nodes[node.node_id] = node
        return node

    def _check_change(self, command: ChangeNode) -> Node:
        node = self.find(command.node_id)
        try:
            after = NodeState(command.state)
        except ValueError:
            raise NodeRefused(f"{command.state[:100]!r} is no state of a node") from None
        if node.state is not after and (node.state, after) not in TRANSITIONS:
            raise NodeRefused(
                f"node {node.node_id} is {node.state.value} and cannot become {after.value}"
            )
        return node


def clear_text(node_id: int) -> str:
    """Why encryption cannot be required yet."""
    return (
        f'node {node_id} writes records in clear: set encryption.mode = "on" there, restart it, '
        "and ask again"
    )


def takes_replicas(node: Node) -> bool:
    """A node that has joined and was never started has no listeners yet."""
    return node.state is NodeState.ACTIVE and BROKER in node.roles and bool(node.listeners)


def _check_registration(command: RegisterNode) -> None:
    if not 0 < command.node_id < 1 << NODE_BITS:
        raise NodeRefused(f"node_id = {command.node_id} is not in 1 to {(1 << NODE_BITS) - 1}")
    addresses = [command.peer, *command.listeners.values()]
    if len(addresses) > LISTENERS_MAX:
        raise NodeRefused(f"a node has at most {LISTENERS_MAX} listeners, not {len(addresses)}")
    for host, port in addresses:
        if not 0 < len(host) <= ADDRESS_LENGTH_MAX or not 0 < port <= 65535:
            raise NodeRefused(f"{host[:ADDRESS_LENGTH_MAX]!r}:{port} is no address of a node")
    strangers = set(command.roles) - set(ROLES)
    if strangers or not command.roles:
        raise NodeRefused(f"roles are {' and '.join(ROLES)}, not {sorted(command.roles)}")
