"""State transitions of a transactional id: every decision of its coordinator.

Each function takes the current state and a request, and returns the next state (the same object if
nothing changes), or raises the refusal.

Invariant: an epoch is given to one producer. Fencing takes the next epoch, so a producer with an
older one can neither write nor end a transaction.
"""

from collections.abc import Set

import msgspec

from millstream.errors import (
    InvalidRequest,
    InvalidTransactionState,
    ProducerFenced,
    StaleProducerEpoch,
    TransactionInProgress,
    UnknownProducer,
)
from millstream.internal_topics.transactions import (
    DECIDED,
    NO_ID,
    NOT_STARTED,
    TRANSITIONS,
    Event,
    Participant,
    TransactionState,
    TransactionValue,
)
from millstream.model import NO_PRODUCER, Producer

EPOCH_MAX = 2**15 - 1  # Never given to a producer: reserved for fencing the one before.


def is_exhausted(epoch: int) -> bool:
    """Whether this is the last epoch that a producer may hold."""
    return epoch >= EPOCH_MAX - 1


def needs_producer_id(value: TransactionValue | None) -> bool:
    """Whether the next change of epoch needs a new producer id."""
    return value is None or is_exhausted(value.epoch)


def initialized(
    key: str,
    value: TransactionValue | None,
    *,
    expected: Producer,
    timeout_ms: int,
    fresh_id: int,
    now_ms: int,
) -> TransactionValue:
    """A producer takes over the id, fencing all before it.

    If that interrupts a transaction, the result is the beginning of its abort, and the producer
    has to ask again. `expected` is who it was, or `NO_PRODUCER`.
    """
    if value is None:
        return _first(fresh_id, timeout_ms, now_ms)
    is_current = expected == value.producer
    is_repeated = expected != NO_PRODUCER and expected == value.last
    if expected != NO_PRODUCER and not (is_current or is_repeated):
        raise ProducerFenced(key, expected.epoch)
    if value.state is TransactionState.ONGOING:
        return fenced(key, value, now_ms=now_ms)
    state = _move(key, value, Event.INITIALIZED)
    if is_repeated and not is_current:
        if value.state is state and value.timeout_ms == timeout_ms:
            return value
        return msgspec.structs.replace(value, state=state, timeout_ms=timeout_ms, changed_ms=now_ms)
    if is_exhausted(value.epoch):
        if fresh_id == NO_ID:
            raise TransactionInProgress(key)  # It changed while no fresh id was at hand.
        taken = _first(fresh_id, timeout_ms, now_ms)
    else:
        taken = msgspec.structs.replace(
            value, epoch=value.epoch + 1, state=state, timeout_ms=timeout_ms, changed_ms=now_ms
        )
    return msgspec.structs.replace(
        taken, last_producer_id=expected.producer_id, last_epoch=expected.epoch
    )


def added(
    key: str,
    value: TransactionValue | None,
    producer: Producer,
    participants: Set[Participant],
    *,
    participants_max: int,
    now_ms: int,
) -> TransactionValue:
    """Partitions join the producer's transaction, which the first of them begins."""
    known = _check_producer(key, value, producer)
    state = _move(key, known, Event.PARTITIONS_ADDED)
    if known.state is TransactionState.ONGOING and participants <= known.participants:
        return known
    joined = known.participants | participants
    if len(joined) > participants_max:
        raise InvalidRequest(
            f"{len(joined)} partitions in a transaction, at most {participants_max}"
        )
    begins = known.state is not TransactionState.ONGOING
    return msgspec.structs.replace(
        known,
        state=state,
        participants=joined,
        started_ms=now_ms if begins else known.started_ms,
        changed_ms=now_ms,
        # A producer that uses an epoch has received the answer with it.
        last_producer_id=NO_ID,
        last_epoch=NO_ID,
    )


def ended(
    key: str,
    value: TransactionValue | None,
    producer: Producer,
    *,
    commits: bool,
    bumps: bool,
    fresh_id: int,
    now_ms: int,
) -> TransactionValue:
    """The producer ends its transaction. With `bumps` it goes on in the next epoch (KIP-890)."""
    if value is not None and bumps and producer == value.last != NO_PRODUCER:
        return _repeated(key, value, commits)
    known = _check_producer(key, value, producer)
    if known.state is not TransactionState.ONGOING and not bumps:
        return _repeated(key, known, commits)
    event = Event.COMMITTED if commits else Event.ABORTED
    if known.state is not TransactionState.ONGOING and not commits:
        event = Event.SKIPPED
    state = _move(key, known, event)
    prepared = msgspec.structs.replace(known, state=state, changed_ms=now_ms)
    if not bumps:
        return prepared
    if is_exhausted(known.epoch) and fresh_id == NO_ID:
        raise TransactionInProgress(key)
    return msgspec.structs.replace(
        prepared,
        epoch=known.epoch + 1,
        last_producer_id=known.producer_id,
        last_epoch=known.epoch,
        next_producer_id=fresh_id if is_exhausted(known.epoch) else NO_ID,
    )


def fenced(key: str, value: TransactionValue, *, now_ms: int) -> TransactionValue:
    """The transaction is aborted against its producer's will, which can do nothing any more."""
    assert value.epoch < EPOCH_MAX
    return msgspec.structs.replace(
        value,
        state=_move(key, value, Event.FENCED),
        epoch=value.epoch + 1,
        last_producer_id=NO_ID,
        last_epoch=NO_ID,
        changed_ms=now_ms,
    )


def completed(key: str, value: TransactionValue, *, now_ms: int) -> TransactionValue:
    """Every partition has its marker."""
    producer = value.producer
    return msgspec.structs.replace(
        value,
        state=_move(key, value, Event.MARKED),
        producer_id=producer.producer_id,
        epoch=producer.epoch,
        next_producer_id=NO_ID,
        participants=frozenset(),
        started_ms=NOT_STARTED,
        changed_ms=now_ms,
    )


def is_overdue(value: TransactionValue, now_ms: int) -> bool:
    is_ongoing = value.state is TransactionState.ONGOING
    return is_ongoing and now_ms - value.started_ms >= value.timeout_ms


def is_expired(value: TransactionValue, *, now_ms: int, expiration_ms: int) -> bool:
    may_go = (value.state, Event.EXPIRED) in TRANSITIONS
    return may_go and now_ms - value.changed_ms >= expiration_ms


def check_member(
    key: str, value: TransactionValue | None, producer: Producer, participant: Participant
) -> None:
    """Ask whether the producer may write to a partition in its transaction (KIP-890)."""
    if value is None or value.producer_id != producer.producer_id:
        raise UnknownProducer(key, producer.producer_id)
    if value.epoch != producer.epoch:
        raise StaleProducerEpoch(producer.producer_id, value.epoch, producer.epoch)
    is_ongoing = value.state is TransactionState.ONGOING
    if not is_ongoing or participant not in value.participants:
        raise InvalidTransactionState(
            f"{participant.target} is not part of an ongoing transaction of {key!r}"
        )


# -- parts -----------------------------------------------------------------------------------------


def _first(producer_id: int, timeout_ms: int, now_ms: int) -> TransactionValue:
    assert producer_id != NO_ID
    return TransactionValue(
        producer_id=producer_id, epoch=0, timeout_ms=timeout_ms, changed_ms=now_ms
    )


def _check_producer(
    key: str, value: TransactionValue | None, producer: Producer
) -> TransactionValue:
    ids = () if value is None else (value.producer_id, value.producer.producer_id)
    if value is None or producer.producer_id not in ids:
        raise UnknownProducer(key, producer.producer_id)
    # No producer holds the last epoch; a request with it is a guess.
    if producer != value.producer or producer.epoch == EPOCH_MAX:
        raise ProducerFenced(key, producer.epoch)
    return value


def _repeated(key: str, value: TransactionValue, commits: bool) -> TransactionValue:
    """The transaction is ended already: fine if it was in the same way."""
    if DECIDED.get(value.state) is not commits:
        asked = "a commit" if commits else "an abort"
        raise InvalidTransactionState(f"{asked} of {key!r}, whose state is {value.state.name}")
    if value.is_preparing:
        raise TransactionInProgress(key)
    return value


def _move(key: str, value: TransactionValue, event: Event) -> TransactionState:
    state = TRANSITIONS.get((value.state, event))
    if state is not None:
        return state
    if value.is_preparing:
        raise TransactionInProgress(key)
    raise InvalidTransactionState(f"{event.value}, but the state of {key!r} is {value.state.name}")
