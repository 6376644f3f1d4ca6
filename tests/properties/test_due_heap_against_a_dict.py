"""DueHeap delayed records against a dictionary of them."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from millstream.engine.delayed.due_heap import Due, DueHeap
from tests.support.tiers import sized


class PendingAgainstADict(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.due_heap = DueHeap()
        self.model: dict[int, Due] = {}
        self.number = -1
        self.now_ms = 0
        self.named: set[int] = set()

    @rule(steps=st.lists(st.tuples(st.integers(1, 3_000), st.integers(0, 100)), max_size=20))
    def add(self, steps: list[tuple[int, int]]) -> None:
        for step, delay_ms in steps:
            self.number += step
            due = Due(self.now_ms + delay_ms, self.number, step % 5)
            self.due_heap.add(due)
            self.model[self.number] = due

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from([*self.model, 0, 1, self.number + 1]))

        assert self.due_heap.find(number) == self.model.get(number)
        assert self.due_heap.remove(number) == self.model.pop(number, None)

    @rule(pause_ms=st.integers(0, 60), count_max=st.integers(1, 10))
    def next_due(self, pause_ms: int, count_max: int) -> None:
        self.now_ms += pause_ms
        due = sorted(item for item in self._unnamed() if item.due_ms <= self.now_ms)[:count_max]

        assert self.due_heap.next_due(self.now_ms, count_max=count_max) == due
        self.named |= {item.number for item in due}

    @rule(start=st.integers(-1, 50_000))
    def list_from(self, start: int) -> None:
        listed = [due for some in self.due_heap.after(start) for due in some]

        assert listed == [due for number, due in self.model.items() if number > start]

    @invariant()
    def counts_agree(self) -> None:
        assert len(self.due_heap) == len(self.model)
        soonest = self.due_heap.next_due_ms
        # One that was removed may still be there, which only costs a look.
        unnamed = self._unnamed()
        assert not unnamed or soonest is not None
        if soonest is not None and unnamed:
            assert soonest <= min(due.due_ms for due in unnamed)

    def _unnamed(self) -> list[Due]:
        return [due for due in self.model.values() if due.number not in self.named]


TestPending = PendingAgainstADict.TestCase
TestPending.settings = settings(max_examples=sized(60), stateful_step_count=40)
