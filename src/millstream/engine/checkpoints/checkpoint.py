"""A checkpoint: the files of all logs as they were at one moment, by hard links.

Owns the directory `checkpoint` below the data directory, from which `millstream backup` copies. One
turn of the event loop notes the segments and the end of every log, and the states of the journal:
that is the moment. A thread then links the files. A segment only grows behind its noted size; a log
whose segments were replaced, cut or removed meanwhile is noticed, and all of it is done again.

Invariant: `checkpoint.json` is written last. A directory without it is no checkpoint.
"""

import json
import logging
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from msgspec import Struct

from millstream.errors import InvalidRequest, StorageError, StorageUnavailable
from millstream.model import LogId, Offset
from millstream.ports import Files, Ports
from millstream.replication.hub import Hub
from millstream.replication.opening import log_directory
from millstream.replication.replica import Replica
from millstream.storage.files.directory import ENCRYPTED, JOURNAL, KEYRING, LOGS, META
from millstream.storage.files.replacing import TEMPORARY, replace_file
from millstream.storage.files.skipped_commands import SKIPPED
from millstream.storage.log.segment import CLEANED, INDEX, LOG, PRODUCERS, TERMS, Segment

CHECKPOINT = "checkpoint"
MANIFEST = "checkpoint.json"
LOCK = "backup.lock"  # Held by a backup while it copies from the checkpoint.
FORMAT = 1
ATTEMPTS_MAX = 5  # Logs that change while their files are linked are rare.
CHUNK_BYTES_MAX = 4 * 2**20  # Of a file, in one answer.

_TOP_FILES = (META, KEYRING, ENCRYPTED, SKIPPED)
_SEGMENT_FILES = (LOG, INDEX, TERMS)

_log = logging.getLogger(__name__)


class Checkpoint(NamedTuple):
    id: str
    log_count: int
    size_bytes: int
    paths: frozenset[str]  # Of all its files.


class _Noted(NamedTuple):
    """A log at the moment: the segments before `active` never change, that one only grows."""

    replica: Replica
    segments: list[Segment]
    active: Segment | None
    active_bytes: int
    end_offset: Offset
    is_led: bool


class _Linking(Struct):
    """What a thread links, and the size of each file by its path."""

    files: Files
    noted: dict[LogId, _Noted]
    sizes: dict[str, int]

    def run(self, others: list[LogId]) -> None:
        for name in _TOP_FILES:
            if self.files.exists(name):
                self._link(name, None)
        for log_id, log in self.noted.items():
            self._make(log_id)
            for path, size in _files_of(self.files, log):
                self._link(path, size)
        for log_id in others:
            # As the last stop left them, or damaged: no file of them is open for writing.
            self._make(log_id)
            directory = log_directory(log_id)
            for name in self.files.list(directory):
                if not name.endswith((TEMPORARY, CLEANED)):
                    self._link(f"{directory}/{name}", None)

    def _make(self, log_id: LogId) -> None:
        self.files.make_directory(f"{CHECKPOINT}/{log_directory(log_id)}")

    def _link(self, path: str, size: int | None) -> None:
        target = f"{CHECKPOINT}/{path}"
        self.files.link(path, target)
        file = self.files.open(target)
        self.sizes[path] = file.size() if size is None else size
        file.close()


async def make_checkpoint(hub: Hub, ports: Ports) -> Checkpoint:
    """Replace the checkpoint of this node by one of now; `StorageUnavailable` says why not."""
    for _ in range(ATTEMPTS_MAX):
        try:
            made = await _attempt(hub, ports)
        except BlockingIOError:
            raise InvalidRequest("another backup of this node is being copied: wait") from None
        except OSError as problem:
            raise StorageUnavailable(
                f"no checkpoint could be made: {problem}. Its files are hard links: a file system "
                "without them needs a stopped node, and millstream backup --data-dir"
            ) from problem
        if made is not None:
            return made
        _log.info("a checkpoint is begun again: logs changed meanwhile")
    raise StorageUnavailable(
        f"no checkpoint could be made: logs changed during each of {ATTEMPTS_MAX} attempts; "
        "try again in a while"
    )


async def _attempt(hub: Hub, ports: Ports) -> Checkpoint | None:
    """None if a log has changed before its files were linked."""
    await hub.opened()
    linking, write_journal = _Linking(ports.files, _note(hub), {}), hub.journal.copier()
    strays = set(hub.strays)

    def link() -> bool:
        remove_checkpoint(ports.files)
        ports.files.make_directory(f"{CHECKPOINT}/{LOGS}")
        others = set(hub.logs_on_disk()) - linking.noted.keys() - strays
        try:
            linking.run(sorted(others, key=str))
        except FileNotFoundError:
            return False
        return True

    def finish() -> Checkpoint:
        write_journal(f"{CHECKPOINT}/{JOURNAL}")
        led = [str(log_id) for log_id, log in linking.noted.items() if log.is_led]
        return _finish(ports, linking.sizes, led)

    if not await ports.threads.run(link) or not _are_current(hub, linking.noted):
        return None
    return await ports.threads.run(finish)


def remove_checkpoint(files: Files) -> None:
    """Blocks. Fine if there is none; `BlockingIOError` while a backup copies from it."""
    lock = files.lock(LOCK)
    try:
        # Without it the directory is no checkpoint, however far its removal comes.
        if files.exists(CHECKPOINT):
            files.remove(f"{CHECKPOINT}/{MANIFEST}")
        files.remove_directory(CHECKPOINT)
    finally:
        lock.close()


async def remove_old_checkpoint(ports: Ports) -> None:
    """A backup that was killed leaves one, and with it the space of removed segments."""
    if ports.files.exists(CHECKPOINT):
        try:
            await ports.threads.run(partial(remove_checkpoint, ports.files))
        except (OSError, StorageError) as problem:
            _log.warning("could not remove an old checkpoint problem=%s", problem)


def read_chunk(files: Files, path: str, position: int) -> bytes:
    """Blocks. The bytes of a file of the checkpoint from `position` on, `CHUNK_BYTES_MAX` at
    most."""
    file = files.open(f"{CHECKPOINT}/{path}")
    try:
        return file.read(position, min(CHUNK_BYTES_MAX, max(0, file.size() - position)))
    finally:
        file.close()


def _note(hub: Hub) -> dict[LogId, _Noted]:
    """Every open log, within one turn of the event loop: about 1 us each."""
    noted = {}
    for log_id, replica in hub.replicas.items():
        log = replica.log
        active = log.active
        size = 0 if active is None else active.size
        noted[log_id] = _Noted(
            replica, log.segments(), active, size, log.end_offset, replica.is_leader
        )
    return noted


def _are_current(hub: Hub, noted: dict[LogId, _Noted]) -> bool:
    """Whether the segments are still those whose files were linked."""
    if hub.replicas.keys() != noted.keys():
        return False
    for log_id, log in noted.items():
        replica = hub.replicas[log_id]
        if replica is not log.replica:
            return False
        if not set(map(id, log.segments)) <= set(map(id, replica.log.segments())):
            return False
    return True


def _files_of(files: Files, log: _Noted) -> Iterator[tuple[str, int | None]]:
    """The paths of the log's files, with the bytes of each that count; None for all of them."""
    directory = log.replica.log.directory
    offsets = {segment.base_offset: segment for segment in log.segments}
    present = set(files.list(directory))
    for segment in log.segments:
        # A missing file is an error here, and not a log with a hole in it.
        size = log.active_bytes if segment is log.active else segment.size
        yield segment.path, size
    for name in present:
        stem, dot, suffix = name.partition(".")
        if name.endswith((TEMPORARY, CLEANED)) or f".{suffix}" == LOG:
            continue
        if dot and f".{suffix}" in _SEGMENT_FILES:
            # An index of more bytes than its segment has would prove a loss.
            if offsets.get(int(stem)) in (None, log.active):
                continue
        elif f".{suffix}" == PRODUCERS and int(stem) > log.end_offset:
            continue
        yield f"{directory}/{name}", None


def _finish(ports: Ports, sizes: dict[str, int], led: list[str]) -> Checkpoint:
    files = ports.files
    journal = files.open(f"{CHECKPOINT}/{JOURNAL}")
    sizes[JOURNAL] = journal.size()
    journal.close()
    identity = f"{ports.entropy.getrandbits(64):016x}"
    body = {
        "format": FORMAT,
        "id": identity,
        "made_ms": ports.clock.now_ms(),
        "led": led,  # The logs that this node led at that moment.
        "files": sizes,
    }
    replace_file(files, f"{CHECKPOINT}/{MANIFEST}", [json.dumps(body).encode()])
    log_count = len({path.rpartition("/")[0] for path in sizes if path.startswith(f"{LOGS}/")})
    paths = frozenset({*sizes, MANIFEST})
    return Checkpoint(identity, log_count, sum(sizes.values()), paths)
