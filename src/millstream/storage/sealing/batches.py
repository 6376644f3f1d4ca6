"""Seals the batches of one log before they are written, and opens them when they are read.

A sealed batch stays a batch: its header in clear, with the bit `SEALED`, and with the length and
checksum of what is stored. So index, retention, epochs, recovery and verification need no key.

    61 bytes   header
     4         id of the data key
    12         nonce
     4         checksum of the batch as its producer made it
     …         ciphertext of all that was behind the header
    16         tag

The associated data are topic, partition, base offset, the header fields that a checksum covers, and
the producer's checksum: a batch that was moved to another log or place does not open.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from struct import Struct
from typing import Protocol
from uuid import UUID

from fastcrc import crc32

from millstream.codec.batch import HEADER_BYTES, MAGIC, PREFIX_BYTES, SEALED, Header, read_header
from millstream.errors import CorruptBatch, DamagedLog, InvalidBatch
from millstream.model import Buffer, LogId, Offset
from millstream.ports import File

NONCE_BYTES = 12
TAG_BYTES = 16
_EXTRA = Struct(">I12sI")  # Key id, nonce, the producer's checksum.
BODY_AT = HEADER_BYTES + _EXTRA.size
SEALED_BYTES = _EXTRA.size + TAG_BYTES  # More than the batch had before.

_LENGTH_END = 12
_CHECKED_FROM = 21
_HEAD = Struct(">qiibI")
_CHECKED = Struct(">hiqqqhii")
_PLACE = Struct(">q40sI")
# Length and attributes, of what a walk over batches needs to know.
_WALK = Struct(">8xi9xh")
_WALK_BYTES = 4096

assert _HEAD.size + _CHECKED.size == HEADER_BYTES


class BadSeal(Exception):
    """A sealed batch does not open: it was changed, moved, or sealed with another key."""


class MissingKey(DamagedLog):
    """The keyring has no key of this id: the records cannot be read until it is restored."""


class DataKey(Protocol):
    """A key of one topic. `left` is how many batches it may seal before more are granted."""

    id: int
    left: int

    def encrypt(self, nonce: bytes, data: Buffer, associated: bytes) -> bytes: ...

    def decrypt(self, nonce: bytes, data: Buffer, associated: bytes) -> bytes:
        """Raises `BadSeal`."""


class TopicKeys(Protocol):
    """The keys of one topic: one that seals, all that open."""

    @property
    def current(self) -> DataKey | None:
        """None: batches are written in clear."""

    @property
    def by_id(self) -> Mapping[int, DataKey]: ...

    def exhausted(self) -> DataKey:
        """A key that may seal more batches; called when `current.left` has come to 0."""


class Sealer:
    """Seals and opens the batches of one log. `open` and `open_all` work on any thread."""

    __slots__ = ("_keys", "_nonce", "_place", "_topic")

    def __init__(
        self, log_id: LogId, keys: TopicKeys, random_bytes: Callable[[int], bytes]
    ) -> None:
        self._keys = keys
        self._topic = log_id.topic_id
        self._place = log_id.topic_id.bytes + log_id.partition.to_bytes(4, "big")
        self._nonce = random_bytes

    @property
    def current_id(self) -> int | None:
        """The id of the key that seals; None: batches are written in clear."""
        key = self._keys.current
        return None if key is None else key.id

    # -- sealing -----------------------------------------------------------------------------------

    def seal(
        self, chunks: Sequence[Buffer], headers: Sequence[Header]
    ) -> tuple[Sequence[Buffer], Sequence[Header]]:
        """Stamped batches as they are to be stored; `chunks` are exactly their bytes."""
        key = self._keys.current
        if key is None:
            return chunks, headers
        if len(headers) == 1 and len(chunks) == 2 and len(chunks[0]) == PREFIX_BYTES:
            # As the leader hands them over: the stamp, and the producer's bytes behind it.
            payload = memoryview(chunks[1])[HEADER_BYTES - PREFIX_BYTES :]
            sealed, head, body = self._seal(key, headers[0], payload)
            return (head, body), (sealed,)
        data = memoryview(chunks[0] if len(chunks) == 1 else b"".join(chunks))
        at = 0
        stored: list[Buffer] = []
        sealed_headers = []
        for header in headers:
            end = at + header.size
            sealed, head, body = self._seal(key, header, data[at + HEADER_BYTES : end])
            stored += (head, body)
            sealed_headers.append(sealed)
            at = end
        return stored, sealed_headers

    def _seal(self, key: DataKey, header: Header, payload: Buffer) -> tuple[Header, bytes, bytes]:
        assert not header.attributes & SEALED, "sealed twice"
        if key.left <= 0:
            key = self._keys.exhausted()
        key.left -= 1
        base_offset, size, epoch, crc, attributes, *fields = header
        nonce = self._nonce(NONCE_BYTES)
        associated = self._associated(base_offset, _CHECKED.pack(attributes, *fields), crc)
        body = key.encrypt(nonce, payload, associated)
        checked = _CHECKED.pack(attributes | SEALED, *fields) + _EXTRA.pack(key.id, nonce, crc)
        stored_crc = crc32.iscsi(body, crc32.iscsi(checked))
        size += SEALED_BYTES
        head = _HEAD.pack(base_offset, size - _LENGTH_END, epoch, MAGIC, stored_crc) + checked
        sealed = Header(base_offset, size, epoch, stored_crc, attributes | SEALED, *fields)
        return sealed, head, body

    # -- opening -----------------------------------------------------------------------------------

    def open(self, header: Header, data: Buffer) -> tuple[bytes, Buffer]:
        """Header and payload of one stored batch, as its producer made it.

        Raises `BadSeal`, or `MissingKey` if the keyring has lost its key.
        """
        if not header.attributes & SEALED:
            return _in_clear(header, memoryview(data))
        if not HEADER_BYTES + SEALED_BYTES <= header.size <= len(data):
            raise BadSeal(f"a sealed batch cannot have {header.size} bytes")
        key_id, nonce, crc = _EXTRA.unpack_from(data, HEADER_BYTES)
        key = self._keys.by_id.get(key_id)
        if key is None:
            raise missing_key(key_id, self._topic)
        base_offset, size, epoch, _, attributes, *fields = header
        checked = _CHECKED.pack(attributes ^ SEALED, *fields)
        associated = self._associated(base_offset, checked, crc)
        payload = key.decrypt(nonce, memoryview(data)[BODY_AT:size], associated)
        length = size - SEALED_BYTES - _LENGTH_END
        return _HEAD.pack(base_offset, length, epoch, MAGIC, crc) + checked, payload

    def open_all(self, data: bytes) -> list[Buffer]:
        """The consecutive batches that fill `data`, opened: header and payload of each.

        Large payloads are not copied again: to join a mebibyte costs ten times its opening.
        Raises as `open`, with the position of the batch in `BadSeal.args`.
        """
        view = memoryview(data)
        opened: list[Buffer] = []
        at = 0
        while at < len(view):
            header = read_header(view, at)
            try:
                opened += self.open(header, view[at : at + header.size])
            except BadSeal as problem:
                raise BadSeal(str(problem), at) from None
            at += header.size
        return opened

    def check(self, header: Header, data: Buffer) -> None:
        """Raise `BadSeal` or `MissingKey` unless the batch opens."""
        if header.attributes & SEALED:
            self.open(header, data)

    def _associated(self, base_offset: Offset, checked: bytes, crc: int) -> bytes:
        return self._place + _PLACE.pack(base_offset, checked, crc)


def _in_clear(header: Header, view: memoryview) -> tuple[bytes, memoryview]:
    """A batch that was written before encryption was on.

    Its checksum is verified again: without its bit a sealed batch would pass for records.
    """
    if header.size > len(view) or header.crc != crc32.iscsi(view[_CHECKED_FROM : header.size]):
        raise BadSeal("its checksum is wrong")
    return bytes(view[:HEADER_BYTES]), view[HEADER_BYTES : header.size]


def measure(file: File, at: int, end: int, count_max: int) -> tuple[int, int]:
    """Where the first `count_max` of the batches from `at` to `end` end, and how long they all are
    when they are opened. Reads little more than their headers.
    """
    chunk, start, position = b"", at, at
    sealed = count = 0
    while position < end and count < count_max:
        if position + HEADER_BYTES > start + len(chunk):
            chunk, start = file.read(position, min(_WALK_BYTES, end - position)), position
        length, attributes = _WALK.unpack_from(chunk, position - start)
        position += length + _LENGTH_END
        count += 1
        if attributes & SEALED:
            sealed += 1
    return position, position - at - sealed * SEALED_BYTES


def batch_headers(file: File, end: int) -> Iterator[tuple[int, Header]]:
    """Position and header of each batch that begins before `end`, up to the first broken one."""
    at = 0
    while at < end:
        try:
            header = read_header(file.read(at, HEADER_BYTES))
        except (CorruptBatch, InvalidBatch):
            return
        yield at, header
        at += header.size


def prove_offset(file: File, position: int, header: Header, sealer: Sealer | None) -> None:
    """Raise `InvalidBatch` if the batch was sealed with another base offset.

    No checksum covers a base offset, and behind a gap none is expected. A batch in clear proves
    nothing.
    """
    if sealer is None or not header.attributes & SEALED:
        return
    try:
        sealer.check(header, file.read(position, header.size))
    except BadSeal as problem:
        raise InvalidBatch(f"base offset {header.base_offset}: {problem}") from None


def missing_key(key_id: int, topic_id: UUID) -> MissingKey:
    return MissingKey(
        f"key {key_id} of topic {topic_id} is missing: restore the keyring that this data "
        "directory was written with"
    )


def key_id_of(header: Header, data: Buffer) -> int | None:
    """The id of the key that sealed a stored batch, of which `data` has at least `BODY_AT` bytes.

    None for a batch in clear.
    """
    return _EXTRA.unpack_from(data, HEADER_BYTES)[0] if header.attributes & SEALED else None
