"""The coordinator's decisions under producers that lose answers, retry, are late, and overlap.

A model of the whole: clients, one transactional id, and logs of batches and markers. Whatever the
order of events, a record is seen exactly if its own transaction was committed, no epoch goes back,
and none is held by two clients.
"""

from uuid import UUID

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from millstream.errors import RequestError
from millstream.internal_topics.transaction_steps import (
    EPOCH_MAX,
    added,
    check_member,
    completed,
    ended,
    fenced,
    initialized,
    needs_producer_id,
)
from millstream.internal_topics.transactions import (
    NO_ID,
    Participant,
    TransactionsState,
    TransactionState,
    TransactionValue,
    encode_key,
    encode_value,
)
from millstream.model import NO_PRODUCER, Producer
from tests.support.tiers import sized

KEY = "billing"
PLACES = [Participant("orders", at, UUID(int=1)) for at in range(2)]
CLIENTS = st.integers(0, 1)


class Client:
    """A process with the id. `token` names its current transaction, for the model alone."""

    def __init__(self) -> None:
        self.producer = NO_PRODUCER
        self.token = -1


class Batch:
    def __init__(self, producer: Producer, token: int, place: Participant) -> None:
        self.producer, self.token, self.place = producer, token, place


class Transactions(RuleBasedStateMachine):
    is_v2 = True

    def __init__(self) -> None:
        super().__init__()
        self.value: TransactionValue | None = None
        self.clients = [Client(), Client()]
        self.now_ms = 0
        self.ids = iter(range(1, 10**6))
        self.tokens = iter(range(10**6))
        self.holders: dict[Producer, Client] = {}
        self.highest = NO_PRODUCER
        self.logs: dict[Participant, list[Batch | bool]] = {place: [] for place in PLACES}
        self.log_epochs: dict[tuple[Participant, int], int] = {}
        self.outcomes: dict[int, bool] = {}
        self.members: set[int] = set()  # The tokens in the transaction that is ongoing.
        self.unmarked: set[Participant] = set()
        self.late: list[Batch] = []

    # -- what the coordinator writes ---------------------------------------------------------------

    def write(self, value: TransactionValue) -> None:
        """Through its bytes, and with a look at every transition."""
        before, self.value = self.value, self._stored(value)
        if value.is_preparing and (before is None or not before.is_preparing):
            self.unmarked = set(value.participants)
            assert self.members.isdisjoint(self.outcomes), "a transaction was decided on twice"
            self.outcomes |= dict.fromkeys(self.members, value.commits)
            self.members = set()
        reached = Producer(value.producer_id, value.epoch)
        assert reached >= self.highest or reached.producer_id > self.highest.producer_id
        self.highest = max(self.highest, reached)
        assert 0 <= value.epoch <= EPOCH_MAX

    def _stored(self, value: TransactionValue) -> TransactionValue:
        state = TransactionsState()
        state.apply(encode_key(KEY), encode_value(value))
        stored = state.find(KEY)
        assert stored == value
        return stored

    def fresh_id(self) -> int:
        return next(self.ids) if needs_producer_id(self.value) else NO_ID

    def hold(self, client: Client, producer: Producer) -> None:
        assert self.holders.setdefault(producer, client) is client, "two hold one epoch"
        client.producer = producer

    # -- what clients do ---------------------------------------------------------------------------

    @rule(who=CLIENTS, keeps=st.booleans(), is_lost=st.booleans())
    def init(self, who: int, keeps: bool, is_lost: bool) -> None:
        client = self.clients[who]
        try:
            value = initialized(
                KEY,
                self.value,
                expected=client.producer if keeps else NO_PRODUCER,
                timeout_ms=100,
                fresh_id=self.fresh_id(),
                now_ms=self.now_ms,
            )
        except RequestError:
            return
        self.write(value)
        if not value.is_preparing and not is_lost:
            self.hold(client, value.producer)
            client.token = next(self.tokens)

    @rule(who=CLIENTS, place=st.sampled_from(PLACES), is_late=st.booleans())
    def produce(self, who: int, place: Participant, is_late: bool) -> None:
        client = self.clients[who]
        batch = Batch(client.producer, client.token, place)
        if is_late and self.is_v2:
            self.late.append(batch)
        else:
            self.deliver(batch)

    @precondition(lambda self: self.late)
    @rule(data=st.data())
    def deliver_late(self, data: st.DataObject) -> None:
        self.deliver(self.late.pop(data.draw(st.integers(0, len(self.late) - 1))))

    def deliver(self, batch: Batch) -> None:
        key = batch.place, batch.producer.producer_id
        try:
            value = added(
                KEY,
                self.value,
                batch.producer,
                {batch.place},
                participants_max=10,
                now_ms=self.now_ms,
            )
            if value is not self.value:
                self.write(value)
            check_member(KEY, self.value, batch.producer, batch.place)
        except RequestError:
            return
        if batch.producer.epoch < self.log_epochs.get(key, 0):
            return
        self.log_epochs[key] = batch.producer.epoch
        self.logs[batch.place].append(batch)
        self.members.add(batch.token)

    @rule(who=CLIENTS, commits=st.booleans(), is_lost=st.booleans())
    def end(self, who: int, commits: bool, is_lost: bool) -> None:
        client = self.clients[who]
        try:
            value = ended(
                KEY,
                self.value,
                client.producer,
                commits=commits,
                bumps=self.is_v2,
                fresh_id=self.fresh_id(),
                now_ms=self.now_ms,
            )
        except RequestError:
            return
        if value is not self.value:
            self.write(value)
        elif client.token in self.outcomes:
            assert self.outcomes[client.token] is commits, "an answer that is not true"
        # An older client that misses the answer asks for nothing else before it has one.
        if not (is_lost and self.is_v2):
            self.hold(client, value.producer)
            client.token = next(self.tokens)

    @rule(who=CLIENTS, commits=st.booleans(), place=st.sampled_from(PLACES), lost=st.booleans())
    def transact(self, who: int, commits: bool, place: Participant, lost: bool) -> None:
        """A whole transaction without a hitch, so that there are many of them."""
        self.finish()
        self.produce(who, place, is_late=False)
        self.end(who, commits, is_lost=lost)
        self.finish()

    def finish(self) -> None:
        if self.value is not None and self.value.is_preparing:
            for place in sorted(self.unmarked, key=lambda target: target.partition):
                self.mark(place)
            self.complete()

    # -- what the coordinator does by itself -------------------------------------------------------

    @rule(passed_ms=st.integers(1, 500))
    def wait(self, passed_ms: int) -> None:
        self.now_ms += passed_ms

    @precondition(lambda self: self.value and self.value.state is TransactionState.ONGOING)
    @rule()
    def time_out(self) -> None:
        assert self.value is not None
        self.write(fenced(KEY, self.value, now_ms=self.now_ms))

    @precondition(lambda self: self.value and self.value.is_preparing)
    @rule(place=st.sampled_from(PLACES))
    def mark(self, place: Participant) -> None:
        """Again, too: markers are repeated after a restart."""
        assert self.value is not None
        if place in self.value.participants:
            self.logs[place].append(self.value.commits)
            self.log_epochs[place, self.value.producer_id] = self.value.epoch
            self.unmarked.discard(place)

    @precondition(lambda self: self.value and self.value.is_preparing and not self.unmarked)
    @rule()
    def complete(self) -> None:
        assert self.value is not None
        self.write(completed(KEY, self.value, now_ms=self.now_ms))

    @precondition(
        lambda self: (
            self.value
            and self.value.state in (TransactionState.EMPTY, TransactionState.COMPLETE_ABORT)
        )
    )
    @rule(epoch=st.integers(EPOCH_MAX - 4, EPOCH_MAX - 2))
    def wear_out(self, epoch: int) -> None:
        """As if years had passed."""
        assert self.value is not None
        if self.value.epoch < epoch and self.now_ms > 2_000:
            worn_out = TransactionValue(
                producer_id=self.value.producer_id,
                epoch=epoch,
                timeout_ms=100,
                changed_ms=self.now_ms,
            )
            self.write(worn_out)

    # -- what must always be true ------------------------------------------------------------------

    @invariant()
    def every_record_is_ended_as_its_own_transaction_was(self) -> None:
        for log in self.logs.values():
            marker: bool | None = None
            for entry in reversed(log):
                if isinstance(entry, bool):
                    marker = entry
                elif marker is not None:
                    assert self.outcomes[entry.token] is marker

    @invariant()
    def what_is_open_is_in_the_transaction(self) -> None:
        """Or its marker would never be written."""
        for place, log in self.logs.items():
            if log and not isinstance(log[-1], bool):
                assert self.value is not None
                assert place in self.value.participants


class OlderClients(Transactions):
    """Without an epoch for each transaction: the same claims, as long as nothing is late."""

    is_v2 = False


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(max_examples=sized(150), stateful_step_count=40, deadline=None)
TestOlderClients = OlderClients.TestCase
TestOlderClients.settings = settings(max_examples=sized(100), stateful_step_count=40, deadline=None)
