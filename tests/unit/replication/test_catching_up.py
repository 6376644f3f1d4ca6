"""Bytes pass at the rate on average, in a burst no longer than a tenth of a second."""

from millstream.replication.peering.catching_up import Throttle


def test_bytes_pass_at_the_rate() -> None:
    throttle, now_ms, passed = Throttle(10_000), 1_000.0, 0
    while now_ms < 11_000:
        if not throttle.wait_ms(now_ms):
            throttle.spend(500, now_ms)
            passed += 500
        now_ms += 7

    assert 95_000 <= passed <= 102_000


def test_what_was_not_used_for_long_is_lost() -> None:
    throttle = Throttle(10_000)
    throttle.spend(1_000, 1_000_000)

    assert throttle.wait_ms(1_000_000) == 0  # A burst of 100 ms.
    throttle.spend(1_000, 1_000_000)
    assert throttle.wait_ms(1_000_000) == 100


def test_without_a_limit_nothing_waits() -> None:
    throttle = Throttle(0)
    throttle.spend(10**12, 0)

    assert throttle.wait_ms(0) == 0
