"""Checks subscription specifications, and converts them to and from their stored form. Pure."""

from millstream.control.catalog import Catalog, Topic
from millstream.engine.filters.filter import parse
from millstream.engine.partitions.slices import (
    AtMaxTimestamp,
    AtTime,
    Earliest,
    LastRecords,
    Latest,
)
from millstream.engine.publish.subjects import Pattern, Style
from millstream.engine.push.values import AtOffset, Start, SubscriptionSpec
from millstream.errors.deliveries import InvalidSubscription
from millstream.internal_topics.deliveries import FlowPolicy, RetryPolicy, SubscriptionValue
from millstream.model import topic_name
from millstream.names import (
    FLUX_DURABLE_PREFIX,
    FLUX_GROUP_PREFIX,
    INTERNAL_PREFIX,
    INTERNAL_TOPICS,
)

NAME_LENGTH_MAX = 1_024
TOPICS_MAX = 1_000
WINDOW_MAX = 100_000
BURST_MAX = 10**9
RATE_MIN, RATE_MAX = 0.001, 10**9  # Records a second.
DELAY_MS_MAX = 2**53  # Effectively unlimited; exact as a float too.
MULTIPLIER_MAX = 100  # Its largest power, with `BACKOFF_EXPONENT_MAX`, is a finite float.

_STARTS: dict[str, type[Start]] = {
    "earliest": Earliest,
    "latest": Latest,
    "time": AtTime,
    "max timestamp": AtMaxTimestamp,
    "last": LastRecords,
    "offset": AtOffset,
}


def check_spec(spec: SubscriptionSpec) -> None:
    """Raise `InvalidSubscription`, `InvalidTopicName` or `InvalidFilter` for an invalid one."""
    name = spec.name
    if name is not None:
        if not 1 <= len(name) <= NAME_LENGTH_MAX:
            raise InvalidSubscription(f"a name has 1 to {NAME_LENGTH_MAX} characters")
        if name.startswith(INTERNAL_PREFIX):
            raise InvalidSubscription(f"names that begin with {INTERNAL_PREFIX} are the broker's")
    if spec.pattern is None and not spec.topics:
        raise InvalidSubscription("a subscription needs a pattern or topics")
    if len(spec.topics) > TOPICS_MAX:
        raise InvalidSubscription(f"{len(spec.topics)} topics, at most {TOPICS_MAX}")
    for topic in spec.topics:
        topic_name(topic)
    if spec.filter is not None:
        parse(spec.filter)
    _check_retry(spec.retry)
    check_flow(spec.flow)


def check_flow(flow: FlowPolicy) -> None:
    """Raise `InvalidSubscription` for a policy that lets nothing through, or too much."""
    _check_within(
        window=(flow.window, 1, WINDOW_MAX),
        buffer=(flow.buffer, 1, WINDOW_MAX),
        burst=(flow.burst, 1, BURST_MAX),
        rate=(RATE_MIN if flow.rate is None else flow.rate, RATE_MIN, RATE_MAX),
    )


def _check_retry(retry: RetryPolicy) -> None:
    _check_within(
        ack_timeout_ms=(retry.ack_timeout_ms, 1, DELAY_MS_MAX),
        retry_delay_ms=(retry.retry_delay_ms, 0, DELAY_MS_MAX),
        retry_delay_ms_max=(retry.retry_delay_ms_max, 0, DELAY_MS_MAX),
        multiplier=(retry.multiplier, 1, MULTIPLIER_MAX),
        jitter=(retry.jitter, 0, 1),
    )
    if retry.dead_letter_topic is not None:
        topic_name(retry.dead_letter_topic.replace("{topic}", "t"))


def _check_within(**bounds: tuple[float, float, float]) -> None:
    for name, (value, least, most) in bounds.items():
        if not least <= value <= most:
            raise InvalidSubscription(f"{name} = {value}, it must be in {least} to {most}")


def stored(spec: SubscriptionSpec, *, principal: str, now_ms: int) -> SubscriptionValue:
    start = next(word for word, kind in _STARTS.items() if isinstance(spec.start, kind))
    number = 0
    match spec.start:
        case AtTime(timestamp_ms):
            number = timestamp_ms
        case LastRecords(count):
            number = count
        case AtOffset(offset):
            number = offset
    return SubscriptionValue(
        pattern=None if spec.pattern is None else spec.pattern.text,
        style=Style.DOT.name if spec.pattern is None else spec.pattern.style.name,
        topics=spec.topics,
        start=start,
        start_number=number,
        filter=spec.filter,
        acks=spec.acks,
        created_ms=now_ms,
        principal=principal,
        retry=spec.retry,
        flow=spec.flow,
    )


def restored(name: str, value: SubscriptionValue, *, is_durable: bool = True) -> SubscriptionSpec:
    kind = _STARTS[value.start]
    is_bare = kind in (Earliest, Latest, AtMaxTimestamp)
    pattern = value.pattern
    return SubscriptionSpec(
        name=name,
        is_durable=is_durable,
        pattern=None if pattern is None else Pattern.parse(pattern, Style[value.style]),
        topics=value.topics,
        start=kind() if is_bare else kind(value.start_number),  # type: ignore[call-arg]  # By kind.
        filter=value.filter,
        acks=value.acks,
        retry=value.retry,
        flow=value.flow,
    )


def group_of(spec: SubscriptionSpec) -> str | None:
    """The group whose right a member needs: of a Flux group or durable name its client's word,
    so that the same ACL counts for every protocol."""
    if spec.name is None or spec.pattern is None:
        return spec.name
    for prefix in (FLUX_GROUP_PREFIX, FLUX_DURABLE_PREFIX):
        whole = f"{prefix}{spec.pattern.text}:"
        if spec.name.startswith(whole):
            return spec.name.removeprefix(whole)
    return spec.name


def topics_of(spec: SubscriptionSpec, catalog: Catalog) -> list[Topic]:
    """The existing topics that may hold records of a subscription."""
    if spec.topics:
        names = set(spec.topics)
        return [topic for topic in catalog.topics() if topic.name in names]
    pattern = spec.pattern
    assert pattern is not None
    # A view shows records that its base shows already.
    return [
        topic
        for topic in catalog.topics()
        if topic.name not in INTERNAL_TOPICS and not topic.is_view and pattern.may_be_in(topic.name)
    ]
