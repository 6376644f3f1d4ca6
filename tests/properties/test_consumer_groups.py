"""A consumer group under members that come, go, crash, stall and miss answers, in any order.

Whatever happens: no partition is read by two members that are in the group at once, members that
keep beating come to rest, and then every partition of a topic that is wanted is read.
"""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from millstream.engine.groups.consumer.reconciliation import AWAY
from millstream.engine.groups.consumer.vocabulary import ConsumersState
from millstream.errors import RequestError
from tests.support.consumers import Hall, Reader, Topics
from tests.support.tiers import sized

NAMES = ["a", "b", "c"]
READERS_MAX = 5
# Everyone may have to wait for everyone else, and topics may have changed once more.
ROUNDS_MAX = 4 * READERS_MAX

indexes = st.integers(0, 30)
subscriptions = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True)
assignors = st.sampled_from([None, "uniform", "range"])


class Consumers(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.hall = Hall(Topics(a=3, b=2))
        self.readers: list[Reader] = []  # Those whose process lives and thinks that it is in.
        self.made = 0

    # -- what members do -----------------------------------------------------------------------

    @precondition(lambda self: len(self.readers) < READERS_MAX)
    @rule(names=subscriptions, assignor=assignors, pattern=st.sampled_from([None, ".", "[bc]"]))
    def one_comes(self, names: list[str], assignor: str | None, pattern: str | None) -> None:
        self._admit(Reader(self.hall, self._new_id(), *names, assignor=assignor, pattern=pattern))

    @precondition(lambda self: len(self.readers) < READERS_MAX)
    @rule(names=subscriptions, instance=st.sampled_from(["i", "j"]))
    def a_static_one_comes(self, names: list[str], instance: str) -> None:
        self._admit(Reader(self.hall, self._new_id(), *names, instance_id=instance))

    @precondition(lambda self: self.readers)
    @rule(index=indexes, is_answer_lost=st.booleans(), is_slow=st.booleans())
    def one_beats(self, index: int, is_answer_lost: bool, is_slow: bool) -> None:
        self._beat(self._pick(index), is_answer_lost=is_answer_lost, is_slow=is_slow)

    @rule()
    def all_beat(self) -> None:
        for reader in list(self.readers):
            self._beat(reader)

    @precondition(lambda self: self.readers)
    @rule(index=indexes, names=subscriptions)
    def one_wants_something_else(self, index: int, names: list[str]) -> None:
        reader = self._pick(index)
        self._beat(reader, names=tuple(names))

    @precondition(lambda self: self.readers)
    @rule(index=indexes, will_be_back=st.booleans())
    def one_leaves(self, index: int, will_be_back: bool) -> None:
        reader = self._pick(index)
        self.readers.remove(reader)
        is_static = reader.joining.instance_id is not None
        try:
            reader.leave(AWAY if will_be_back and is_static else -1)
        except RequestError:
            assert not self._is_in(reader)

    @precondition(lambda self: self.readers)
    @rule(index=indexes)
    def one_crashes(self, index: int) -> None:
        self.readers.remove(self._pick(index))

    # -- what happens to them ------------------------------------------------------------------

    @rule(span_ms=st.sampled_from([1, 5_000, 44_999, 45_000, 61_000]))
    def time_passes(self, span_ms: int) -> None:
        self.hall.pass_ms(span_ms)

    @rule()
    def the_broker_restarts(self) -> None:
        self.hall.restart()

    @rule(name=st.sampled_from(NAMES), count=st.integers(1, 6))
    def partitions_are_added(self, name: str, count: int) -> None:
        known = self.hall.topics.find(name)
        self.hall.topics.put(name, max(count, 0 if known is None else known[1]))

    @rule(name=st.sampled_from(NAMES))
    def a_topic_is_deleted(self, name: str) -> None:
        self.hall.topics.remove(name)

    @rule()
    def the_living_come_to_rest(self) -> None:
        # The dead go first: what they hold is not for others to read before that.
        for _ in range(10):
            self.hall.pass_ms(5_000)
            for reader in list(self.readers):
                self._beat(reader)
        for _ in range(ROUNDS_MAX):
            for reader in list(self.readers):
                self._beat(reader)
        at_rest = ConsumersState.STABLE if self.readers else ConsumersState.EMPTY
        assert self.hall.group.state is at_rest
        read = [partition for reader in self.readers for partition in reader.owned]
        names = {name for reader in self.readers for name in self._topics_of(reader)}
        present = [name for name in names if self.hall.topics.find(name)]
        expected = self.hall.topics.partitions(*present) if present else frozenset()
        assert sorted(read) == sorted(expected)

    # -- what must hold ------------------------------------------------------------------------

    @invariant()
    def no_two_members_read_a_partition(self) -> None:
        seen: dict[object, str] = {}
        for reader in self.readers:
            if self._is_in(reader):
                for partition in reader.owned:
                    assert seen.setdefault(partition, reader.member_id) == reader.member_id

    @invariant()
    def what_is_saved_is_what_is(self) -> None:
        stored = self.hall.stored
        ids = {member.member_id for member in self.hall.group.members}
        assert set(stored.subscriptions) == set(stored.targets) == set(stored.holdings) == ids

    def teardown(self) -> None:
        self.the_living_come_to_rest()

    # -- parts ---------------------------------------------------------------------------------

    def _new_id(self) -> str:
        self.made += 1
        return f"m{self.made}"

    def _pick(self, index: int) -> Reader:
        return self.readers[index % len(self.readers)]

    def _is_in(self, reader: Reader) -> bool:
        return any(m.member_id == reader.member_id for m in self.hall.group.members)

    def _topics_of(self, reader: Reader) -> frozenset[str]:
        return next(
            member.subscription.topics
            for member in self.hall.group.members
            if member.member_id == reader.member_id
        )

    def _admit(self, reader: Reader) -> None:
        try:
            reader.join()
        except RequestError:
            assert reader.joining.instance_id is not None  # Someone else is that instance.
        else:
            self.readers.append(reader)

    def _beat(self, reader: Reader, **changes: Any) -> None:
        """A member that is refused gives up what it has, as it must, and joins again."""
        try:
            reader.beat(**changes)
        except RequestError:
            self.readers.remove(reader)
            self._admit(reader)


Consumers.TestCase.settings = settings(
    deadline=None, max_examples=sized(100), stateful_step_count=40
)
TestConsumers = Consumers.TestCase
