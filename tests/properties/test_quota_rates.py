"""A client that waits as it is told gets its quota in the long run, whatever the sizes it sends."""

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.engine.quotas.accounts import Account
from tests.support.tiers import sized

BURST_S = 1.0
SECONDS = 600

rates = st.integers(1_000, 10**8)
# In parts of what the quota allows in a second.
shares = st.lists(st.floats(0.001, 5), min_size=1, max_size=20)


@settings(max_examples=sized(200), deadline=None)
@given(rate=rates, sizes=shares, connections=st.integers(1, 5))
def test_who_always_has_more_to_send_gets_the_quota_and_no_more(
    rate: int, sizes: list[float], connections: int
) -> None:
    account = Account(rate * BURST_S, 0.0)
    free_at = [0.0] * connections
    sent = 0.0
    turn = 0
    while (now := min(free_at)) < SECONDS:
        size = sizes[turn % len(sizes)] * rate
        wait_s = account.take(size, rate, BURST_S, now)
        sent += size
        # The network takes its time too, but not more than what the burst makes up for.
        free_at[free_at.index(now)] = now + max(wait_s, min(sizes) / 2)
        turn += 1

    largest = max(sizes) * rate
    # Hundreds of thousands of sums round; a millionth of a second's worth is theirs.
    assert sent <= rate * (SECONDS + BURST_S + 1e-6) + connections * largest
    assert sent >= rate * SECONDS - connections * largest


@settings(max_examples=sized(200), deadline=None)
@given(rate=rates, gaps=st.lists(st.floats(0, 3), max_size=50))
def test_a_client_below_its_quota_never_waits(rate: int, gaps: list[float]) -> None:
    account = Account(rate * BURST_S, 0.0)
    now = 0.0
    for silent_s in gaps:
        now += silent_s
        affordable = min(silent_s, BURST_S) * rate

        assert account.take(affordable * 0.999, rate, BURST_S, now) < 1e-6


@settings(max_examples=sized(200), deadline=None)
@given(rate=rates, asked=st.lists(st.tuples(st.floats(0, 100), st.floats(0, 10)), max_size=50))
def test_what_is_used_in_any_stretch_is_the_quota_a_burst_and_what_is_due(
    rate: int, asked: list[tuple[float, float]]
) -> None:
    account = Account(rate * BURST_S, 0.0)
    now, used = 0.0, 0.0
    for silent_s, share in asked:
        now += silent_s
        wait_s = account.take(share * rate, rate, BURST_S, now)
        used += share * rate

        assert used <= rate * (now + BURST_S + wait_s) * (1 + 1e-9)
