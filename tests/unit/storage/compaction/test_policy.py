"""What retention takes and what compaction would touch, as decisions on a few numbers."""

from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from millstream.settings import CleanupPolicy, Switch, TopicSettings
from millstream.storage.compaction.policy import (
    Cleaned,
    CompactionRange,
    SegmentFacts,
    compaction_range,
    next_due_ms,
    retention_start,
    should_seal,
)
from tests.support.tiers import sized

NOW_MS = 1_000_000
KEEP_ALL = TopicSettings(retention_ms=-1, retention_bytes=-1)
COMPACT = TopicSettings(cleanup_policy=CleanupPolicy.COMPACT)


def segments(*ages_ms: int | None, size: int = 100) -> list[SegmentFacts]:
    """Ten offsets each, newest record `age` old; None for records without a timestamp."""
    return [
        SegmentFacts(10 * at, 10 * at + 10, size, -1 if age is None else NOW_MS - age)
        for at, age in enumerate(ages_ms)
    ]


def start(
    sealed: list[SegmentFacts],
    settings: TopicSettings,
    *,
    limit_offset: int = 1_000,
    active_bytes: int = 0,
) -> int | None:
    return retention_start(
        sealed,
        active_bytes=active_bytes,
        limit_offset=limit_offset,
        now_ms=NOW_MS,
        settings=settings,
    )


def dirty(
    sealed: list[SegmentFacts],
    settings: TopicSettings = COMPACT,
    *,
    cleaned: Cleaned | None = None,
    limit_offset: int = 1_000,
) -> CompactionRange | None:
    return compaction_range(
        sealed,
        cleaned=cleaned or Cleaned(),
        limit_offset=limit_offset,
        now_ms=NOW_MS,
        settings=settings,
    )


# -- retention -------------------------------------------------------------------------------------


def test_without_limits_everything_stays() -> None:
    assert start(segments(900_000, 800_000), KEEP_ALL) is None


def test_segments_past_their_age_go() -> None:
    settings = TopicSettings(retention_ms=500)

    assert start(segments(900, 501, 500, 10), settings) == 20


def test_an_old_segment_behind_a_young_one_stays() -> None:
    settings = TopicSettings(retention_ms=500)

    assert start(segments(900, 10, 900), settings) == 10


def test_a_segment_from_the_future_stays() -> None:
    assert start(segments(-10_000), TopicSettings(retention_ms=0)) is None


def test_a_segment_of_unknown_age_goes_with_an_expired_one_behind_it() -> None:
    settings = TopicSettings(retention_ms=500)

    assert start(segments(None, None, 900, None), settings) == 30
    assert start(segments(None, None, 10), settings) is None
    assert start(segments(None), settings) is None


def test_segments_go_while_the_rest_holds_the_wanted_size() -> None:
    sealed = segments(1, 1, 1, 1)

    assert start(sealed, TopicSettings(retention_bytes=250)) == 10
    assert start(sealed, TopicSettings(retention_bytes=200)) == 20
    assert start(sealed, TopicSettings(retention_bytes=400)) is None
    assert start(sealed, TopicSettings(retention_bytes=0)) == 40


def test_the_active_segment_counts_for_the_size() -> None:
    sealed = segments(1, 1, 1, 1)

    assert start(sealed, TopicSettings(retention_bytes=250), active_bytes=100) == 20


def test_the_stricter_of_age_and_size_decides() -> None:
    sealed = segments(900, 900, 1, 1)

    assert start(sealed, TopicSettings(retention_ms=500, retention_bytes=100)) == 30
    assert start(sealed, TopicSettings(retention_ms=500, retention_bytes=400)) == 20


def test_nothing_goes_that_is_not_committed() -> None:
    settings = TopicSettings(retention_ms=500, retention_bytes=0)

    assert start(segments(900, 900, 900), settings, limit_offset=29) == 20
    assert start(segments(900, 900, 900), settings, limit_offset=30) == 30
    assert start(segments(900), settings, limit_offset=0) is None


def test_a_compacted_topic_has_no_retention() -> None:
    settings = TopicSettings(cleanup_policy=CleanupPolicy.COMPACT, retention_ms=0)

    assert start(segments(900), settings) is None


@hypothesis_settings(deadline=None)
@given(
    st.lists(st.tuples(st.none() | st.integers(-500, 2_000), st.integers(0, 200)), max_size=8),
    st.integers(-1, 2_000),
    st.integers(-1, 2_000),
    st.integers(0, 100),
    st.integers(0, 300),
)
def test_retention_never_takes_more_than_it_was_asked_to(
    shapes: list[tuple[int | None, int]],
    retention_ms: int,
    retention_bytes: int,
    limit_offset: int,
    active_bytes: int,
) -> None:
    sealed = [
        SegmentFacts(10 * at, 10 * at + 10, size, -1 if age is None else NOW_MS - age)
        for at, (age, size) in enumerate(shapes)
    ]
    settings = TopicSettings(retention_ms=retention_ms, retention_bytes=retention_bytes)

    new_start = start(sealed, settings, limit_offset=limit_offset, active_bytes=active_bytes)

    gone = [segment for segment in sealed if segment.end_offset <= (new_start or 0)]
    kept_bytes = active_bytes + sum(segment.size for segment in sealed[len(gone) :])
    all_old = retention_ms >= 0 and all(
        segment.max_timestamp < 0 or NOW_MS - segment.max_timestamp > retention_ms
        for segment in gone
    )
    assert new_start is None or new_start in {segment.end_offset for segment in sealed}
    assert all(segment.end_offset <= limit_offset for segment in gone)
    assert not gone or all_old or 0 <= retention_bytes <= kept_bytes


# -- sealing a quiet segment -----------------------------------------------------------------------


def test_a_quiet_segment_is_sealed_when_its_records_are_past_retention() -> None:
    settings = TopicSettings(retention_ms=500)

    assert should_seal(SegmentFacts(0, 10, 100, NOW_MS - 501), now_ms=NOW_MS, settings=settings)
    assert not should_seal(SegmentFacts(0, 10, 100, NOW_MS - 9), now_ms=NOW_MS, settings=settings)
    assert not should_seal(SegmentFacts(0, 0, 0, -1), now_ms=NOW_MS, settings=settings)


def test_a_quiet_segment_is_sealed_for_compaction_at_its_age_limit() -> None:
    settings = TopicSettings(cleanup_policy=CleanupPolicy.COMPACT, segment_ms=500, retention_ms=0)

    assert should_seal(SegmentFacts(0, 10, 100, NOW_MS - 501), now_ms=NOW_MS, settings=settings)
    assert not should_seal(SegmentFacts(0, 10, 100, NOW_MS - 9), now_ms=NOW_MS, settings=settings)


def test_a_quiet_segment_that_is_kept_for_ever_stays_open() -> None:
    active = SegmentFacts(0, 10, 100, 0)

    assert not should_seal(active, now_ms=NOW_MS, settings=KEEP_ALL)


# -- compaction ------------------------------------------------------------------------------------


def test_a_log_never_compacted_is_dirty_from_its_start() -> None:
    assert dirty(segments(9, 9)) == CompactionRange(0, 20)


def test_a_log_is_compacted_when_enough_of_it_is_dirty() -> None:
    sealed = segments(9, 9, 9, 9)

    assert dirty(sealed, cleaned=Cleaned(20)) == CompactionRange(20, 40)
    assert dirty(sealed, cleaned=Cleaned(30)) is None


def test_nothing_dirty_is_nothing_to_do_even_at_ratio_zero() -> None:
    settings = TopicSettings(cleanup_policy=CleanupPolicy.COMPACT, min_cleanable_dirty_ratio=0.0)

    assert dirty(segments(9, 9), settings, cleaned=Cleaned(20)) is None
    assert dirty([], settings) is None


def test_tombstones_that_are_due_are_reason_enough() -> None:
    sealed = segments(9, 9)

    assert dirty(sealed, cleaned=Cleaned(20, NOW_MS)) == CompactionRange(20, 20)
    assert dirty(sealed, cleaned=Cleaned(20, NOW_MS + 1)) is None


def test_young_segments_wait_out_the_compaction_lag() -> None:
    settings = TopicSettings(cleanup_policy=CleanupPolicy.COMPACT, min_compaction_lag_ms=500)

    assert dirty(segments(500, 499, 900), settings) == CompactionRange(0, 10)
    assert dirty(segments(499, 900), settings) is None
    assert dirty(segments(None, 900), settings) == CompactionRange(0, 20)


def test_without_a_lag_records_from_the_future_are_compacted_too() -> None:
    assert dirty(segments(-10_000)) == CompactionRange(0, 10)


def test_a_limit_that_is_not_known_again_since_a_restart_is_waited_for() -> None:
    assert dirty(segments(9, 9), cleaned=Cleaned(20, 1), limit_offset=10) is None


def test_only_what_is_stable_is_compacted() -> None:
    assert dirty(segments(9, 9, 9), limit_offset=29) == CompactionRange(0, 20)
    assert dirty(segments(9), limit_offset=9) is None


def test_a_segment_that_is_clean_in_part_counts_as_dirty() -> None:
    assert dirty(segments(9, 9), cleaned=Cleaned(15)) == CompactionRange(15, 20)


def test_a_topic_that_does_not_compact_is_left_alone() -> None:
    assert dirty(segments(9, 9), TopicSettings()) is None


# -- time to live ----------------------------------------------------------------------------------


def test_a_topics_time_to_live_takes_segments_like_its_retention() -> None:
    settings = TopicSettings(retention_ms=10_000, message_ttl_ms=500)

    assert start(segments(900, 600, 400), settings) == 20
    assert start(segments(900), TopicSettings(retention_ms=-1, message_ttl_ms=500)) == 10
    assert start(segments(900), TopicSettings(retention_ms=500, message_ttl_ms=10_000)) == 10


def test_a_compacted_topic_loses_no_segment_to_its_time_to_live() -> None:
    settings = TopicSettings(cleanup_policy=CleanupPolicy.COMPACT, message_ttl_ms=500)

    assert start(segments(900), settings) is None
    assert should_seal(segments(900)[0], now_ms=NOW_MS, settings=settings)
    assert not should_seal(segments(400)[0], now_ms=NOW_MS, settings=settings)


def test_a_log_whose_records_have_their_own_times_is_rewritten_like_a_compacted_one() -> None:
    settings = TopicSettings(message_ttl_headers=Switch.ON)

    assert dirty(segments(900, 800), settings) == CompactionRange(0, 20)
    assert dirty(segments(900, 800), TopicSettings(message_ttl_ms=5)) is None
    assert dirty(segments(900), settings, cleaned=Cleaned(10, NOW_MS + 1)) is None
    assert dirty(segments(900), settings, cleaned=Cleaned(10, NOW_MS)) is not None


# -- the latest time of compaction ----------------------------------------------------------------


def test_a_segment_that_waited_long_enough_is_compacted_though_little_is_dirty() -> None:
    settings = TopicSettings(cleanup_policy=CleanupPolicy.COMPACT, max_compaction_lag_ms=1_000)
    sealed = segments(9_000, 9_000, 9_000, 500)

    # Half of the lag passes in the segment, the other half behind it.
    assert dirty(sealed, settings, cleaned=Cleaned(end_offset=30)) == CompactionRange(30, 40)
    assert dirty(sealed, COMPACT, cleaned=Cleaned(end_offset=30)) is None
    young = segments(9_000, 9_000, 9_000, 499)
    assert dirty(young, settings, cleaned=Cleaned(end_offset=30)) is None


def test_an_idle_compacted_log_is_sealed_in_time_for_compaction() -> None:
    settings = TopicSettings(cleanup_policy=CleanupPolicy.COMPACT, max_compaction_lag_ms=1_000)

    assert should_seal(segments(501)[0], now_ms=NOW_MS, settings=settings)
    assert not should_seal(segments(500)[0], now_ms=NOW_MS, settings=settings)
    assert not should_seal(segments(501)[0], now_ms=NOW_MS, settings=COMPACT)


def test_without_a_cleanup_policy_nothing_goes() -> None:
    settings = TopicSettings(cleanup_policy=CleanupPolicy.NONE, retention_ms=1, retention_bytes=1)

    assert start(segments(900, 800), settings) is None
    assert dirty(segments(900, 800), settings) is None


# -- the next deadline -------------------------------------------------------------------------


@hypothesis_settings(max_examples=sized(300), deadline=None)
@given(
    ages_ms=st.lists(st.none() | st.integers(0, 100), max_size=4),
    active_ms=st.none() | st.integers(-1, 100),
    retention_ms=st.sampled_from([-1, 10, 50]),
    ttl_ms=st.sampled_from([-1, 20]),
    policy=st.sampled_from(CleanupPolicy),
    segment_ms=st.sampled_from([5, 60, 10_000]),
)
def test_nothing_is_due_by_age_before_the_next_deadline_and_something_is_then(
    ages_ms: list[int | None],
    active_ms: int | None,
    retention_ms: int,
    ttl_ms: int,
    policy: CleanupPolicy,
    segment_ms: int,
) -> None:
    settings = TopicSettings(
        retention_ms=retention_ms,
        message_ttl_ms=ttl_ms,
        cleanup_policy=policy,
        segment_ms=segment_ms,
    )
    sealed = segments(*ages_ms)
    active = None
    if active_ms is not None:
        timestamp = -1 if active_ms < 0 else NOW_MS - active_ms
        active = SegmentFacts(1_000, 1_010, 100, timestamp)

    def is_due(now_ms: int) -> bool:
        expired = retention_start(
            sealed, active_bytes=0, limit_offset=2_000, now_ms=now_ms, settings=settings
        )
        seals = active is not None and should_seal(active, now_ms=now_ms, settings=settings)
        return seals or expired is not None

    due_ms = next_due_ms(sealed, active, settings=settings)

    times = range(NOW_MS - 200, NOW_MS + 200)
    assert [at for at in times if is_due(at)] == [at for at in times if due_ms and at >= due_ms]
