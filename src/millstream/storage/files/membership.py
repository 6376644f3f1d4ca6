"""The membership of a node in its cluster, kept in its data directory.

Owns `cluster.json` and `cluster.key`. Both are there once a node has invited another one, or has
joined; a node alone has neither.
"""

from uuid import UUID

import msgspec
from fastcrc import crc32

from millstream.errors import StartupError
from millstream.ports import Files
from millstream.storage.files.replacing import replace_file

MEMBERSHIP = "cluster.json"
CLUSTER_KEY = "cluster.key"
KEY_BYTES = 32
_BYTES_MAX = 2**20


class Membership(msgspec.Struct, frozen=True, kw_only=True):
    node_id: int
    cluster_id: str
    directory_id: UUID
    generation: int
    listen: str  # HOST:PORT, where this node accepts other nodes.
    address: str  # The same as other nodes reach it.
    # The nodes that voted on the control log when this one joined; the first node has none.
    founders: tuple[int, ...] = ()
    peers: dict[str, str] = {}  # The addresses of other nodes by id, as last known.
    level: int = 0  # Of `cluster.version`, as last known. 0: not known.
    has_started: bool = False  # It may have voted since: what it holds must not get lost.


def read_membership(files: Files, path: str) -> Membership | None:
    """Read the membership; None for a node alone. `path` is how messages call the root."""
    if not files.exists(MEMBERSHIP):
        return None
    file = files.open(MEMBERSHIP)
    try:
        crc, _, body = file.read(0, _BYTES_MAX).partition(b" ")
    finally:
        file.close()
    try:
        if int(crc, 16) != crc32.iscsi(body):
            raise ValueError("its checksum is wrong")
        return msgspec.json.decode(body, type=Membership)
    except (ValueError, msgspec.MsgspecError):
        raise StartupError(
            f"{path}/{MEMBERSHIP} is damaged: restore it from a backup, or join again with an "
            "empty data_dir"
        ) from None


def write_membership(files: Files, membership: Membership) -> None:
    """Replace the membership, durably; blocks."""
    body = msgspec.json.format(msgspec.json.encode(membership), indent=2)
    replace_file(files, MEMBERSHIP, [f"{crc32.iscsi(body):08x} ".encode() + body])


def read_cluster_key(files: Files, path: str) -> bytes:
    """The key that all nodes of the cluster share; `StartupError` if it is not there."""
    if files.exists(CLUSTER_KEY):
        file = files.open(CLUSTER_KEY)
        try:
            key = file.read(0, KEY_BYTES + 1)
        finally:
            file.close()
        if len(key) == KEY_BYTES:
            return key
    raise StartupError(
        f"{path}/{CLUSTER_KEY} is missing or damaged: copy it from another node of the cluster"
    )


def write_cluster_key(files: Files, key: bytes) -> None:
    """Write the key, durably; blocks. The process keeps its files to its user."""
    assert len(key) == KEY_BYTES
    replace_file(files, CLUSTER_KEY, [key])
