"""The ports to the outside world: time, randomness, files, threads, other nodes.

Interfaces only. `storage.files.disk` and `server.outside` implement them for real; the tests
implement them with faults, so that a whole cluster runs inside one test under one seed.

Invariant: no other module touches a clock, a random source, a file or a socket. A test checks it.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol, TypeVar

from millstream.model import CLUSTER_LEVELS, Buffer, LevelRange, NodeId
from millstream.model import PeerIdentity as PeerIdentity
from millstream.security.secrets import Secret

T = TypeVar("T")


class Clock(Protocol):
    """Wall time for timestamps and retention; it may step. Timers use the event loop's time."""

    def now_ms(self) -> int: ...


class File(Protocol):
    """An open file. Positions are absolute: the owner knows where its data ends.

    Methods raise `OSError`, like the files they stand for. `sync` blocks; only a worker thread
    calls it. The file closes when the last reference to it goes, or by `close`.
    """

    def size(self) -> int: ...

    def read(self, at: int, size: int) -> bytes:
        """Return `size` bytes from `at`, fewer only at the end of the file."""

    def write(self, at: int, chunks: Sequence[Buffer]) -> None:
        """Write all chunks in order, or raise: the bytes behind `at` are then unknown."""

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Make what was written survive a power cut.

        An error is final: it never has an errno of `errors.OUT_OF_RESOURCES`.
        """

    def forget_cached(self) -> None:
        """Drop clean cached pages, so that the next read sees what the disk really holds."""

    def fileno(self) -> int:
        """The descriptor, to send from; -1 where there is none."""

    def close(self) -> None: ...


class Files(Protocol):
    """A tree of files under one root. Paths are relative to it, with `/` between the parts.

    Creating, renaming and removing survive a power cut only after `sync_directory` of the parent.
    """

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing; `FileNotFoundError` unless `create`."""

    def exists(self, path: str) -> bool: ...

    def list(self, directory: str) -> list[str]:
        """Return the names in `directory`, sorted; empty if there is no such directory."""

    def make_directory(self, path: str) -> None:
        """Create `path` and its parents; fine if it is there."""

    def remove(self, path: str) -> None:
        """Remove a file; fine if it is gone. Open files stay readable."""

    def remove_directory(self, path: str) -> None:
        """Remove a directory with all it holds; fine if it is gone."""

    def rename(self, source: str, target: str) -> None:
        """Put `source` in the place of `target`, atomically."""

    def link(self, source: str, target: str) -> None:
        """Give a file a second name; `FileExistsError` if `target` is there."""

    def sync_directory(self, path: str) -> None:
        """Make names survive a power cut.

        An errno of `errors.OUT_OF_RESOURCES` means that no sync was tried; others are final.
        """

    def lock(self, path: str) -> File:
        """Take an exclusive lock, held until closed; `BlockingIOError` if another holds it."""


class Threads(Protocol):
    """Threads for blocking work, so that the event loop never waits for a disk."""

    async def run(self, work: Callable[[], T]) -> T:
        """Do `work` on a thread; raises what it raises, or `OutOfResources` without a thread."""


class Secrets(Protocol):
    """The values of references to secrets. Blocks: a program may have to be run."""

    def read(self, secret: Secret) -> bytes:
        """The value without the newline at its end; `StartupError` says what is wrong, and names
        the reference only."""

    def call(self, secret: Secret, verb: str, data: bytes) -> bytes:
        """Run the program of a `kms:` reference with `verb`, `data` on its standard input."""

    def read_key_set(self, address: str) -> bytes:
        """The keys of an issuer of tokens, from `file:PATH` or an `https:` address."""


class SchemaCompiler(Protocol):
    """`protoc`, which runs in a process of its own. Blocks."""

    def is_installed(self) -> bool: ...

    def compile(self, files: Mapping[str, str], name: str) -> bytes:
        """The serialized `FileDescriptorSet` of the file `name`, behind all that it imports.

        `files` are texts by path. `ValueError` says what is wrong, with line and column.
        """


class PeerMessage(Protocol):
    """A message of a peer link, of `raft.link_messages`."""


class LinkReceiver(Protocol):
    """Takes what peer links bring, on the event loop. The hub is one."""

    def link_up(self, node: NodeId) -> None:
        """A link to this node begins; a link that was there is lost first."""

    def link_lost(self, node: NodeId) -> None:
        """The link is over. Messages sent over it and not yet received never will be."""

    def receive(self, node: NodeId, message: PeerMessage) -> None: ...


class Links(Protocol):
    """Peer links to other nodes. A link keeps order and loses nothing while it is up: what cannot
    be carried ends it.
    """

    def open(self, receiver: LinkReceiver) -> None:
        """Give what comes to `receiver`. Without `start` there are no links."""

    async def start(self, identity: PeerIdentity, listen: str) -> str:
        """Accept peers at the address `listen`, HOST:PORT, and return the address that was bound;
        `StartupError` if it cannot be."""

    def set_peers(self, addresses: Mapping[NodeId, str]) -> None:
        """Have links to exactly these nodes, at these addresses; others are ended."""

    def watch(self, watcher: Callable[[NodeId, bool], None]) -> None:
        """Call `watcher` with a node and whether its link is up, after the receiver."""

    def is_up(self, node: NodeId) -> bool: ...

    def send(self, node: NodeId, message: PeerMessage) -> None:
        """Never blocks, never raises. Without a link it is lost; a full queue ends the link."""

    def queued_bytes(self, node: NodeId) -> int:
        """What waits to be sent to the node. Records for a peer that is behind wait for this."""

    def end(self, node: NodeId, reason: str) -> None:
        """End the link, if there is one: `link_lost` is called before this returns."""

    def close(self) -> None:
        """End all links and accept none, without a word to the receiver."""


# Answers a call of a peer: the node that asks, and its payload.
CallHandler = Callable[[NodeId, bytes], Awaitable[bytes]]


class Calls(Protocol):
    """Requests from node to node, over the peer links."""

    async def ask(self, node: NodeId, method: str, payload: bytes, *, timeout_s: float) -> bytes:
        """Return the peer's answer.

        `PeerUnreachable` if there is no link, so that it was not asked, or if the link was lost
        meanwhile (`was_sent`); `TimedOut` without an answer in time: what was asked may happen.
        `CallRefused` is the peer's own error. `Overloaded` if too many wait for this peer.
        """

    def tell(self, node: NodeId, method: str, payload: bytes) -> None:
        """Send without an answer, in order with other calls and tellings; lost without a link."""

    def serve(self, method: str, handler: CallHandler) -> None:
        """Have `handler` answer this method. A `RequestError` becomes the caller's `CallRefused`.

        Calls begin in the order in which they came over the link, each in a task of its own.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """All of the outside world that a node sees."""

    clock: Clock
    entropy: Random
    files: Files
    threads: Threads  # For reads, compaction and requests of clients.
    sync_threads: Threads  # For syncs only: no other work may delay a commit.
    links: Links
    calls: Calls
    secrets: Secrets
    schema_compiler: SchemaCompiler
    levels: LevelRange = CLUSTER_LEVELS  # What this version knows; another one in tests.
