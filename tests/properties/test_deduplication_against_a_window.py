"""Message ids against a naive window: a list of everything that was ever taken."""

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.engine.produce.message_ids import Copy, Place, Window
from millstream.settings import TopicSettings
from tests.support.tiers import sized

steps = st.lists(
    st.tuples(st.integers(0, 30), st.lists(st.integers(0, 12), min_size=1, max_size=5)), max_size=60
)


class Naive:
    def __init__(self, window_ms: int, count_max: int) -> None:
        self.window_ms = window_ms
        self.count_max = count_max
        self.taken: list[tuple[int, bytes]] = []

    def is_known(self, message_id: bytes, now_ms: int) -> bool:
        latest = self.taken[-self.count_max :]
        return any(id_then == message_id and now_ms - at < self.window_ms for at, id_then in latest)


@settings(max_examples=sized(300))
@given(steps, st.integers(1, 100), st.integers(1, 10))
def test_the_window_knows_what_a_naive_one_knows(
    plan: list[tuple[int, list[int]]], window_ms: int, count_max: int
) -> None:
    limits = TopicSettings(message_id_window_ms=window_ms, message_id_count_max=count_max)
    here = Place(0, 0)
    window, naive, now_ms = Window(), Naive(window_ms, count_max), 0
    for pause_ms, ids in plan:
        now_ms += pause_ms
        for number in ids:
            message_id = b"%d" % number
            copy = window.find(message_id, limits, now_ms=now_ms)
            assert (copy is not None) == naive.is_known(message_id, now_ms)
            if copy is None:
                window.add(message_id, Copy(now_ms, here, len(naive.taken)), limits)
                naive.taken.append((now_ms, message_id))
            else:
                assert naive.taken[copy.offset] == (copy.time_ms, message_id)
            assert len(window) <= count_max
