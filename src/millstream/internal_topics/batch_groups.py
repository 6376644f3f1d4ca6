"""Batch groups: transactions of many producers that are committed or aborted as one.

A group is opened for a *term*, the tasks of one batch write in their own transactions under it, and
one decision commits the batch: the named transactions, and no others. Owns the names, the stored
state of a group, and every decision about it; `transaction_steps` decides about a single
transaction. The transactions of an open term share one lease: they live as long as any of their
producers renews it, and are aborted as one when all are silent.

Invariant: the decision and the group's latest batch are one write, so a repeated request, after a
lost answer or a crash, gets the outcome.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import NamedTuple

import msgspec

from millstream.errors import InvalidTransactionState, ProducerFenced
from millstream.internal_topics.transaction_steps import ended, fenced
from millstream.internal_topics.transactions import NO_ID, TransactionState, TransactionValue
from millstream.model import Producer
from millstream.names import BATCH_MEMBER_MARK

_TERM_END = "~"
_RUNNING = (TransactionState.EMPTY, TransactionState.ONGOING)
NO_BATCH = -1
NO_TERM = 0


class GroupState(Enum):
    """The values are stored."""

    OPEN = 0
    COMMITTED = 1
    ABORTED = 2


class GroupEvent(Enum):
    BEGUN = "a batch was begun"
    COMMITTED = "the batch was committed"
    ABORTED = "the batch was aborted"


# A term ends once. Asked in the same way again, it is ended already; in another way, it is not.
TRANSITIONS: dict[tuple[GroupState, GroupEvent], GroupState] = {
    (GroupState.OPEN, GroupEvent.BEGUN): GroupState.OPEN,
    (GroupState.OPEN, GroupEvent.COMMITTED): GroupState.COMMITTED,
    (GroupState.OPEN, GroupEvent.ABORTED): GroupState.ABORTED,
    (GroupState.COMMITTED, GroupEvent.BEGUN): GroupState.OPEN,
    (GroupState.COMMITTED, GroupEvent.COMMITTED): GroupState.COMMITTED,
    (GroupState.ABORTED, GroupEvent.BEGUN): GroupState.OPEN,
    (GroupState.ABORTED, GroupEvent.ABORTED): GroupState.ABORTED,
}


class BatchGroupKey(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Its tag tells it from a `TransactionKey`, in the same partition."""

    group: str


class BatchGroupValue(msgspec.Struct, frozen=True, array_like=True, kw_only=True, tag=0):
    """`series` names the numbering of batches; a new series starts over."""

    term: int
    state: GroupState
    changed_ms: int
    series: str = ""
    last_committed_batch: int = NO_BATCH

    def has_committed(self, series: str, batch_id: int) -> bool:
        return self.series == series and batch_id <= self.last_committed_batch


class Ending(NamedTuple):
    """Which batch is to be ended, by whom, and whose transactions are in it."""

    term: int
    series: str
    batch_id: int
    members: Mapping[str, Producer]


class Changes(NamedTuple):
    """What is known of a group and its members afterwards, of the latter only what is new."""

    group: BatchGroupValue
    members: Mapping[str, TransactionValue | None]


# What is known of a group and of its members, and what will be.
GroupStep = Callable[[BatchGroupValue, Mapping[str, TransactionValue]], Changes]


def home_of(transactional_id: str) -> str:
    """The key that selects an id's coordinator: the name of its group, or the id."""
    return transactional_id.partition(BATCH_MEMBER_MARK)[0]


def group_of(transactional_id: str) -> str | None:
    """The group that the id is in."""
    group, mark, _ = transactional_id.partition(BATCH_MEMBER_MARK)
    return group if mark else None


def unknown(now_ms: int) -> BatchGroupValue:
    """State of a group that was never begun: as if every batch was aborted."""
    return BatchGroupValue(term=NO_TERM, state=GroupState.ABORTED, changed_ms=now_ms)


def check_open(transactional_id: str, group: BatchGroupValue) -> None:
    """Raise unless a producer may take over this id of a member: only in the term that is open."""
    member = transactional_id.partition(BATCH_MEMBER_MARK)[2]
    text = member.partition(_TERM_END)[0]
    term = int(text) if text.isascii() and text.isdecimal() else NO_TERM
    if term != group.term or group.state is not GroupState.OPEN:
        raise ProducerFenced(transactional_id, term)


def begun(
    key: str, group: BatchGroupValue, members: Mapping[str, TransactionValue], *, now_ms: int
) -> Changes:
    """The next term: open transactions of the last one are aborted and cannot be committed."""
    after = msgspec.structs.replace(
        group,
        term=group.term + 1,
        state=_move(key, group, GroupEvent.BEGUN),
        changed_ms=now_ms,
    )
    return Changes(after, _dropped(members, now_ms))


def committed(
    key: str,
    group: BatchGroupValue,
    members: Mapping[str, TransactionValue],
    *,
    ending: Ending,
    now_ms: int,
) -> Changes:
    """The named members are committed and all others aborted; or all is refused.

    Of a batch that an earlier term committed nothing is committed again.
    """
    _check_term(key, group, ending.term)
    is_known = group.has_committed(ending.series, ending.batch_id)
    if group.state is GroupState.COMMITTED and is_known:
        return Changes(group, {})
    state = _move(key, group, GroupEvent.COMMITTED)
    if group.state is GroupState.COMMITTED:
        raise InvalidTransactionState(
            f"term {group.term} of {key!r} has committed batch {group.last_committed_batch}, "
            f"not {ending.batch_id}"
        )
    after = msgspec.structs.replace(group, state=state, changed_ms=now_ms)
    if is_known:
        return Changes(after, _dropped(members, now_ms))
    after = msgspec.structs.replace(
        after, series=ending.series, last_committed_batch=ending.batch_id
    )
    chosen = {
        name: _prepared(name, members.get(name), producer, now_ms)
        for name, producer in ending.members.items()
    }
    others = {name: value for name, value in members.items() if name not in chosen}
    return Changes(after, {**_dropped(others, now_ms), **chosen})


def aborted(
    key: str,
    group: BatchGroupValue,
    members: Mapping[str, TransactionValue],
    *,
    ending: Ending,
    now_ms: int,
) -> Changes:
    """All members are aborted; refused for a batch that is committed."""
    _check_term(key, group, ending.term)
    if group.has_committed(ending.series, ending.batch_id):
        raise InvalidTransactionState(f"batch {ending.batch_id} of {key!r} is committed")
    state = _move(key, group, GroupEvent.ABORTED)
    if state is group.state:
        return Changes(group, {})
    after = msgspec.structs.replace(group, state=state, changed_ms=now_ms)
    return Changes(after, _dropped(members, now_ms))


def check_renewal(
    key: str,
    group: BatchGroupValue,
    members: Mapping[str, TransactionValue],
    *,
    term: int,
    named: Mapping[str, Producer],
) -> None:
    """Raise unless the term is open and the named members still have these producers."""
    _check_term(key, group, term)
    if group.state is not GroupState.OPEN:
        raise InvalidTransactionState(f"term {term} of {key!r} is over: {group.state.name}")
    for name, producer in named.items():
        value = members.get(name)
        if value is None or value.state not in _RUNNING or value.producer != producer:
            raise ProducerFenced(name, producer.epoch)


def is_silent(members: Mapping[str, TransactionValue], *, renewed_ms: int, now_ms: int) -> bool:
    """Whether the lease of open transactions is over: the shortest of their timeouts counts."""
    timeouts_ms = [
        value.timeout_ms for value in members.values() if value.state is TransactionState.ONGOING
    ]
    return bool(timeouts_ms) and now_ms - renewed_ms >= min(timeouts_ms)


def expired(
    key: str, group: BatchGroupValue, members: Mapping[str, TransactionValue], *, now_ms: int
) -> Changes:
    """The open term is aborted: its tasks and its driver are refused from now on."""
    after = msgspec.structs.replace(
        group, state=_move(key, group, GroupEvent.ABORTED), changed_ms=now_ms
    )
    return Changes(after, _dropped(members, now_ms))


def is_forgettable(group: BatchGroupValue, *, now_ms: int, expiration_ms: int) -> bool:
    return now_ms - group.changed_ms >= expiration_ms


class BatchGroupsState:
    """The fold: `apply` each record in order, tombstones included."""

    def __init__(self) -> None:
        self._values: dict[str, BatchGroupValue] = {}

    def __len__(self) -> int:
        return len(self._values)

    def names(self) -> list[str]:
        return list(self._values)

    def find(self, group: str) -> BatchGroupValue | None:
        return self._values.get(group)

    def apply(self, key: bytes | None, value: bytes | None) -> bool:
        """Say whether the record is about a group that can be read."""
        try:
            group = _key_decoder.decode(key or b"").group
            stored = None if value is None else _value_decoder.decode(value)
        except msgspec.MsgspecError:
            return False
        if stored is None:
            self._values.pop(group, None)
        else:
            self._values[group] = stored
        return True


def encode_group_key(group: str) -> bytes:
    return _encoder.encode(BatchGroupKey(group))


def encode_group_value(value: BatchGroupValue) -> bytes:
    return _encoder.encode(value)


# -- parts -----------------------------------------------------------------------------------------


def _check_term(key: str, group: BatchGroupValue, term: int) -> None:
    if term != group.term:
        raise ProducerFenced(key, term)


def _dropped(
    members: Mapping[str, TransactionValue], now_ms: int
) -> dict[str, TransactionValue | None]:
    """Abort what is open and forget what is not; what is being ended goes its way."""
    return {
        name: fenced(name, value, now_ms=now_ms)
        if value.state is TransactionState.ONGOING
        else None
        for name, value in members.items()
        if not value.is_preparing
    }


def _prepared(
    name: str, value: TransactionValue | None, producer: Producer, now_ms: int
) -> TransactionValue | None:
    if value is None:
        raise InvalidTransactionState(f"there is no transaction {name!r}, or not any more")
    if value.producer != producer:
        raise ProducerFenced(name, producer.epoch)
    if value.state is TransactionState.EMPTY:
        return None
    if value.state is not TransactionState.ONGOING:
        raise InvalidTransactionState(f"the state of {name!r} is {value.state.name}")
    return ended(name, value, producer, commits=True, bumps=False, fresh_id=NO_ID, now_ms=now_ms)


def _move(key: str, group: BatchGroupValue, event: GroupEvent) -> GroupState:
    state = TRANSITIONS.get((group.state, event))
    if state is None:
        raise InvalidTransactionState(
            f"{event.value}, but the state of {key!r} is {group.state.name}"
        )
    return state


_encoder = msgspec.msgpack.Encoder()
_key_decoder = msgspec.msgpack.Decoder(BatchGroupKey)
_value_decoder = msgspec.msgpack.Decoder(BatchGroupValue)
