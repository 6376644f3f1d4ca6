"""The data directory of a node: whose it is, in which format, and whether it was left in order.

Owns `millstream.json`, the lock, the `clean` marker and `ends`; other modules own the other files.

Invariant: every problem is found before anything is changed, and reported in one sentence that
names the path and the way out.
"""

import errno
import json
import logging
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from random import Random
from typing import NamedTuple

import msgspec
from fastcrc import crc32

from millstream.errors import StartupError
from millstream.model import CleanEnd, NodeId
from millstream.ports import File, Files
from millstream.storage.files.membership import CLUSTER_KEY, MEMBERSHIP, Membership
from millstream.storage.files.replacing import TEMPORARY, replace_file

FORMAT = 1
META = "millstream.json"
JOURNAL = "journal"
LOGS = "logs"
KEYRING = "keyring"
CLEAN = "clean"
ENCRYPTED = "encrypted"  # Says that there was a keyring, should it be lost.

_LOCK = "lock"
_ENDS = "ends"
_META_BYTES_MAX = 4096

ROOT_KEY = "encryption.key"  # Made by `millstream serve --secure`.

# Left by an interrupted first start, or by a fresh file system.
# Certificates and the key are made before the first start: `millstream serve --secure`.
# A membership is written by `millstream cluster join`.
_NOT_YET_OURS = {
    _LOCK,
    META + TEMPORARY,
    "lost+found",
    "tls",
    ROOT_KEY,
    MEMBERSHIP,
    CLUSTER_KEY,
}

_REASONS = {
    errno.EACCES: "is closed to this user: change its permissions or choose another data_dir",
    errno.EPERM: "is closed to this user: change its permissions or choose another data_dir",
    errno.EROFS: "lies on a read-only file system: remount it or choose another data_dir",
    errno.ENOSPC: "lies on a full disk: free some space or choose another data_dir",
    errno.EDQUOT: "lies on a full disk: free some space or choose another data_dir",
}

_log = logging.getLogger(__name__)


class DataDirectory:
    """A directory that is ours and locked, until `close`. Made by `open_directory`."""

    def __init__(
        self,
        files: Files,
        path: str,
        *,
        meta: "_Meta",
        lock: File,
        is_new: bool,
        was_clean: bool,
        clean_ends: dict[str, CleanEnd],
    ) -> None:
        self.files = files
        self.path = path
        self.node_id = meta.node_id
        self.cluster_id = meta.cluster_id
        self.is_new = is_new
        self.was_clean = was_clean
        # Where logs ended at the last clean stop, by the names of their directories.
        self.clean_ends = clean_ends
        self._lock = lock

    def mark_clean(self, ends: Mapping[str, CleanEnd] | None = None) -> None:
        """Promise that all files were closed in order; the last thing that is written.

        `ends` are the ends of logs; without them those of the last clean stop, as nothing changed.
        """
        try:
            if ends is not None:
                body = msgspec.json.encode(ends)
                replace_file(self.files, _ENDS, [f"{crc32.iscsi(body):08x} ".encode() + body])
            self.files.open(CLEAN, create=True).close()
            self.files.sync_directory("")
        except OSError as problem:
            # Without the marker the next start looks at more than it needs to, and that is all.
            _log.warning("left no clean marker path=%s problem=%s", self.path, problem)

    def close(self) -> None:
        """Let another process have the directory."""
        self._lock.close()


def open_directory(
    files: Files, path: str, *, node_id: NodeId, entropy: Random, cluster_id: str | None = None
) -> DataDirectory:
    """Lock the directory and check that it belongs to `node_id`; make it ours if it is empty.

    `path` is how messages call the root of `files`; `cluster_id` is that of the cluster that the
    node has joined. All that can be wrong is a `StartupError`.
    """
    with _explained(path):
        _check(files, path, node_id)
        files.make_directory("")
        lock = files.lock(_LOCK)
        try:
            # Again, behind the lock: another process may have been here first.
            existing = _check(files, path, node_id)
            meta = existing or _Meta(
                node_id, write_meta(files, node_id, entropy, cluster_id=cluster_id)
            )
            if cluster_id not in (None, meta.cluster_id):
                raise StartupError(
                    f"{path} belongs to the cluster {meta.cluster_id} and {MEMBERSHIP} to "
                    f"{cluster_id}: restore {MEMBERSHIP}, or join with an empty data_dir"
                )
            was_clean, clean_ends = files.exists(CLEAN), _read_ends(files, path)
            files.remove(CLEAN)
            # From here on things change, so the marker must be gone before anything is written.
            # Also without one: a process that was killed leaves names in the cache only.
            files.sync_directory("")
        except BaseException:
            lock.close()
            raise
        return DataDirectory(
            files,
            path,
            meta=meta,
            lock=lock,
            is_new=existing is None,
            was_clean=was_clean,
            clean_ends=clean_ends,
        )


def check_whole(files: Files, path: str, membership: Membership) -> None:
    """Raise `StartupError` for the directory of a member that has lost its records: it would vote
    as if it had never promised anything."""
    if membership.has_started and not {META, JOURNAL}.issubset(files.list("")):
        raise StartupError(
            f"{path} was that of node {membership.node_id} and has lost its records: empty it, "
            "join with a new token, and let the new node take the place of the old one with "
            f"`millstream cluster replace {membership.node_id} NEW`"
        )


@contextmanager
def locked(files: Files, path: str) -> Iterator[None]:
    """Hold the directory of a node that does not run; `StartupError` if it does."""
    with _explained(path):
        lock = files.lock(_LOCK)
    try:
        yield
    finally:
        lock.close()


def _read_ends(files: Files, path: str) -> dict[str, CleanEnd]:
    """The ends of the logs at the last clean stop; none if they are not known."""
    if not files.exists(_ENDS):
        return {}
    file = files.open(_ENDS)
    crc, _, body = file.read(0, file.size()).partition(b" ")
    file.close()
    try:
        if int(crc, 16) != crc32.iscsi(body):
            raise ValueError("its checksum is wrong")
        return msgspec.json.decode(body, type=dict[str, CleanEnd])
    except (ValueError, msgspec.DecodeError) as problem:
        _log.warning("the ends of logs are damaged path=%s/%s problem=%s", path, _ENDS, problem)
        return {}


class _Meta(NamedTuple):
    node_id: NodeId
    cluster_id: str


def _check(files: Files, path: str, node_id: NodeId) -> _Meta | None:
    """Return the directory's metadata, None if it is empty. Changes nothing."""
    names = set(files.list(""))
    if META not in names:
        strangers = sorted(names - _NOT_YET_OURS)
        if strangers:
            raise StartupError(
                f"{path} holds files that are not Millstream's, such as {strangers[0]}: "
                "choose an empty or new directory as data_dir"
            )
        return None
    meta = _read_meta(files, f"{path}/{META}")
    if meta.node_id != node_id:
        raise StartupError(
            f"{path} belongs to node {meta.node_id} and this is node {node_id}: "
            f"start with node_id = {meta.node_id} or choose another data_dir"
        )
    if JOURNAL not in names and files.list(LOGS):
        raise StartupError(
            f"{path}/{JOURNAL} is missing though there are logs: restore the whole directory from "
            "a backup, or choose an empty data_dir and let the node catch up"
        )
    return meta


def _read_meta(files: Files, path: str) -> _Meta:
    text = files.open(META).read(0, _META_BYTES_MAX)
    try:
        values = json.loads(text)
        version = values["format"]
        # The version first: in another one all the rest may look different.
        if type(version) is int and version != FORMAT:
            age = "a newer" if version > FORMAT else "an older"
            raise StartupError(
                f"{path} has format {version}, written by {age} Millstream, and this one reads "
                f"format {FORMAT}: run the Millstream that wrote it or choose another data_dir"
            )
        meta = _Meta(values["node_id"], values["cluster_id"])
    except (ValueError, KeyError, TypeError, RecursionError):
        meta = None
    # Encoding it again checks everything at once: types, checksum, nothing missing or added.
    if meta is None or _encode_meta(meta) != text:
        raise StartupError(
            f"{path} is damaged: restore it from a backup or choose another data_dir"
        )
    return meta


def write_meta(
    files: Files, node_id: NodeId, entropy: Random, *, cluster_id: str | None = None
) -> str:
    """Make the root of `files` the directory of `node_id`; returns the id of its cluster."""
    if cluster_id is None:
        cluster_id = urlsafe_b64encode(entropy.randbytes(16)).rstrip(b"=").decode()
    replace_file(files, META, [_encode_meta(_Meta(node_id, cluster_id))])
    return cluster_id


def _encode_meta(meta: _Meta) -> bytes:
    values = {"format": FORMAT, "node_id": meta.node_id, "cluster_id": meta.cluster_id}
    checksum = crc32.iscsi(json.dumps(values).encode())
    return json.dumps({**values, "checksum": f"{checksum:08x}"}, indent=2).encode() + b"\n"


@contextmanager
def _explained(path: str) -> Iterator[None]:
    """Turn an error of the operating system into one sentence for the operator."""
    try:
        yield
    except BlockingIOError:
        raise StartupError(
            f"another Millstream is running on {path}: stop it or choose another data_dir"
        ) from None
    except (NotADirectoryError, FileExistsError):
        raise StartupError(
            f"{path} is a file or lies under one: choose a directory as data_dir"
        ) from None
    except OSError as problem:
        reason = _REASONS.get(problem.errno or 0, f"cannot be used as data_dir: {problem}")
        raise StartupError(f"{path} {reason}") from None
