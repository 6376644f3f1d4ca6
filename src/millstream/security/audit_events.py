"""An event of the audit trail: its JSON (CloudEvents 1.0) and the chain that makes edits visible.

Each node has a chain: an event holds the hash of the one before it. Pure; the broker writes with
it, clients read and verify with it.
"""

import hmac
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final, NamedTuple

import msgspec

TYPE_PREFIX: Final = "millstream."
CONTENT_TYPE: Final = "application/cloudevents+json"
FIRST_PREV: Final = ""  # The hash before the first event of a chain.
TEXT_LENGTH_MAX: Final = 1_024  # Of one field: names come from clients.

_HASH_MEMBER: Final = b',"hash":"'
_HASH_HEX: Final = 64
_TAIL_BYTES: Final = len(_HASH_MEMBER) + _HASH_HEX + len(b'"}')


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What happened, in the order of the JSON."""

    event: str
    result: str = "success"
    principal: str = ""
    roles: tuple[str, ...] = ()
    mechanism: str = ""
    listener: str = ""
    protocol: str = ""
    address: str = ""
    client_id: str = ""
    action: str = ""
    operation: str = ""
    resource: str = ""
    rule: str = ""
    count: int = 1
    node: int = 0
    details: Mapping[str, Any] = {}  # Any JSON; built from declared fields, never from requests.


class _Envelope(msgspec.Struct, frozen=True, kw_only=True):
    specversion: str = "1.0"
    id: str
    source: str
    type: str
    subject: str
    time: str
    datacontenttype: str = "application/json"
    data: Facts
    seq: int
    prev: str


class Event(_Envelope, frozen=True, kw_only=True):
    hash: str

    @property
    def at_ms(self) -> int:
        """Raises `ValueError` for a time that no broker has written."""
        match = _TIME.fullmatch(self.time)
        if match is None:
            raise ValueError(f"{self.time[:40]!r} is no time of an event")
        year, month, day, hour, minute, second, fraction = map(int, match.groups())
        seconds = ((_day_number(year, month, day) * 24 + hour) * 60 + minute) * 60 + second
        return seconds * 1000 + fraction


class Head(NamedTuple):
    """The end of a node's chain."""

    seq: int = 0
    hash: str = FIRST_PREV


_TIME: Final = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)\.(\d{3})Z", re.ASCII)


def _day_number(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01 in the Gregorian calendar, whose years begin in March here."""
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


@lru_cache(maxsize=8)
def _date_text(day_number: int) -> str:
    """The inverse of `_day_number`, as text."""
    era, of_era = divmod(day_number + 719_468, 146_097)
    year_of_era = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_index = (5 * of_year + 2) // 153
    day = of_year - (153 * month_index + 2) // 5 + 1
    month = month_index + 3 if month_index < 10 else month_index - 9
    return f"{year_of_era + era * 400 + (month <= 2):04d}-{month:02d}-{day:02d}"


def _time_text(at_ms: int) -> str:
    days, ms = divmod(at_ms, 86_400_000)
    seconds, fraction = divmod(ms, 1000)
    hour, rest_s = divmod(seconds, 3600)
    return f"{_date_text(days)}T{hour:02d}:{rest_s // 60:02d}:{rest_s % 60:02d}.{fraction:03d}Z"


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Event)
UNREADABLE: Final = (msgspec.MsgspecError, ValueError)


def encode(
    facts: Facts, at_ms: int, head: Head, *, cluster_id: str, key: bytes
) -> tuple[bytes, Head]:
    """The bytes of the event behind `head`, and the new head."""
    seq = head.seq + 1
    envelope = _Envelope(
        id=f"{facts.node}-{seq}",
        source=f"millstream://{cluster_id}/nodes/{facts.node}",
        type=TYPE_PREFIX + facts.event,
        subject=facts.resource,
        time=_time_text(at_ms),
        data=facts,
        seq=seq,
        prev=head.hash,
    )
    body = _encoder.encode(envelope)[:-1]
    digest = _digest(body, head.hash, key)
    return body + _HASH_MEMBER + digest.encode() + b'"}', Head(seq, digest)


def decode(value: bytes) -> Event:
    """Read an event; raise one of `UNREADABLE`."""
    return _decoder.decode(value)


def _digest(body: bytes, prev: str, key: bytes) -> str:
    data = prev.encode() + body
    return hmac.digest(key, data, "sha256").hex() if key else sha256(data).hexdigest()


class StoredEvent(NamedTuple):
    """An event where it lies in `__audit`."""

    partition: int
    offset: int
    value: bytes


class Break(NamedTuple):
    """The first event of a chain that is not what was written, or behind which one is missing."""

    partition: int
    offset: int
    problem: str


class Verdict(NamedTuple):
    breaks: list[Break]
    heads: dict[int, Head]  # By node.
    event_count: int


def verify(
    events: Iterable[StoredEvent],
    *,
    key: bytes = b"",
    starts: Mapping[int, int] | None = None,
) -> Verdict:
    """Follow the chains of all nodes through events in the order of their partitions.

    `starts` are the first offsets of partitions: where retention has cut the log, a chain may begin
    in the middle. Reports the first break of each partition and goes on behind it.
    """
    starts = starts or {}
    heads: dict[int, Head] = {}
    broken: dict[int, Break] = {}
    count = 0
    for stored in events:
        count += 1
        problem, node, head = _judge(stored, heads, key, starts.get(stored.partition, 0) > 0)
        if node is not None:
            heads[node] = head
        if problem and stored.partition not in broken:
            broken[stored.partition] = Break(stored.partition, stored.offset, problem)
    return Verdict(list(broken.values()), heads, count)


def _judge(
    stored: StoredEvent, heads: Mapping[int, Head], key: bytes, is_cut: bool
) -> tuple[str, int | None, Head]:
    try:
        event = decode(stored.value)
    except UNREADABLE:
        return "the record is no event of the trail", None, Head()
    node, head = event.data.node, Head(event.seq, event.hash)
    if not stored.value.endswith(_HASH_MEMBER + event.hash.encode() + b'"}'):
        return f"event {event.id} has no hash at its end", node, head
    digest = _digest(stored.value[:-_TAIL_BYTES], event.prev, key)
    if not hmac.compare_digest(digest, event.hash):
        return f"event {event.id} is not what its hash says", node, head
    before = heads.get(node)
    if before is None:
        if is_cut or (event.seq == 1 and event.prev == FIRST_PREV):
            return "", node, head
        return f"the events of node {node} before {event.id} are missing", node, head
    if event.seq != before.seq + 1:
        return f"event {event.id} follows {node}-{before.seq}", node, head
    if event.prev != before.hash:
        return (
            f"event {event.id} does not continue the chain behind {node}-{before.seq}",
            node,
            head,
        )
    return "", node, head
