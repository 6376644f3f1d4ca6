"""The keyring of a data directory: the data keys of its topics, wrapped by a master key.

Owns the file `keyring`. A root key, the operator's, wraps the master key; the master key wraps one
data key, or several after rotations, for each topic. A key is in the file, durably, before a batch
is sealed with it. Methods work on any thread, one at a time; those that change something block for
a sync and raise `OSError`, and then nothing has changed.

Invariant: no key seals more than 2^32 batches: their nonces are drawn at random. Use is counted in
strides of 2^24 batches, taken before they are used. A start takes one of every key, by one number.
"""

import logging
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from uuid import UUID

import msgspec
from fastcrc import crc32

from millstream.errors import DamagedLog, StartupError, storage_error
from millstream.model import LogId
from millstream.ports import Clock, Files
from millstream.storage.files.directory import ENCRYPTED, KEYRING, LOGS
from millstream.storage.files.replacing import replace_file
from millstream.storage.sealing.batches import (
    BODY_AT,
    DataKey,
    Sealer,
    batch_headers,
    key_id_of,
    missing_key,
)
from millstream.storage.sealing.root import KEY_BYTES, Root

FORMAT = 1
STRIDE = 2**24
STRIDES_MAX = 2**8
KEYS_MAX = 1_000_000

LOG = ".log"  # As `storage.log.segment` names the files of segments.

_MARKER_TEXT = b"Records here are encrypted. Their keys are in the file keyring.\n"
_MASTER = b"millstream master key"
_DATA = b"millstream data key"

_log = logging.getLogger(__name__)

RandomBytes = Callable[[int], bytes]
Lock = AbstractContextManager[object]  # Of threads, reentrant.


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A data key in the file."""

    id: int
    topic: str
    made_ms: int
    start: int  # The number of the start that made it.
    strides: int  # Taken beyond one for each start.
    key: str  # Wrapped.

    @property
    def topic_id(self) -> UUID:
        return UUID(hex=self.topic)


class _Body(msgspec.Struct, frozen=True, kw_only=True):
    format: int
    cluster_id: str
    root: str
    check: str
    master: str
    starts: int
    next_id: int
    keys: tuple[Entry, ...]


class _File(msgspec.Struct):
    checksum: str
    keyring: msgspec.Raw


class _Topic:
    """The keys of one topic; see `batches.TopicKeys`."""

    __slots__ = ("_keyring", "by_id", "current", "topic_id")

    def __init__(self, keyring: "Keyring", topic_id: UUID) -> None:
        self.topic_id = topic_id
        self.by_id: dict[int, DataKey] = {}
        self.current: DataKey | None = None
        self._keyring = keyring

    def exhausted(self) -> DataKey:
        """Rare: strides are taken in the background when a half of one is used up."""
        self._keyring.take_strides([self.topic_id])
        assert self.current is not None
        return self.current


class Keyring:
    """Made by `open_keyring` or `make_keyring`. With `seals` new batches are sealed."""

    def __init__(
        self,
        files: Files,
        body: _Body,
        master: bytes,
        root: Root,
        *,
        seals: bool,
        random_bytes: RandomBytes,
        clock: Clock,
        lock: Lock,
        next_root: Root | None = None,
    ) -> None:
        self.seals = seals
        self._files = files
        self._clock = clock
        self._body = body
        self._master = master
        self._root = root
        self._random_bytes = random_bytes
        # Not yet the one that wraps the master key: `rotate_root` makes it so.
        self._next_root = next_root
        self._lock = lock
        self._topics: dict[UUID, _Topic] = {}
        self._entries: dict[UUID, list[Entry]] = {}
        self._index()

    # -- facts -------------------------------------------------------------------------------------

    @property
    def cluster_id(self) -> str:
        return self._body.cluster_id

    @property
    def root_name(self) -> str:
        return self._body.root

    @property
    def check(self) -> str:
        return self._body.check

    @property
    def next_root(self) -> Root | None:
        """The key that `rotate_root` will wrap the keyring by; None: it does already."""
        return self._next_root

    @property
    def awaits_root(self) -> bool:
        """Whether the keyring is still wrapped by `encryption.old_key`."""
        return self._next_root is not None

    def entries(self) -> Sequence[Entry]:
        return self._body.keys

    def has(self, topic_id: UUID) -> bool:
        return topic_id in self._entries

    # -- keys --------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin a life of the node: take a stride of every key."""
        with self._lock:
            self._write(self._changed(starts=self._body.starts + 1))
            if not self._files.exists(ENCRYPTED):
                replace_file(self._files, ENCRYPTED, [_MARKER_TEXT])

    def ensure(self, topic_ids: Iterable[UUID]) -> None:
        """Make keys for the topics that have none, or none that may seal more, in one write."""
        with self._lock:
            missing = {topic for topic in topic_ids if self.seals and not self._can_seal(topic)}
            if missing:
                self._add_keys(sorted(missing))

    def sealer(self, log_id: LogId) -> Sealer:
        """What seals and opens the batches of a log; makes the key of its topic, if need be."""
        self.ensure([log_id.topic_id])
        with self._lock:
            return Sealer(log_id, self._topic(log_id.topic_id), self._random_bytes)

    def prepare(self, log_ids: Iterable[LogId]) -> None:
        """Make the keys of topics that are opened here for the first time, in one write.

        Raises `StorageError`; `MissingKey` if a log has sealed batches and no key.
        """
        log_ids = list(log_ids)
        try:
            for log_id in log_ids:
                if self.seals and not self.has(log_id.topic_id):
                    key_id = _key_in_use(self._files, f"{LOGS}/{log_id}")
                    if key_id is not None:
                        raise missing_key(key_id, log_id.topic_id)
            self.ensure(log_id.topic_id for log_id in log_ids)
        except OSError as problem:
            raise storage_error(problem, KEYRING) from problem

    def shred(self, topic_id: UUID) -> None:
        """Remove the keys of a deleted topic: no copy of its files can be read any more."""
        with self._lock:
            if topic_id not in self._entries:
                return
            self._write(
                self._changed(keys=tuple(e for e in self._body.keys if e.topic_id != topic_id))
            )
            del self._entries[topic_id]
            self._topics.pop(topic_id, None)

    def rotate(self) -> int:
        """Make a new data key for each topic; the old ones open what they sealed."""
        with self._lock:
            topics = sorted(self._entries)
            self._add_keys(topics)
            return len(topics)

    def rotate_root(self) -> bool:
        """Wrap the master key by `encryption.key` instead of `old_key`; False if it is already."""
        with self._lock:
            root = self._next_root
            if root is None:
                return False
            self._write(_with_root(self._body, root, self._master, self._random_bytes))
            self._root, self._next_root = root, None
            return True

    def rotate_master(self) -> int:
        """Make a new master key and wrap all data keys by it, in one write."""
        with self._lock:
            master = self._random_bytes(KEY_BYTES)
            keys = tuple(
                msgspec.structs.replace(entry, key=self._wrap(master, entry, self._unwrap(entry)))
                for entry in self._body.keys
            )
            root = self._next_root or self._root
            body = _with_root(self._body, root, master, self._random_bytes)
            self._write(msgspec.structs.replace(body, keys=keys))
            self._master, self._root, self._next_root = master, root, None
            self._index()
            return len(keys)

    def low(self) -> list[UUID]:
        """Topics that have used up half of their stride."""
        return [
            topic_id
            for topic_id, topic in list(self._topics.items())
            if topic.current is not None and topic.current.left < STRIDE // 2
        ]

    def take_strides(self, topic_ids: Sequence[UUID]) -> None:
        """Let the current keys of these topics seal more batches, or give them others."""
        with self._lock:
            retired: list[Entry] = []
            granted: list[Entry] = []
            for topic_id in topic_ids:
                if topic_id not in self._entries:
                    continue  # Deleted meanwhile.
                last = self._entries[topic_id][-1]
                (retired if self._strides(last) >= STRIDES_MAX else granted).append(last)
            if granted:
                ids = {entry.id for entry in granted}
                keys = tuple(
                    msgspec.structs.replace(e, strides=e.strides + 1) if e.id in ids else e
                    for e in self._body.keys
                )
                self._write(self._changed(keys=keys))
                self._index()
                for entry in granted:
                    current = self._topic(entry.topic_id).current
                    if current is not None:
                        # The event loop counts down meanwhile. Either number may win: a lost
                        # stride is taken again, and one batch too many is nothing in 2^24.
                        current.left += STRIDE
            if retired:
                self._add_keys([entry.topic_id for entry in retired])

    # -- parts -------------------------------------------------------------------------------------

    def _strides(self, entry: Entry) -> int:
        return self._body.starts - entry.start + 1 + entry.strides

    def _can_seal(self, topic_id: UUID) -> bool:
        entries = self._entries.get(topic_id)
        return entries is not None and self._strides(entries[-1]) <= STRIDES_MAX

    def _topic(self, topic_id: UUID) -> _Topic:
        topic = self._topics.get(topic_id)
        if topic is None:
            topic = self._topics[topic_id] = _Topic(self, topic_id)
            for entry in self._entries.get(topic_id, ()):
                self._use(topic, entry)
        return topic

    def _use(self, topic: _Topic, entry: Entry) -> None:
        from millstream.storage.sealing.ciphers import AesKey

        key = AesKey(entry.id, self._unwrap(entry), STRIDE)
        # Copied: another thread may be opening batches.
        topic.by_id = {**topic.by_id, entry.id: key}
        if self.seals:
            topic.current = key

    def _add_keys(self, topic_ids: Sequence[UUID]) -> None:
        body = self._body
        if len(body.keys) + len(topic_ids) > KEYS_MAX:
            raise DamagedLog(f"the keyring has {len(body.keys)} keys, {KEYS_MAX} are the limit")
        added = []
        for number, topic_id in enumerate(topic_ids, start=body.next_id):
            entry = Entry(
                id=number,
                topic=topic_id.hex,
                made_ms=self._clock.now_ms(),
                start=body.starts,
                strides=0,
                key="",
            )
            secret = self._random_bytes(KEY_BYTES)
            wrapped = self._wrap(self._master, entry, secret)
            added.append(msgspec.structs.replace(entry, key=wrapped))
        self._write(self._changed(next_id=body.next_id + len(added), keys=(*body.keys, *added)))
        for entry in added:
            self._entries.setdefault(entry.topic_id, []).append(entry)
            if entry.topic_id in self._topics:
                self._use(self._topics[entry.topic_id], entry)

    def _index(self) -> None:
        self._entries = {}
        for entry in self._body.keys:
            self._entries.setdefault(entry.topic_id, []).append(entry)

    def _wrap(self, master: bytes, entry: Entry, secret: bytes) -> str:
        from millstream.storage.sealing import ciphers

        purpose = _purpose_of(self._body.cluster_id, entry)
        return b64encode(ciphers.wrap(master, secret, purpose, self._random_bytes(12))).decode()

    def _unwrap(self, entry: Entry) -> bytes:
        from millstream.storage.sealing import ciphers

        purpose = _purpose_of(self._body.cluster_id, entry)
        key = ciphers.unwrap(self._master, b64decode(entry.key), purpose)
        if key is None:
            raise DamagedLog(f"key {entry.id} of topic {entry.topic_id} in the keyring is damaged")
        return key

    def _changed(self, **fields: object) -> _Body:
        return msgspec.structs.replace(self._body, **fields)

    def _write(self, body: _Body) -> None:
        _write(self._files, body)
        self._body = body


def open_keyring(
    files: Files,
    path: str,
    *,
    root: Root,
    old_root: Root | None,
    seals: bool,
    random_bytes: RandomBytes,
    clock: Clock,
    lock: Lock,
) -> Keyring | None:
    """The keyring of the data directory; None if there is none yet. Changes nothing.

    `path` is how messages call the data directory. Raises `StartupError`, one sentence for each
    thing that can be wrong.
    """
    if not files.exists(KEYRING):
        if files.exists(ENCRYPTED):
            raise StartupError(
                f"the keyring is missing: restore {path}/{KEYRING} from a backup; without it the "
                "encrypted records cannot be read"
            )
        return None
    body = read_body(files, path)
    associated = _MASTER + body.cluster_id.encode()
    wrapped = b64decode(body.master)
    next_root = None
    master = root.unwrap(wrapped, associated) if _may_be(root, body) else None
    if master is None and old_root is not None and _may_be(old_root, body):
        master = old_root.unwrap(wrapped, associated)
        next_root = root
    if master is None:
        raise StartupError(
            f'the key "{root.name}" is not the one that data_dir {path} was written with (check '
            f"{root.check or 'unknown'}, expected {body.check or 'unknown'})"
        )
    return Keyring(
        files,
        body,
        master,
        root if next_root is None else old_root or root,
        seals=seals,
        random_bytes=random_bytes,
        clock=clock,
        lock=lock,
        next_root=next_root,
    )


def make_keyring(
    files: Files,
    *,
    cluster_id: str,
    root: Root,
    random_bytes: RandomBytes,
    clock: Clock,
    lock: Lock,
) -> Keyring:
    """The first keyring of a data directory, durably."""
    master = random_bytes(KEY_BYTES)
    body = _Body(
        format=FORMAT,
        cluster_id=cluster_id,
        root="",
        check="",
        master="",
        starts=0,
        next_id=1,
        keys=(),
    )
    body = _with_root(body, root, master, random_bytes)
    _write(files, body)
    return Keyring(
        files, body, master, root, seals=True, random_bytes=random_bytes, clock=clock, lock=lock
    )


def read_body(files: Files, path: str) -> _Body:
    """The keyring as it is stored; needs no key. `StartupError` if it is damaged."""
    file = files.open(KEYRING)
    data = file.read(0, file.size())
    file.close()
    damaged = StartupError(
        f"the keyring is damaged: restore {path}/{KEYRING} from a backup; without it the encrypted "
        "records cannot be read"
    )
    try:
        outer = msgspec.json.decode(data, type=_File)
        if outer.checksum != f"{crc32.iscsi(bytes(outer.keyring)):08x}":
            raise damaged
        body = msgspec.json.decode(outer.keyring, type=_Body)
        for entry in body.keys:
            UUID(hex=entry.topic)
            b64decode(entry.key, validate=True)
        b64decode(body.master, validate=True)
    except (msgspec.DecodeError, ValueError):
        raise damaged from None
    if body.format != FORMAT:
        raise StartupError(
            f"{path}/{KEYRING} has format {body.format}, and this Millstream reads format {FORMAT}"
        )
    return body


def _key_in_use(files: Files, directory: str) -> int | None:
    """The id of a key that the log was sealed with: of the first batch of each segment, and of all
    batches of the last one.
    """
    segments = [name for name in files.list(directory) if name.endswith(LOG)]
    for name in segments:
        file = files.open(f"{directory}/{name}")
        try:
            end = file.size() if name == segments[-1] else min(file.size(), 1)
            for position, header in batch_headers(file, end):
                key_id = key_id_of(header, file.read(position, BODY_AT))
                if key_id is not None:
                    return key_id
        finally:
            file.close()
    return None


def _may_be(root: Root, body: _Body) -> bool:
    return root.check == body.check


def _with_root(body: _Body, root: Root, master: bytes, random_bytes: RandomBytes) -> _Body:
    associated = _MASTER + body.cluster_id.encode()
    wrapped = root.wrap(master, associated, random_bytes(12))
    return msgspec.structs.replace(
        body, root=root.name, check=root.check, master=b64encode(wrapped).decode()
    )


def _purpose_of(cluster_id: str, entry: Entry) -> bytes:
    return _DATA + entry.id.to_bytes(4, "big") + entry.topic_id.bytes + cluster_id.encode()


def _write(files: Files, body: _Body) -> None:
    encoded = msgspec.json.encode(body)
    checksum = f"{crc32.iscsi(encoded):08x}".encode()
    replace_file(files, KEYRING, [b'{"checksum":"', checksum, b'","keyring":', encoded, b"}\n"])
