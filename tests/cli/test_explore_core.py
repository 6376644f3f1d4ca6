"""What the explorer decides without a terminal and without a broker."""

import json
from bisect import bisect_left
from datetime import UTC, datetime
from unittest import mock

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.cli.explorer.core import decoding, paging, window
from millstream.cli.explorer.core.decoding import Form, indented, moment_text, show, summary
from millstream.cli.explorer.core.moves import MOVES_SHOWN_MAX, Move, lines, plan, read_target
from millstream.cli.explorer.core.outgoing import Fields, read_fields
from millstream.cli.explorer.core.paging import Chunk, Haul, Page, Span
from millstream.cli.explorer.core.search import find, parse_query
from millstream.cli.explorer.core.window import Window
from millstream.cli.explorer.screens.home import read_new_topic
from millstream.cli.explorer.screens.topic import read_partition
from millstream.client import Message, TopicPartition

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def record(
    offset: int = 0,
    *,
    partition: int = 0,
    key: bytes | None = None,
    value: bytes | None = b"",
    headers: tuple[tuple[str, bytes | None], ...] = (),
    timestamp_ms: int = 0,
) -> Message:
    return Message(
        topic="t",
        partition=partition,
        offset=offset,
        timestamp_ms=timestamp_ms,
        key=key,
        value=value,
        headers=headers,
    )


# -- decoding ------------------------------------------------------------------------------------


@given(JSON, st.sampled_from([None, 1]))
def test_pretty_json_says_what_the_bytes_say(value: object, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=indent)

    assert json.loads(indented(text)) == value


def test_pretty_json_keeps_digits_and_doubled_keys() -> None:
    pretty = show(b'{"a":1.10,"a":1e400,"b":[],"c":{}}', Form.AUTO)

    assert pretty.kind == "json"
    assert pretty.text == '{\n  "a": 1.10,\n  "a": 1e400,\n  "b": [],\n  "c": {}\n}'


@given(st.binary(max_size=200) | st.text().map(str.encode), st.sampled_from(Form))
def test_no_record_can_drive_the_terminal(data: bytes, form: Form) -> None:
    assert summary(data, form).isprintable()
    assert all(line.isprintable() for line in show(data, form).text.split("\n"))


@pytest.mark.parametrize(
    ("data", "kind", "text"),
    [
        (b"plain", "text", "plain"),
        ("größe\n漢字".encode(), "text", "größe\n漢字"),
        (b"\x1b[31mred herring", "text", "\\x1b[31mred herring"),
        (b"\xff\xfe\x00", "hex", f"000000  {'ff fe 00':<47}  ..."),
        (b'\0\0\0\0\7{"a":1}', "schema 7, json", '{\n  "a": 1\n}'),
        (b"", "text", ""),
    ],
)
def test_what_bytes_are_is_guessed(data: bytes, kind: str, text: str) -> None:
    page = show(data, Form.AUTO)

    assert (page.kind, page.text) == (kind, text)


def test_what_is_not_json_is_shown_as_text_and_says_so() -> None:
    assert show(b"{", Form.JSON).note == "not JSON"
    assert show(b"[" * 100_000, Form.JSON).kind == "text"
    assert "too long" in show(b"[" + b"1," * decoding.JSON_BYTES_MAX + b"1]", Form.JSON).note


def test_a_tombstone_is_not_an_empty_value() -> None:
    assert "tombstone" in show(None, Form.AUTO).note
    assert summary(None, Form.AUTO) != summary(b"", Form.AUTO)


@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize("piece", [b"x", b"\xff", b'["\\u0041", 1],'])
def test_of_a_very_long_value_the_beginning_is_shown(form: Form, piece: bytes) -> None:
    data = b"[" + piece * (2**20 // len(piece)) + b"0]"

    page = show(data, form)

    assert "the beginning of 1.0 MiB" in page.note
    assert len(page.text) <= 5 * decoding.DETAIL_BYTES_MAX
    assert len(summary(data, form)) <= decoding.SUMMARY_CHARACTERS_MAX


def test_decoding_goes_round() -> None:
    assert Form.AUTO.next.next.next.next is Form.AUTO


def test_a_time_that_is_none_is_no_reason_to_fail() -> None:
    assert moment_text(-1) == "-"
    assert moment_text(2**62) == f"{2**62} ms"
    assert moment_text(1_500).endswith(":01.500")


# -- searching -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("BREAD", True),
        ("ann", True),
        ("trace=9", True),
        ("key:ann", True),
        ("key:bread", False),
        ("value: bread", True),
        ("header:trace", True),
        ("header:ann", False),
        ("/b.e.d$/", True),
        ("/^read/", False),
        ("item:rye", False),
        ("a.n", False),
    ],
)
def test_a_search_looks_where_it_is_told(text: str, is_found: bool) -> None:
    order = record(key=b"ann", value=b"item: bread", headers=(("trace", b"9"),))

    assert parse_query(text).matches(order) is is_found


@pytest.mark.parametrize("text", ["", "  ", "key:", "/(/"])
def test_a_search_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_query(text)


@given(st.lists(st.booleans(), max_size=8), st.integers(-1, 8), st.sampled_from([-1, 1]))
def test_the_next_match_is_the_nearest_on_that_side(
    hits: list[bool], start: int, step: int
) -> None:
    records = [record(value=b"x" if is_hit else b"-") for is_hit in hits]
    sides = [n for n, is_hit in enumerate(hits) if is_hit and (n - start) * step >= 0]

    entry = find(records, parse_query("x"), start=start, step=step)

    assert entry == (min(sides, key=lambda n: abs(n - start)) if sides else None)


# -- pages and what is held ----------------------------------------------------------------------


class Log:
    """A topic with gaps, as compaction leaves it."""

    def __init__(self, offsets: list[list[int]]) -> None:
        self.offsets = [sorted(offset) for offset in offsets]
        self.bounds = {p: Span(0, 60) for p in range(len(offsets))}

    def within(self, partition: int, span: Span) -> list[int]:
        offsets = self.offsets[partition]
        return offsets[bisect_left(offsets, span.start) : bisect_left(offsets, span.end)]

    def read(self, page: Page) -> Chunk:
        """As a reader does: record by record, to the end of the partition at most."""
        haul = Haul(page)
        for partition in page.spans:
            for offset in self.within(partition, Span(page.spans[partition].start, 60)):
                haul.add(record(offset, partition=partition, timestamp_ms=offset * 7 % 11))
            haul.close(partition)
        return haul.chunk()


LOGS = st.lists(st.sets(st.integers(0, 59)).map(list), min_size=1, max_size=3).map(Log)


def held(window_: Window) -> list[tuple[int, int]]:
    return [(record.partition, record.offset) for record in window_.records]


@given(LOGS, st.integers(1, 9), st.lists(st.booleans(), max_size=12), st.integers(0, 60))
def test_what_is_held_has_no_holes_however_one_scrolls(
    log: Log, quota: int, ways: list[bool], start: int
) -> None:
    held_max = 20
    with mock.patch.object(window, "RECORDS_HELD_MAX", held_max):
        matching = Window()
        goals = dict.fromkeys(log.bounds, start)
        matching.replace(Chunk(spans=paging.at_offsets(goals, log.bounds), records=[]))
        for is_newer in ways:
            if is_newer:
                matching.add_newer(log.read(paging.newer(matching.spans, log.bounds, quota)))
            else:
                matching.add_older(log.read(paging.older(matching.spans, log.bounds, quota)))

            assert len(matching.records) <= held_max
            for partition, span in matching.spans.items():
                here = [offset for number, offset in held(matching) if number == partition]
                assert here == log.within(partition, span)


@given(LOGS, st.booleans())
def test_page_by_page_every_record_is_seen_once(log: Log, is_newer: bool) -> None:
    seen: list[tuple[int, int]] = []
    turn = paging.newer if is_newer else paging.older
    spans = {p: Span(0, 0) if is_newer else Span(60, 60) for p in log.bounds}
    while (page := turn(spans, log.bounds, 4)).spans:
        chunk = log.read(page)
        seen += [(record.partition, record.offset) for record in chunk.records]
        spans |= chunk.spans

    assert sorted(seen) == [(p, o) for p, offsets in enumerate(log.offsets) for o in offsets]


def test_a_page_cut_short_keeps_what_adjoins() -> None:
    spans = {0: Span(0, 10), 1: Span(0, 10)}
    forwards, backwards = (
        Haul(Page(spans=spans, quota=10, is_backward=way)) for way in (False, True)
    )
    for haul in (forwards, backwards):
        for offset in range(10):
            haul.add(record(offset))
        haul.add(record(0, partition=1))

    assert forwards.chunk().spans == {0: Span(0, 10), 1: Span(0, 1)}
    assert backwards.chunk().spans == {0: Span(0, 10)}
    assert len(backwards.chunk().records) == 10


def test_large_records_bound_a_page_by_their_bytes() -> None:
    large = b"x" * (paging.READ_BYTES_MAX // 4)
    spans = {0: Span(0, 10)}
    forwards, backwards = (
        Haul(Page(spans=spans, quota=10, is_backward=way)) for way in (False, True)
    )

    for offset in range(10):
        if not forwards.is_full:
            forwards.add(record(offset, value=large))
        backwards.add(record(offset, value=large))

    assert [record.offset for record in forwards.chunk().records] == [0, 1, 2, 3]
    assert forwards.chunk().spans == {0: Span(0, 4)}
    assert [record.offset for record in backwards.chunk().records] == [7, 8, 9]
    assert backwards.chunk().spans == {0: Span(7, 10)}


def test_large_records_bound_what_is_held_by_their_bytes() -> None:
    matching = Window()
    large = b"x" * (window.BYTES_HELD_MAX // 2)

    gone = [
        matching.add_newer(Chunk(spans={0: Span(n, n + 1)}, records=[record(n, value=large)]))
        for n in range(3)
    ]

    assert gone == [0, 1, 1]
    assert matching.spans == {0: Span(2, 3)}
    assert matching.size_bytes < window.BYTES_HELD_MAX


def test_a_page_shares_its_records_among_partitions() -> None:
    assert paging.quota(1) == paging.PAGE_RECORDS_MAX
    assert paging.quota(50) * 50 <= paging.READ_RECORDS_MAX
    assert paging.quota(100_000) == 1
    assert paging.quota(1, is_search=True) > paging.quota(1)


# -- moving groups -------------------------------------------------------------------------------


def test_a_group_goes_no_further_than_its_partition() -> None:
    low, high, fresh = (TopicPartition("t", n) for n in range(3))
    goals = {high: 99, low: 0, fresh: 7}

    moves = plan(goals, {low: 9, high: 5}, dict.fromkeys(goals, 3), dict.fromkeys(goals, 20))

    assert list(map(str, moves)) == [
        "t-0: 9 → 3  (6 again)",
        "t-1: 5 → 20  (15 skipped)",
        "t-2: - → 7",
    ]


def test_a_long_plan_says_how_much_is_not_shown() -> None:
    moves = [Move(at=TopicPartition("t", n), before=0, after=0) for n in range(15)]

    shown = lines(moves).split("\n")

    assert len(shown) == MOVES_SHOWN_MAX + 1
    assert shown[-1] == "… and 5 more partitions"


def test_a_target_is_a_place_and_topics() -> None:
    assert read_target("earliest", now=NOW) == ("earliest", ())
    assert read_target(" 12  a b ", now=NOW) == (12, ("a", "b"))
    assert read_target("1h a", now=NOW)[0] == datetime(2026, 5, 1, 11, tzinfo=UTC)
    for text in ("", "noon", "99999999999999d"):
        with pytest.raises(ValueError, match="is not earliest"):
            read_target(text, now=NOW)


# -- forms ---------------------------------------------------------------------------------------


def test_a_form_is_a_record() -> None:
    fields = Fields(key="ann", value='{"a": 1}', headers="x=1\n\ny=a=b\n", partition=" 2 ")

    columns = read_fields(fields)

    assert (columns.key, columns.value, columns.partition) == (b"ann", b'{"a": 1}', 2)
    assert columns.headers == [("x", "1"), ("y", "a=b")]
    assert read_fields(Fields()).key is None
    assert read_fields(Fields(key="ann", is_tombstone=True)).value is None


@pytest.mark.parametrize(
    "fields",
    [
        Fields(partition="first"),
        Fields(is_tombstone=True),
        Fields(value="{", coding="json"),
        Fields(value="?", coding="binary"),
        Fields(headers="no pair"),
    ],
)
def test_a_form_that_is_not_right_is_refused(fields: Fields) -> None:
    with pytest.raises((ValueError, click.ClickException)):
        read_fields(fields)


def test_a_new_topic_is_a_name_and_perhaps_a_number() -> None:
    assert read_new_topic("orders").partitions is None
    assert read_new_topic(" orders 3 ").partitions == 3
    for text in ("", "orders x", "orders 0", "orders 1 2", "x" * 250):
        with pytest.raises(ValueError):
            read_new_topic(text)


def test_a_partition_is_one_that_is_there() -> None:
    assert read_partition(" 2 ", count=3) == "2"
    assert read_partition("all", count=3) == "all"
    for text in ("3", "-1", ""):
        with pytest.raises(ValueError):
            read_partition(text, count=3)
