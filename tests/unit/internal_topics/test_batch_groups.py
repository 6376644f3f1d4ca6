"""Batch groups: every state meets every event, and a batch is committed whole or not at all."""

from itertools import product

import msgspec
import pytest

from millstream.errors import InvalidTransactionState, ProducerFenced, RequestError
from millstream.internal_topics.batch_groups import (
    TRANSITIONS,
    BatchGroupsState,
    BatchGroupValue,
    Changes,
    Ending,
    GroupEvent,
    GroupState,
    aborted,
    begun,
    check_open,
    committed,
    encode_group_key,
    encode_group_value,
    group_of,
    home_of,
    unknown,
)
from millstream.internal_topics.transactions import TransactionState, TransactionValue, encode_key
from millstream.model import Producer
from millstream.names import BATCH_MEMBER_MARK

GROUP = "spark:orders"
NOW = 1_000
ONE, TWO = f"{GROUP}{BATCH_MEMBER_MARK}3~7.0.0", f"{GROUP}{BATCH_MEMBER_MARK}3~7.1.1"


def group(state: GroupState = GroupState.OPEN, *, last: int = 6) -> BatchGroupValue:
    return BatchGroupValue(
        term=3, state=state, changed_ms=0, series="query", last_committed_batch=last
    )


def member(
    producer_id: int = 1, state: TransactionState = TransactionState.ONGOING
) -> TransactionValue:
    return TransactionValue(
        producer_id=producer_id, epoch=0, timeout_ms=60_000, changed_ms=0, state=state
    )


def ending(*names: str, term: int = 3, series: str = "query", batch_id: int = 7) -> Ending:
    return Ending(term, series, batch_id, {n: Producer(at, 0) for at, n in enumerate(names, 1)})


def commit(before: BatchGroupValue, members: dict[str, TransactionValue], asked: Ending) -> Changes:
    return committed(GROUP, before, members, ending=asked, now_ms=NOW)


def abort(before: BatchGroupValue, members: dict[str, TransactionValue], asked: Ending) -> Changes:
    return aborted(GROUP, before, members, ending=asked, now_ms=NOW)


def states(changes: Changes) -> dict[str, TransactionState | None]:
    return {name: value and value.state for name, value in changes.members.items()}  # type: ignore[misc]


# -- the table -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("state", "event"), list(product(GroupState, GroupEvent)))
def test_a_group_goes_where_the_table_says_and_nowhere_else(
    state: GroupState, event: GroupEvent
) -> None:
    # The batch in question is the one that a committed group has committed.
    before = group(state, last=7 if state is GroupState.COMMITTED else 6)
    steps = {
        GroupEvent.BEGUN: lambda: begun(GROUP, before, {}, now_ms=NOW),
        GroupEvent.COMMITTED: lambda: commit(before, {}, ending()),
        GroupEvent.ABORTED: lambda: abort(before, {}, ending()),
    }

    expected = TRANSITIONS.get((state, event))

    if expected is None:
        with pytest.raises(InvalidTransactionState):
            steps[event]()
    else:
        assert steps[event]().group.state is expected


@pytest.mark.parametrize("state", GroupState)
def test_only_the_latest_term_can_end_anything(state: GroupState) -> None:
    for step in (commit, abort):
        for term in (2, 4):
            with pytest.raises(ProducerFenced):
                step(group(state), {}, ending(term=term))


# -- committing ------------------------------------------------------------------------------------


def test_a_commit_takes_the_named_members_and_aborts_all_others() -> None:
    changes = commit(group(), {ONE: member(), TWO: member(2)}, ending(ONE))

    assert changes.group.last_committed_batch == 7
    assert states(changes) == {
        ONE: TransactionState.PREPARE_COMMIT,
        TWO: TransactionState.PREPARE_ABORT,
    }


def test_an_aborted_member_is_fenced_and_a_committed_one_keeps_its_epoch() -> None:
    changes = commit(group(), {ONE: member(), TWO: member(2)}, ending(ONE))

    assert {name: value and value.epoch for name, value in changes.members.items()} == {
        ONE: 0,
        TWO: 1,
    }


@pytest.mark.parametrize("state", list(TransactionState))
def test_a_named_member_in_any_other_state_has_the_whole_commit_refused(
    state: TransactionState,
) -> None:
    members = {ONE: member(), TWO: member(2, state)}

    if state in {TransactionState.ONGOING, TransactionState.EMPTY}:
        assert commit(group(), members, ending(ONE, TWO)).group.state is GroupState.COMMITTED
    else:
        with pytest.raises(InvalidTransactionState):
            commit(group(), members, ending(ONE, TWO))


def test_a_named_member_that_is_gone_has_the_whole_commit_refused() -> None:
    with pytest.raises(InvalidTransactionState):
        commit(group(), {ONE: member()}, ending(ONE, TWO))


def test_a_named_member_of_another_producer_has_the_whole_commit_refused() -> None:
    with pytest.raises(ProducerFenced):
        commit(group(), {ONE: member(), TWO: member(9)}, ending(ONE, TWO))


def test_a_commit_asked_again_changes_nothing() -> None:
    before = group(GroupState.COMMITTED, last=7)

    assert commit(before, {}, ending(ONE)) == Changes(before, {})


def test_a_term_commits_one_batch() -> None:
    with pytest.raises(InvalidTransactionState):
        commit(group(GroupState.COMMITTED, last=7), {}, ending(batch_id=8))


def test_a_batch_of_an_earlier_term_is_not_committed_again() -> None:
    changes = commit(group(last=7), {ONE: member()}, ending(ONE))

    assert changes.group == msgspec.structs.replace(
        group(last=7), state=GroupState.COMMITTED, changed_ms=NOW
    )
    assert states(changes) == {ONE: TransactionState.PREPARE_ABORT}


def test_a_new_series_starts_over() -> None:
    changes = commit(group(last=50), {ONE: member()}, ending(ONE, series="other", batch_id=0))

    assert changes.group.last_committed_batch == 0
    assert changes.group.series == "other"
    assert states(changes) == {ONE: TransactionState.PREPARE_COMMIT}


# -- aborting and beginning ------------------------------------------------------------------------


def test_an_abort_after_the_commit_is_refused() -> None:
    with pytest.raises(InvalidTransactionState):
        abort(group(GroupState.COMMITTED, last=7), {}, ending())


def test_an_abort_of_a_batch_that_an_earlier_term_committed_is_refused() -> None:
    with pytest.raises(InvalidTransactionState):
        abort(group(last=7), {ONE: member()}, ending())


@pytest.mark.parametrize(
    ("state", "after"),
    [
        (TransactionState.EMPTY, {ONE: None}),
        (TransactionState.ONGOING, {ONE: TransactionState.PREPARE_ABORT}),
        (TransactionState.PREPARE_COMMIT, {}),
        (TransactionState.PREPARE_ABORT, {}),
        (TransactionState.COMPLETE_COMMIT, {ONE: None}),
        (TransactionState.COMPLETE_ABORT, {ONE: None}),
    ],
)
def test_a_new_term_and_an_abort_end_what_is_open_and_forget_the_rest(
    state: TransactionState, after: dict[str, TransactionState | None]
) -> None:
    members = {ONE: member(state=state)}

    assert states(begun(GROUP, group(), members, now_ms=NOW)) == after
    assert states(abort(group(), members, ending())) == after


def test_a_new_term_remembers_the_latest_batch() -> None:
    changes = begun(GROUP, group(GroupState.COMMITTED), {}, now_ms=NOW)

    assert (changes.group.term, changes.group.series) == (4, "query")
    assert changes.group.last_committed_batch == 6


# -- names -----------------------------------------------------------------------------------------


def test_a_group_and_its_members_have_one_home_and_other_ids_their_own() -> None:
    assert home_of(ONE) == home_of(TWO) == home_of(GROUP) == GROUP
    assert (group_of(ONE), group_of(GROUP)) == (GROUP, None)
    assert home_of("spark:app/1.0") == "spark:app/1.0"


@pytest.mark.parametrize("suffix", ["2~7.0.0", "4~7.0.0", "x~7", "", "~", "-3~1", "٣~1"])
def test_a_member_of_another_term_is_fenced(suffix: str) -> None:
    with pytest.raises(ProducerFenced):
        check_open(f"{GROUP}{BATCH_MEMBER_MARK}{suffix}", group())


@pytest.mark.parametrize("state", GroupState)
def test_a_member_may_begin_only_while_its_term_is_open(state: GroupState) -> None:
    def is_admitted() -> bool:
        try:
            check_open(ONE, group(state))
        except RequestError:
            return False
        return True

    assert is_admitted() is (state is GroupState.OPEN)


def test_a_group_that_was_never_begun_has_no_members() -> None:
    with pytest.raises(ProducerFenced):
        check_open(f"{GROUP}{BATCH_MEMBER_MARK}0~1", unknown(NOW))


# -- the fold --------------------------------------------------------------------------------------


def test_the_fold_keeps_the_latest_value_and_forgets_what_is_taken_away() -> None:
    fold = BatchGroupsState()

    assert fold.apply(encode_group_key(GROUP), encode_group_value(group(last=1)))
    assert fold.apply(encode_group_key(GROUP), encode_group_value(group(last=2)))
    assert fold.find(GROUP) == group(last=2)
    assert fold.apply(encode_group_key(GROUP), None)
    assert len(fold) == 0


def test_the_fold_leaves_transactions_alone() -> None:
    fold = BatchGroupsState()

    assert not fold.apply(encode_key(GROUP), b"")
    assert not fold.apply(b"nonsense", b"")
    assert not fold.apply(None, None)
