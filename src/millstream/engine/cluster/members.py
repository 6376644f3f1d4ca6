"""The nodes of this cluster as this node sees them: registers itself, invites and admits others.

Owns the membership in the data directory, the address book of the peer links, and the one-time
secrets of invitations. A node alone has no membership; its first invitation makes one.
"""

import asyncio
import logging
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple
from uuid import UUID

import msgspec

from millstream import __version__
from millstream.config import Config
from millstream.control.commands import ChangeNode, InviteNode, RegisterNode
from millstream.control.nodes import ROLES, Address, Invitation, Node, NodeState
from millstream.control.tokens import (
    KEY_BYTES,
    SECRET_BYTES,
    Admission,
    JoinRequest,
    Token,
    encode_token,
    hash_of,
    is_proved,
    name_of,
    seal_key,
)
from millstream.engine.cluster.peer_calls import Nothing, PeerCalls
from millstream.engine.cluster.upgrading import Features, features_of
from millstream.engine.controller import Controller
from millstream.engine.encryption import encryption_of
from millstream.errors import RequestError, StartupError
from millstream.errors.cluster import InvalidInvitation, NodeRefused, UnknownInvitation
from millstream.model import SYSTEM_SESSION, NodeId, Session, node_of
from millstream.ports import PeerIdentity, Ports
from millstream.replication.hub import Hub
from millstream.storage.files.membership import (
    Membership,
    read_cluster_key,
    write_cluster_key,
    write_membership,
)

_log = logging.getLogger(__name__)

FIGURES_S_MAX = 1.0
INVITATION_MS = 60 * 60 * 1000
JOIN_ATTEMPTS_MAX = 10  # Two nodes that join at once may be given the same id: one tries again.
WILDCARDS = ("0.0.0.0", "::", "")


class Endpoint(NamedTuple):
    """Where clients of one listener reach a node."""

    node_id: NodeId
    host: str
    port: int
    rack: str


class NodeFigures(msgspec.Struct, frozen=True):
    """What a node says of itself."""

    leader_count: int
    replica_count: int
    behind_count: int


class NodeView(NamedTuple):
    """A node as an operator sees it."""

    node_id: NodeId
    state: str
    is_up: bool
    is_controller: bool
    is_voter: bool
    address: str
    peer_address: str
    rack: str
    version: str
    leader_count: int = -1  # -1: the node did not say.
    replica_count: int = -1
    behind_count: int = -1


class Members:
    def __init__(
        self,
        controller: Controller,
        ports: Ports,
        config: Config,
        hub: Hub,
        peers: PeerCalls,
        membership: Membership | None,
        cluster_id: str,
    ) -> None:
        self.membership = membership
        self.is_in_cluster = asyncio.Event()
        if membership is not None:
            self.is_in_cluster.set()
        # Where clients are sent, by listener; set when the ports are bound.
        self.listeners: Mapping[str, Address] = {}
        self._controller = controller
        self._ports = ports
        self._config = config
        self.me = NodeId(config.node_id)
        self._cluster_id = cluster_id
        self._key = b""
        self._growing = asyncio.Lock()
        self._book_version = -1
        self._hub = hub
        self._peers = peers
        peers.serve("cluster.figures", Nothing, self._figures)

    @property
    def nodes(self) -> list[Node]:
        """The registered nodes; none for a node alone."""
        return self._controller.state.nodes.members()

    def find(self, node_id: NodeId) -> Node | None:
        """A registered node; None for a node alone."""
        return self._controller.state.nodes.get(node_id)

    @property
    def features(self) -> Features:
        return features_of(self._controller.state.nodes, self.me, self._ports.levels)

    # -- for clients -----------------------------------------------------------------------

    def endpoints(self, listener: str, me: Address) -> list[Endpoint]:
        """The nodes for clients of a listener; this one by the address that they dialled."""
        others = [
            Endpoint(node.node_id, *address, node.rack)
            for node in self.nodes
            if node.node_id != self.me and (address := _address(node, listener)) is not None
        ]
        return sorted([Endpoint(self.me, *me, self._config.rack), *others])

    def endpoint(self, node_id: int, listener: str, me: Address) -> Endpoint | None:
        """Where clients of a listener reach one node; None if that is not known."""
        endpoints = self.endpoints(listener, me)
        return next((each for each in endpoints if each.node_id == node_id), None)

    @property
    def active_controller(self) -> NodeId | None:
        """The node that leads the control log, as far as this one knows."""
        return self._controller.leader

    def is_up(self, node_id: NodeId) -> bool:
        """Whether a node can be reached from here."""
        return node_id == self.me or self._ports.links.is_up(node_id)

    def is_available(self, node_id: NodeId) -> bool:
        """Whether a node can be reached from here and is not drained: logs can be led there."""
        return self.is_up(node_id) and self.is_active(node_id)

    def is_active(self, node_id: NodeId) -> bool:
        """Whether no operator drains or removes a node."""
        node = self.find(node_id)
        return node is None or node.state is NodeState.ACTIVE

    @property
    def is_cut_off(self) -> bool:
        """Whether this node reaches no majority of the voters on the control log.

        The others may have elected leaders meanwhile that it does not know.
        """
        if self.membership is None:
            return False
        voters = {node_of(voter) for voter in self._controller.voters}
        return 2 * sum(map(self.is_up, voters)) <= len(voters)

    async def describe(self, listener: str, me: Address) -> list[NodeView]:
        """All nodes of the cluster, with what each says of itself."""
        views = self.known(listener, me)
        figures = await asyncio.gather(*(self._ask_figures(view.node_id) for view in views))
        return [
            view if said is None else view._replace(**msgspec.structs.asdict(said))
            for view, said in zip(views, figures, strict=True)
        ]

    def known(self, listener: str, me: Address) -> list[NodeView]:
        """All nodes of the cluster, as far as this one knows them without asking."""
        known = {each.node_id: each for each in self.endpoints(listener, me)}
        voters = {node_of(voter) for voter in self._controller.voters}
        views = []
        for node_id in sorted(known.keys() | {node.node_id for node in self.nodes}):
            node, endpoint = self._controller.state.nodes.get(node_id), known.get(node_id)
            view = NodeView(
                node_id,
                "active" if node is None else node.state.value,
                self.is_up(node_id),
                node_id == self.active_controller,
                node_id in voters,
                "" if endpoint is None else join_address(endpoint.host, endpoint.port),
                "" if node is None else join_address(*node.peer),
                self._config.rack if node is None else node.rack,
                __version__ if node is None else node.version,
            )
            views.append(view)
        return views

    async def _ask_figures(self, node_id: NodeId) -> NodeFigures | None:
        if node_id == self.me:
            return await self._figures(self.me, Nothing())
        try:
            return await self._peers.ask(
                node_id, "cluster.figures", Nothing(), NodeFigures, timeout_s=FIGURES_S_MAX
            )
        except RequestError:
            return None

    async def _figures(self, _node: NodeId, _question: Nothing) -> NodeFigures:
        replicas = self._hub.replicas.values()
        led = [each for each in replicas if each.is_leader]
        behind = sum(each.in_step_count < len(each.core.voters) for each in led)
        return NodeFigures(len(led) + len(self._hub.resting), self._hub.log_count, behind)

    # -- joining ---------------------------------------------------------------------------

    async def open_links(self) -> None:
        """Connect to the other nodes, if there is a cluster; raises `StartupError`."""
        if self.membership is None:
            return
        self._key = read_cluster_key(self._ports.files, self._config.data_dir)
        await self._note_start(self.membership)
        await self._ports.links.start(self._identity(self.membership), self.membership.listen)
        peers = self.membership.peers.items()
        self._ports.links.set_peers({NodeId(int(node)): address for node, address in peers})

    async def _note_start(self, membership: Membership) -> None:
        """Note that the directory is in use, before this node can promise anything."""
        if membership.has_started:
            return
        self.membership = msgspec.structs.replace(membership, has_started=True)
        work = partial(write_membership, self._ports.files, self.membership)
        try:
            await self._ports.threads.run(work)
        except OSError as problem:
            raise StartupError(f"{self._config.data_dir}: {problem.strerror}") from problem

    async def invite(self, session: Session, addresses: tuple[str, ...]) -> str:
        """Make a token for one node; `addresses` is where it will ask, HOST:PORT of clients."""
        await self._grow_from_one(session)
        secret, now_ms = self._ports.entropy.randbytes(SECRET_BYTES), self._ports.clock.now_ms()
        await self._controller.alter_nodes(
            session,
            InviteNode(
                secret_hash=hash_of(secret), made_ms=now_ms, expires_ms=now_ms + INVITATION_MS
            ),
        )
        return encode_token(Token(cluster_id=self._cluster_id, addresses=addresses, secret=secret))

    def invitations(self) -> list[Invitation]:
        """Those with which a node can join now, the first to expire first."""
        now_ms = self._ports.clock.now_ms()
        known = self._controller.state.nodes.invitations()
        usable = [each for each in known if each.expires_ms > now_ms]
        return sorted(usable, key=lambda each: (each.expires_ms, each.secret_hash))

    async def revoke(self, session: Session, name: str) -> None:
        """Take an invitation back; raises `UnknownInvitation`."""
        now_ms = self._ports.clock.now_ms()
        for invitation in self.invitations():
            if name_of(invitation.secret_hash).hex() == name:
                command = InviteNode(
                    secret_hash=invitation.secret_hash, made_ms=now_ms, expires_ms=now_ms
                )
                await self._controller.alter_nodes(session, command)
                return
        raise UnknownInvitation(name)

    def kafka_addresses(self, dialled_host: str) -> tuple[str, ...]:
        """Where newcomers ask to be let in, HOST:PORT, this node first.

        A listener that is bound to every address is reached by `dialled_host`.
        """
        names = [name for name, each in self._config.listener.items() if "kafka" in each.protocols]
        name = next((name for name in [*names, "kafka"] if name in self.listeners), None)
        if name is None:
            raise NodeRefused("this node has no Kafka listener, at which a newcomer would ask")
        host, port = self.listeners[name]
        endpoints = self.endpoints(name, (dialled_host if host in WILDCARDS else host, port))
        endpoints.sort(key=lambda each: each.node_id != self.me)
        return tuple(join_address(each.host, each.port) for each in endpoints)

    async def admit(
        self, session: Session, name: bytes, request: JoinRequest, proof: bytes
    ) -> Admission:
        """Register a newcomer that proves its secret; it needs no other right."""
        secret_hash = self._invitation(name, request, proof)
        host, port = split_address(request.peer)
        node: Node | None = None
        for _ in range(JOIN_ATTEMPTS_MAX):
            command = RegisterNode(
                node_id=self._controller.state.nodes.next_id(),
                directory_id=UUID(request.directory_id),
                peer=(host, port),
                listeners={},
                roles=ROLES,
                version="",
                joined_ms=self._ports.clock.now_ms(),
                invitation=secret_hash,
                encryption=request.encryption,
                levels=request.levels,
            )
            try:
                outcome = await self._controller.alter_nodes(session, command)
            except NodeRefused:
                if self._controller.state.nodes.get(command.node_id) is None:
                    raise
                continue
            assert isinstance(outcome, Node)
            node = outcome
            break
        if node is None:
            raise NodeRefused("too many nodes join at once: try again with a new token")
        self._follow_book()
        return Admission(
            node_id=node.node_id,
            cluster_id=self._cluster_id,
            generation=0 if self.membership is None else self.membership.generation,
            founders=tuple(sorted(node_of(voter) for voter in self._controller.voters)),
            peers={
                str(each.node_id): join_address(*each.peer)
                for each in self.nodes
                if each.node_id != node.node_id
            },
            sealed_key=seal_key(secret_hash, request.nonce, self._key),
        )

    async def change(self, session: Session, node_id: int, state: NodeState) -> Node:
        """Drain a node, take it back, or remove it for ever."""
        command = ChangeNode(node_id=node_id, state=state.value)
        node = await self._controller.alter_nodes(session, command)
        assert isinstance(node, Node)
        return node

    # -- following -------------------------------------------------------------------------

    async def follow(self) -> None:
        """Register what has changed of this node, and keep the address book."""
        if self.membership is None:
            return
        self._follow_book()
        registration = self._registration(self.membership)
        known = self._controller.state.nodes.get(self.me)
        if known is not None and _differs(known, registration):
            try:
                await self._controller.alter_nodes(SYSTEM_SESSION, registration)
                _log.info("registered node=%d peer=%s", self.me, self.membership.address)
            except RequestError as problem:
                _log.warning("not registered yet problem=%s", problem)

    def _follow_book(self) -> None:
        """Have links to the registered nodes, and remember where they are for the next start."""
        nodes = self._controller.state.nodes
        if self.membership is None or nodes.version == self._book_version:
            return
        self._book_version = nodes.version
        book = {
            str(node.node_id): join_address(*node.peer)
            for node in nodes.members()
            if node.node_id != self.me
        }
        if not nodes.members():
            return
        self._ports.links.set_peers({NodeId(int(node)): at for node, at in book.items()})
        current = msgspec.structs.replace(self.membership, peers=book, level=nodes.level)
        if current != self.membership:
            self.membership = current
            try:
                write_membership(self._ports.files, self.membership)
            except OSError as problem:  # The next start asks those that it knows.
                _log.warning("could not note the addresses of nodes problem=%s", problem)

    # -- parts -----------------------------------------------------------------------------

    def _identity(self, membership: Membership) -> PeerIdentity:
        return PeerIdentity(
            node_id=self.me,
            cluster_id=self._cluster_id,
            directory_id=membership.directory_id,
            generation=membership.generation,
            key=self._key,
        )

    async def _grow_from_one(self, session: Session) -> None:
        """Make a cluster of a node alone: it gets a key, a port for other nodes, and is registered.

        Moves nothing: its replicas stay its replicas.
        """
        async with self._growing:
            if self.membership is None:
                self.membership = await self._begin()
                self.is_in_cluster.set()
            if self._controller.state.nodes.get(self.me) is None:
                registration = self._registration(self.membership)
                await self._controller.alter_nodes(session, registration)

    async def _begin(self) -> Membership:
        config, entropy, files = self._config, self._ports.entropy, self._ports.files
        self._key = entropy.randbytes(KEY_BYTES)
        membership = Membership(
            node_id=self.me,
            cluster_id=self._cluster_id,
            directory_id=UUID(int=entropy.getrandbits(128), version=4),
            generation=0,
            listen=peer_listen(config),
            address=config.peer_address,
            has_started=True,
        )
        try:
            bound = await self._ports.links.start(self._identity(membership), membership.listen)
        except StartupError as problem:
            raise NodeRefused(str(problem)) from problem
        address = config.peer_address or reachable(bound, "peer_address")
        membership = msgspec.structs.replace(membership, listen=bound, address=address)
        await self._ports.threads.run(partial(write_cluster_key, files, self._key))
        await self._ports.threads.run(partial(write_membership, files, membership))
        return membership

    def _registration(self, membership: Membership) -> RegisterNode:
        listeners = {
            name: split_address(reachable(join_address(*address), "advertised_host"))
            for name, address in self.listeners.items()
        }
        return RegisterNode(
            node_id=self.me,
            directory_id=membership.directory_id,
            peer=split_address(membership.address),
            listeners=listeners,
            roles=ROLES,
            version=__version__,
            joined_ms=self._ports.clock.now_ms(),
            rack=self._config.rack,
            machine=self._config.machine,
            encryption=encryption_of(self._hub.keyring),
            levels=self._ports.levels,
        )

    def _invitation(self, name: bytes, request: JoinRequest, proof: bytes) -> bytes:
        if request.cluster_id != self._cluster_id:
            raise InvalidInvitation(
                f"the token is of the cluster {request.cluster_id}, and this is {self._cluster_id}"
            )
        for invitation in self._controller.state.nodes.invitations():
            if name_of(invitation.secret_hash) == name:
                if is_proved(invitation.secret_hash, request, proof):
                    return invitation.secret_hash
                break
        raise InvalidInvitation(
            "this token was used, or was never given: make one with: millstream cluster invite"
        )


def peer_listen(config: Config) -> str:
    """Where a node accepts other nodes, HOST:PORT."""
    return join_address(config.peer_host or config.host, config.peer_port if config.port else 0)


def reachable(address: str, setting: str) -> str:
    """`address`, if other machines can connect to it; else say which setting names one."""
    host, _ = split_address(address)
    if host in WILDCARDS:
        raise NodeRefused(f"no node can connect to {address}: set {setting} to a name of this one")
    return address


def split_address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    try:
        return host.removeprefix("[").removesuffix("]"), int(port)
    except ValueError:
        raise NodeRefused(f"{text[:300]!r} is not HOST:PORT") from None


def join_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _address(node: Node, listener: str) -> Address | None:
    """Where a node serves clients of a listener; a node may have fewer listeners than this one."""
    return node.listeners.get(listener)


def _differs(node: Node, command: RegisterNode) -> bool:
    names = ("peer", "listeners", "roles", "version", "rack", "machine", "encryption", "levels")
    return any(getattr(node, name) != getattr(command, name) for name in names)
