"""Trace contexts in headers of HTTP and in the bytes of a batch."""

import sys

import pytest

from millstream.codec.batch import HEADER_BYTES
from millstream.codec.encoding import encode_batch
from millstream.codec.records import Record
from millstream.tracing.settings import Tracing
from millstream.tracing.spans import (
    LINKS_MAX,
    TraceContext,
    _find_name,
    read_traceparent,
    sampled_contexts,
)

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CONTEXT = TraceContext(int(TRACE, 16), int(SPAN, 16))


def payload(*headers: tuple[tuple[str, bytes], ...]) -> bytes:
    records = [Record(at, 0, b"k", b"v" * 50, each) for at, each in enumerate(headers)]
    return encode_batch(records)[HEADER_BYTES:]


def parent(trace: str = TRACE, span: str = SPAN, flags: str = "01") -> tuple[str, bytes]:
    return "traceparent", f"00-{trace}-{span}-{flags}".encode()


@pytest.mark.parametrize(
    ("text", "context"),
    [
        (f"00-{TRACE}-{SPAN}-01", CONTEXT),
        (f" 00-{TRACE}-{SPAN}-03 ", CONTEXT),
        (f"00-{TRACE}-{SPAN}-00", CONTEXT._replace(is_sampled=False)),
        (f"01-{TRACE}-{SPAN}-01-more", CONTEXT),
        (f"00-{TRACE}-{SPAN}-01-more", None),
        (f"ff-{TRACE}-{SPAN}-01", None),
        (f"00-{TRACE.upper()}-{SPAN}-01", None),
        (f"00-{'0' * 32}-{SPAN}-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        ("", None),
        ("00-1-2-01", None),
    ],
)
def test_a_header_of_http_is_read_as_w3c_has_it(text: str, context: TraceContext | None) -> None:
    assert read_traceparent(text) == context


def test_a_batch_without_a_context_has_none() -> None:
    assert sampled_contexts(payload((), (("x", b"traceparent"),))) is None


def test_sampled_contexts_are_read_without_the_others() -> None:
    other = parent(span="00f067aa0ba902b7")
    data = payload((("a", b"b"), parent()), (), (parent(flags="00"),), (other,), (parent(),))

    contexts = sampled_contexts(data)

    assert contexts == [CONTEXT, CONTEXT._replace(span_id=0x00F067AA0BA902B7)]


def test_contexts_that_no_client_sampled_are_no_contexts_but_are_there() -> None:
    assert sampled_contexts(payload((parent(flags="00"),))) == []
    assert sampled_contexts(payload((parent(trace="0" * 32),))) == []
    assert sampled_contexts(payload((parent(trace="_" * 32),), (parent(trace=" " * 32),))) == []


@pytest.mark.parametrize("has_library", [True, False])
def test_a_large_batch_is_searched_with_and_without_the_library(
    monkeypatch: pytest.MonkeyPatch, has_library: bool
) -> None:
    if not has_library:
        monkeypatch.setitem(sys.modules, "re2", None)
    _find_name.cache_clear()
    records: list[tuple[tuple[str, bytes], ...]] = [()] * 100
    try:
        assert sampled_contexts(payload(*records)) is None
        assert sampled_contexts(payload(*records, (parent(),))) == [CONTEXT]
        assert sampled_contexts(payload(*records, (parent(flags="00"),))) == []
    finally:
        _find_name.cache_clear()


def test_contexts_of_a_batch_are_bounded() -> None:
    data = payload(*((parent(span=f"{at:016x}"),) for at in range(1, 400)))

    contexts = sampled_contexts(data)

    assert contexts is not None
    assert len(contexts) == LINKS_MAX


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"endpoint": "collector:4318"}, "tracing.endpoint"),
        ({"sample_rate": 1.5}, "tracing.sample_rate"),
        ({"spans_per_s_max": 0}, "tracing.spans_per_s_max"),
    ],
)
def test_settings_that_cannot_be_are_refused(values: dict[str, object], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Tracing(**values)  # type: ignore[arg-type]
