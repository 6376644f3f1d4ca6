"""What a coordinator decides: each state with each event, epochs, repeated requests, the fold."""

from itertools import product
from uuid import UUID

import msgspec
import pytest

from millstream.errors import (
    InvalidRequest,
    InvalidTransactionState,
    ProducerFenced,
    RequestError,
    StaleProducerEpoch,
    TransactionInProgress,
    UnknownProducer,
)
from millstream.internal_topics.transaction_steps import (
    EPOCH_MAX,
    added,
    check_member,
    completed,
    ended,
    fenced,
    initialized,
    is_exhausted,
    is_expired,
    is_overdue,
    needs_producer_id,
)
from millstream.internal_topics.transactions import (
    NO_ID,
    TRANSITIONS,
    Event,
    Participant,
    TransactionsState,
    TransactionState,
    TransactionValue,
    encode_key,
    encode_value,
)
from millstream.model import NO_PRODUCER, LogId, Producer

KEY = "billing"
NOW = 1_000
ORDERS = Participant("orders", 0, UUID(int=1))
PAYMENTS = Participant("payments", 3, UUID(int=2))
ME = Producer(7, 5)
STATES = [state for state in TransactionState if state is not TransactionState.DEAD]


def known(state: TransactionState = TransactionState.EMPTY, **changes: object) -> TransactionValue:
    has_begun = state not in (
        TransactionState.EMPTY,
        TransactionState.COMPLETE_COMMIT,
        TransactionState.COMPLETE_ABORT,
    )
    fields: dict[str, object] = {
        "producer_id": ME.producer_id,
        "epoch": ME.epoch,
        "timeout_ms": 60_000,
        "changed_ms": 0,
        "state": state,
        "started_ms": 0 if has_begun else -1,
        "participants": frozenset({ORDERS}) if has_begun else frozenset(),
        **changes,
    }
    return TransactionValue(**fields)  # type: ignore[arg-type]


def init(
    value: TransactionValue | None, expected: Producer = NO_PRODUCER, fresh_id: int = NO_ID
) -> TransactionValue:
    return initialized(
        KEY, value, expected=expected, timeout_ms=60_000, fresh_id=fresh_id, now_ms=NOW
    )


def add(
    value: TransactionValue | None, *participants: Participant, producer: Producer = ME
) -> TransactionValue:
    joining = frozenset(participants or {ORDERS})
    return added(KEY, value, producer, joining, participants_max=3, now_ms=NOW)


def end(
    value: TransactionValue | None,
    producer: Producer = ME,
    *,
    commits: bool = True,
    bumps: bool = False,
    fresh_id: int = NO_ID,
) -> TransactionValue:
    return ended(KEY, value, producer, commits=commits, bumps=bumps, fresh_id=fresh_id, now_ms=NOW)


def do(event: Event, value: TransactionValue) -> TransactionValue | None:
    match event:
        case Event.INITIALIZED:
            return init(value)
        case Event.PARTITIONS_ADDED:
            return add(value, PAYMENTS)
        case Event.COMMITTED:
            return end(value, commits=True)
        case Event.ABORTED:
            return end(value, commits=False)
        case Event.SKIPPED:
            return end(value, commits=False, bumps=True)
        case Event.FENCED:
            return fenced(KEY, value, now_ms=NOW)
        case Event.MARKED:
            return completed(KEY, value, now_ms=NOW)
        case Event.EXPIRED:
            is_over = is_expired(value, now_ms=NOW, expiration_ms=10)
            return None if is_over else value


# What becomes of the pairs that are not in the table: refused, or the same as another event.
INVALID, BUSY = InvalidTransactionState, TransactionInProgress
_EMPTY, _ONGOING, _PREPARE_COMMIT, _PREPARE_ABORT, _COMMITTED, _ABORTED = STATES
OTHERWISE: dict[tuple[TransactionState, Event], type[RequestError] | TransactionState] = {
    (_EMPTY, Event.COMMITTED): INVALID,
    (_EMPTY, Event.ABORTED): INVALID,
    (_EMPTY, Event.FENCED): INVALID,
    (_EMPTY, Event.MARKED): INVALID,
    (_ONGOING, Event.INITIALIZED): _PREPARE_ABORT,  # Fenced.
    (_ONGOING, Event.SKIPPED): _PREPARE_ABORT,  # An abort like any other.
    (_ONGOING, Event.MARKED): INVALID,
    (_ONGOING, Event.EXPIRED): _ONGOING,
    (_PREPARE_COMMIT, Event.INITIALIZED): BUSY,
    (_PREPARE_COMMIT, Event.PARTITIONS_ADDED): BUSY,
    (_PREPARE_COMMIT, Event.COMMITTED): BUSY,
    (_PREPARE_COMMIT, Event.ABORTED): INVALID,
    (_PREPARE_COMMIT, Event.SKIPPED): BUSY,
    (_PREPARE_COMMIT, Event.FENCED): BUSY,
    (_PREPARE_COMMIT, Event.EXPIRED): _PREPARE_COMMIT,
    (_PREPARE_ABORT, Event.INITIALIZED): BUSY,
    (_PREPARE_ABORT, Event.PARTITIONS_ADDED): BUSY,
    (_PREPARE_ABORT, Event.COMMITTED): INVALID,
    (_PREPARE_ABORT, Event.ABORTED): BUSY,
    (_PREPARE_ABORT, Event.SKIPPED): BUSY,
    (_PREPARE_ABORT, Event.FENCED): BUSY,
    (_PREPARE_ABORT, Event.EXPIRED): _PREPARE_ABORT,
    (_COMMITTED, Event.COMMITTED): _COMMITTED,  # Repeated.
    (_COMMITTED, Event.ABORTED): INVALID,
    (_COMMITTED, Event.FENCED): INVALID,
    (_COMMITTED, Event.MARKED): INVALID,
    (_ABORTED, Event.COMMITTED): INVALID,
    (_ABORTED, Event.ABORTED): _ABORTED,  # Repeated.
    (_ABORTED, Event.FENCED): INVALID,
    (_ABORTED, Event.MARKED): INVALID,
}


@pytest.mark.parametrize(
    ("state", "event"), list(product(STATES, Event)), ids=lambda member: member.name.lower()
)
def test_every_event_in_every_state_is_a_transition_or_a_refusal(
    state: TransactionState, event: Event
) -> None:
    assert ((state, event) in TRANSITIONS) != ((state, event) in OTHERWISE)
    outcome = TRANSITIONS.get((state, event)) or OTHERWISE.get((state, event))
    value = known(state)

    if isinstance(outcome, type):
        with pytest.raises(outcome):
            do(event, value)
    else:
        after = do(event, value)
        assert (TransactionState.DEAD if after is None else after.state) is outcome


def test_a_dead_transaction_is_never_written() -> None:
    assert all(state is not TransactionState.DEAD for state, _ in TRANSITIONS)


# -- taking over -----------------------------------------------------------------------------------


def test_the_first_producer_of_an_id_is_at_epoch_0() -> None:
    assert needs_producer_id(None)
    assert init(None, fresh_id=9).producer == (9, 0)


def test_who_expects_what_was_forgotten_starts_over() -> None:
    assert init(None, Producer(3, 3), fresh_id=9).producer == (9, 0)


def test_each_taking_over_takes_the_next_epoch() -> None:
    once = init(known())
    twice = init(once)

    assert (once.producer, twice.producer) == ((7, 6), (7, 7))


def test_taking_over_an_ongoing_transaction_aborts_it_in_the_next_epoch() -> None:
    value = init(known(TransactionState.ONGOING))

    assert value.state is TransactionState.PREPARE_ABORT
    assert value.producer == (7, 6)
    assert value.participants == {ORDERS}


def test_who_expects_the_current_epoch_gets_the_next_one() -> None:
    assert init(known(), ME).producer == (7, 6)


def test_a_lost_answer_is_given_again() -> None:
    answered = init(known(), ME)

    assert init(answered, ME) is answered


def test_an_epoch_in_use_is_not_given_again() -> None:
    in_use = end(add(init(known(), ME), producer=Producer(7, 6)), Producer(7, 6))
    ended_since = completed(KEY, in_use, now_ms=NOW)

    with pytest.raises(ProducerFenced):
        init(ended_since, ME)


@pytest.mark.parametrize("expected", [Producer(7, 4), Producer(7, 6), Producer(8, 5)])
@pytest.mark.parametrize("state", [TransactionState.EMPTY, TransactionState.ONGOING])
def test_another_expected_epoch_is_fenced_and_interrupts_no_transaction(
    state: TransactionState, expected: Producer
) -> None:
    with pytest.raises(ProducerFenced):
        init(known(state), expected)


def test_a_producer_id_without_epochs_left_is_replaced() -> None:
    worn_out = known(epoch=EPOCH_MAX - 1)

    replaced = init(worn_out, worn_out.producer, fresh_id=9)

    assert needs_producer_id(worn_out)
    assert replaced.producer == (9, 0)
    assert init(replaced, worn_out.producer, fresh_id=10) is replaced


def test_without_a_fresh_id_at_hand_the_producer_asks_again() -> None:
    with pytest.raises(TransactionInProgress):
        init(known(epoch=EPOCH_MAX - 1))


def test_even_the_last_epoch_can_be_fenced() -> None:
    value = fenced(KEY, known(TransactionState.ONGOING, epoch=EPOCH_MAX - 1), now_ms=NOW)
    over = completed(KEY, value, now_ms=NOW)

    assert over.epoch == EPOCH_MAX
    assert init(over, fresh_id=9).producer == (9, 0)


def test_the_epoch_kept_for_fencing_takes_no_writes() -> None:
    guess = Producer(7, EPOCH_MAX)

    with pytest.raises(ProducerFenced):
        add(known(TransactionState.COMPLETE_ABORT, epoch=EPOCH_MAX), producer=guess)


# -- adding and ending -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("producer", "refusal"),
    [
        (Producer(8, 5), UnknownProducer),
        (Producer(7, 4), ProducerFenced),
        (Producer(7, 6), ProducerFenced),
        (NO_PRODUCER, UnknownProducer),
    ],
)
@pytest.mark.parametrize("bumps", [False, True])
def test_only_the_current_producer_adds_and_ends(
    producer: Producer, refusal: type[RequestError], bumps: bool
) -> None:
    for state in STATES:
        with pytest.raises(refusal):
            add(known(state), producer=producer)
        with pytest.raises(refusal):
            end(known(state), producer, bumps=bumps)


def test_an_unknown_id_can_neither_add_nor_end() -> None:
    with pytest.raises(UnknownProducer):
        add(None)
    with pytest.raises(UnknownProducer):
        end(None)


def test_the_first_partition_begins_the_transaction_and_others_join_it() -> None:
    begun = add(known())
    joined = added(KEY, begun, ME, frozenset({PAYMENTS}), participants_max=3, now_ms=NOW + 5)

    assert (begun.state, begun.started_ms) == (TransactionState.ONGOING, NOW)
    assert joined.participants == {ORDERS, PAYMENTS}
    assert joined.started_ms == NOW
    assert add(joined, ORDERS) is joined


def test_a_transaction_has_at_most_so_many_partitions() -> None:
    many = [Participant("orders", at, UUID(int=1)) for at in range(4)]

    assert len(add(known(), *many[:3]).participants) == 3
    with pytest.raises(InvalidRequest):
        add(known(), *many)


def test_a_completed_transaction_has_no_partitions() -> None:
    value = completed(KEY, end(known(TransactionState.ONGOING)), now_ms=NOW)

    assert (value.state, value.started_ms) == (TransactionState.COMPLETE_COMMIT, -1)
    assert value.participants == frozenset()
    assert value.producer == ME


# -- ending with a new epoch (KIP-890) -------------------------------------------------------------


def test_every_end_takes_the_next_epoch_and_says_so() -> None:
    prepared = end(known(TransactionState.ONGOING), bumps=True)

    assert prepared.state is TransactionState.PREPARE_COMMIT
    assert prepared.producer == (7, 6)
    assert completed(KEY, prepared, now_ms=NOW).producer == (7, 6)


def test_a_lost_answer_to_an_end_is_given_again_once_it_is_over() -> None:
    prepared = end(known(TransactionState.ONGOING), bumps=True)
    over = completed(KEY, prepared, now_ms=NOW)

    with pytest.raises(TransactionInProgress):
        end(prepared, ME, bumps=True)
    assert end(over, ME, bumps=True) is over
    with pytest.raises(InvalidTransactionState):
        end(over, ME, commits=False, bumps=True)


def test_a_late_end_does_not_end_the_next_transaction() -> None:
    over = completed(KEY, end(known(TransactionState.ONGOING), bumps=True), now_ms=NOW)
    following = add(over, producer=Producer(7, 6))

    with pytest.raises(ProducerFenced):
        end(following, ME, bumps=True)


def test_a_late_partition_does_not_join_the_next_transaction() -> None:
    over = completed(KEY, end(known(TransactionState.ONGOING), bumps=True), now_ms=NOW)

    with pytest.raises(ProducerFenced):
        add(over, producer=ME)


def test_the_last_epoch_ends_in_a_new_producer_id() -> None:
    last = Producer(7, EPOCH_MAX - 1)
    prepared = end(known(TransactionState.ONGOING, epoch=last.epoch), last, bumps=True, fresh_id=9)
    over = completed(KEY, prepared, now_ms=NOW)

    assert (prepared.producer_id, prepared.epoch) == (7, EPOCH_MAX)  # Of the markers.
    assert prepared.producer == over.producer == (9, 0)
    assert (over.producer_id, over.epoch) == (9, 0)
    assert end(over, last, bumps=True) is over
    with pytest.raises(TransactionInProgress):
        add(prepared, producer=Producer(9, 0))


def test_an_abort_of_nothing_takes_the_next_epoch_too() -> None:
    prepared = end(known(), commits=False, bumps=True)

    assert prepared.state is TransactionState.PREPARE_ABORT
    assert prepared.producer == (7, 6)
    assert prepared.participants == frozenset()


# -- writing ---------------------------------------------------------------------------------------


def check(value: TransactionValue | None, producer: Producer = ME) -> None:
    check_member(KEY, value, producer, ORDERS)


def test_a_partition_of_an_ongoing_transaction_takes_its_batches() -> None:
    check(known(TransactionState.ONGOING))


@pytest.mark.parametrize("state", [s for s in STATES if s is not TransactionState.ONGOING])
def test_outside_of_a_transaction_nothing_is_taken(state: TransactionState) -> None:
    with pytest.raises(InvalidTransactionState):
        check(known(state, participants=frozenset({ORDERS})))


def test_a_partition_that_was_not_added_takes_nothing() -> None:
    with pytest.raises(InvalidTransactionState):
        check(known(TransactionState.ONGOING, participants=frozenset({PAYMENTS})))


def test_a_namesake_of_a_deleted_topic_is_not_in_the_transaction() -> None:
    namesake = Participant("orders", 0, UUID(int=99))

    with pytest.raises(InvalidTransactionState):
        check_member(KEY, known(TransactionState.ONGOING), ME, namesake)


def test_zombies_and_strangers_write_nothing() -> None:
    with pytest.raises(StaleProducerEpoch):
        check(known(TransactionState.ONGOING), Producer(7, 4))
    with pytest.raises(UnknownProducer):
        check(known(TransactionState.ONGOING), Producer(8, 5))
    with pytest.raises(UnknownProducer):
        check(None)


# -- time ------------------------------------------------------------------------------------------


def test_only_an_ongoing_transaction_grows_too_old() -> None:
    value = known(TransactionState.ONGOING, started_ms=100, timeout_ms=50)

    assert not is_overdue(value, 149)
    assert is_overdue(value, 150)
    assert not is_overdue(msgspec.structs.replace(value, state=TransactionState.EMPTY), 150)


def test_the_epoch_before_the_last_is_the_last_to_be_held() -> None:
    assert not is_exhausted(EPOCH_MAX - 2)
    assert is_exhausted(EPOCH_MAX - 1)


# -- the fold --------------------------------------------------------------------------------------


def test_the_newest_record_of_an_id_counts_and_a_tombstone_ends_it() -> None:
    state = TransactionsState()
    value = add(known(), ORDERS, PAYMENTS)

    assert state.apply(encode_key(KEY), encode_value(known())) == KEY
    state.apply(encode_key(KEY), encode_value(value))
    state.apply(encode_key("other"), encode_value(known()))
    state.apply(encode_key("other"), None)

    assert list(state) == [KEY]
    assert state.find(KEY) == value


@pytest.mark.parametrize(
    ("key", "value"),
    [(None, b""), (b"nonsense", None), (encode_key(KEY), b"nonsense"), (b"", encode_key(KEY))],
)
def test_a_record_that_cannot_be_read_changes_nothing(
    key: bytes | None, value: bytes | None
) -> None:
    state = TransactionsState()
    state.apply(encode_key(KEY), encode_value(known()))

    with pytest.raises(ValueError):
        state.apply(key, value)

    assert state.find(KEY) == known()


def test_keys_and_values_are_spelled_like_this_for_ever() -> None:
    value = known(TransactionState.ONGOING, last_producer_id=3, last_epoch=4)

    assert encode_key(KEY) == b"\x92\x00\xa7billing"
    assert msgspec.msgpack.decode(encode_value(value)) == [
        0, 7, 5, 60_000, 0, 1, 0, [["orders", 0, UUID(int=1).bytes]], 3, 4, -1
    ]  # fmt: skip


def test_a_participant_names_its_log() -> None:
    assert ORDERS.log == LogId(UUID(int=1), 0)
