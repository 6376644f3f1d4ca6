"""The filter language: what each comparison says of a record, and where a mistake is."""

import tracemalloc

import pytest

from millstream.codec.records import Record
from millstream.engine.filters.filter import flymq_filter, parse
from millstream.engine.filters.json_paths import JSON_BYTES_MAX, WHOLE_BYTES_MAX
from millstream.engine.filters.language import FILTER_LENGTH_MAX, NESTING_MAX
from millstream.errors.views import InvalidFilter

ORDER = b'{"user": {"id": "u-17", "vip": true}, "total": 42.5, "items": [{"sku": "a"}], "n": null}'


def record(
    value: bytes | None = ORDER,
    *,
    key: bytes | None = b"eu-1",
    headers: tuple[tuple[str, bytes | None], ...] = (),
) -> Record:
    return Record(0, 0, key, value, headers)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("value contains 'u-17'", True),
        ("value contains 'U-17'", False),
        ("value == 'x'", False),
        ("value ~ 'u-[0-9]+'", True),
        ("value !~ 'u-[0-9]+'", False),
        ("value ~ u-17", True),
        ("key == 'eu-1'", True),
        ("key == eu-1", True),
        ('key == "eu-1"', True),
        ("key != 'eu-1'", False),
        ("key < 'eu-2' and key >= 'eu-1'", True),
        ("key ~ '^eu-'", True),
        ("key == null", False),
        ("key", True),
        ("subject == orders", True),
        ("subject == 'orders.eu'", False),
        ("not key == 'x'", True),
        ("not (key == 'x' or value contains 'vip')", False),
        ("key == 'x' and key == 'y' or key == 'eu-1'", True),
        ("key == 'x' and (key == 'y' or key == 'eu-1')", False),
    ],
)
def test_keys_and_values_are_compared_as_bytes(text: str, holds: bool) -> None:
    assert parse(text).matches(record(), "orders") is holds


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("$.user.id == 'u-17'", True),
        ("$.user.id == u-17", True),
        ("$.user.id != 'u-18'", True),
        ("$.user.id < 'u-2'", True),
        ("$.user.id ~ '^u'", True),
        ("$.user.id contains '17'", True),
        ("$.user.vip == true", True),
        ("$.user.vip == 'true'", False),
        ("$.user.vip == 1", False),
        ("$.user.vip", True),
        ("$.total > 42", True),
        ("$.total == 42.5", True),
        ("$.total <= 4.2e1", False),
        ("$.total == '42.5'", False),
        ("$.total contains '42'", False),
        ("$.items[0].sku == 'a'", True),
        ("$.items[1].sku == null", True),
        ("$['user']['id'] == 'u-17'", True),
        ("$.n == null", True),
        ("$.n", True),
        ("$.nothing", False),
        ("$.nothing == null", True),
        ("$.nothing != 'x'", True),
        ("$.nothing > 1", False),
        ("$.total.deeper", False),
        ("$", True),
        ("$.user == 'u-17'", False),
        ("$.user != 'u-17'", True),
        ("$.user == null", False),
        ("$.items == null", False),
        ("$.items contains 'a'", False),
        ("$[0] == null", True),
        ("$.items.sku == null", True),
        ("$.user[0] == null", True),
        ("$.user.id == 'u-17' and $.user.vip == true and $.user", True),
    ],
)
def test_paths_are_compared_as_what_json_says_they_are(text: str, holds: bool) -> None:
    assert parse(text).matches(record()) is holds


@pytest.mark.parametrize("value", [None, b"", b"not json", b"\xff\xfe", b'{"a":', b"[" * 100_000])
def test_in_a_value_that_is_no_json_there_is_no_path(value: bytes | None) -> None:
    assert not parse("$.a").matches(record(value))
    assert parse("$.a == null").matches(record(value))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("$['it''s'] == 1", b'{"it\'s": 1}'),
        ("$['a\"b'] == 1", b'{"a\\"b": 1}'),
        ("$['a\"b'].c == 1 and $.d == 2", b'{"a\\"b": {"c": 1}, "d": 2}'),
        ("$['a]'] == 1", b'{"a]": 1}'),
        ("$[''] == 1", b'{"": 1}'),
        ("$.na\u00efve == '\u00fc'", b'{"na\\u00efve": "\\u00fc"}'),
        ("$['\U0001f600'] == 1", b'{"\\ud83d\\ude00": 1}'),
        ("$[0][1].a[2] == 'x'", b'[[0, {"a": [1, 2, "x", 4]}, 5], 6]'),
        ("$[0] == 1 and $[3] == 4 and $[1] == 2", b"[1, 2, 3, 4]"),
        ("$ == 5", b" 5 "),
        ("$ == 'x'", b'"x"'),
        ("$.a == 2", b'{"a": 1, "a": 2}'),
        ("$.n == 18446744073709551617", b'{"n": 18446744073709551617}'),
        ("$.n < 9007199254740993", b'{"n": 9007199254740992}'),
        ("$.n == 1", b'{"n": 1.0}'),
        ("$.n == -0", b'{"n": 0}'),
        ("$.n != 1", b'{"n": "1"}'),
        ("$.n != 1", b'{"n": true}'),
        # What was not asked for is not read closely.
        ("$.n == 1", b'{"far": 1e999, "n": 1}'),
        ("$.n == 1", b'{"latin": "\xfc", "n": 1}'),
        # What is too large for a number, or no text, is there and equals nothing.
        ("$.n and $.n != 1 and not $.n > 1 and not $.n == null", b'{"n": 1e999}'),
        ("$.n and $.n != 1 and not $.n > 1", b'{"n": ' + b"9" * 5_000 + b"}"),
        ("$.n and $.n != 'x' and $.n !~ '.'", b'{"n": "\xff"}'),
    ],
)
def test_a_path_finds_what_the_document_says(text: str, value: bytes) -> None:
    assert parse(text).matches(record(value))
    assert parse(text).matches(record(value.ljust(WHOLE_BYTES_MAX + 1)))


@pytest.mark.parametrize(
    "value",
    [
        b'{"a": 1, "b": [' + b"[[]]," * 200_000 + b"0]}",
        b'{"b": {' + b",".join(b'"%d": {}' % at for at in range(100_000)) + b'}, "a": 1}',
    ],
    ids=["lists", "objects"],
)
def test_what_is_not_asked_for_takes_no_memory(value: bytes) -> None:
    filter_ = parse("$.a == 1")
    filter_.matches(record(b"{}"))
    tracemalloc.start()

    assert filter_.matches(record(value))

    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 100_000


def test_a_document_beyond_the_bound_has_no_paths() -> None:
    padding = b" " * (JSON_BYTES_MAX - len(b'{"a":1}'))

    assert parse("$.a == 1").matches(record(padding + b'{"a":1}'))
    assert parse("$.a == null").matches(record(padding + b' {"a":1}'))


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("header.region == 'eu'", True),
        ("header.region == us", False),
        ("header.attempt > 9", True),
        ("header.attempt > '9'", False),
        ("header.attempt == 10", True),
        ("header.attempt == 10.0", True),
        ("header.attempt != 10", False),
        ("header.region > 9", False),
        ("header['odd name'] == 'x'", True),
        ("header['it''s'] == null", True),
        ("header.trace-id.x contains b", True),
        ("header.nothing == null", True),
        ("header.empty == null", True),
        ("header.empty", False),
        ("header.region", True),
        ("header.twice == 'last'", True),
        ("header.flag == true", True),
        ("header.spaced == 1000", False),
        ("header.nan != 1", True),
        ("header.nan < 1 or header.nan > 0", False),
        ("subject == 'orders.eu.created'", True),
        ("subject ~ '^orders[.]eu[.]'", True),
    ],
)
def test_headers_are_compared_by_what_the_literal_is(text: str, holds: bool) -> None:
    headers = (
        ("region", b"eu"),
        ("attempt", b"10"),
        ("odd name", b"x"),
        ("trace-id.x", b"abc"),
        ("empty", None),
        ("twice", b"first"),
        ("twice", b"last"),
        ("flag", b"true"),
        ("spaced", b"1_000"),
        ("nan", b"nan"),
        ("ms-subject", b"orders.eu.created"),
    )

    assert parse(text).matches(record(headers=headers), "orders") is holds


def test_a_tombstone_is_a_value_that_is_null() -> None:
    tombstones = parse("value == null")

    assert tombstones.matches(record(None))
    assert not tombstones.matches(record(b""))
    assert not parse("value contains ''").matches(record(None))


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("", 0, "was expected"),
        ("valu == 3", 0, "value, key, subject"),
        ("value contains", 14, "a text, a number"),
        ("value == 'x", 9, "quote is not closed"),
        ("value == 1 2", 11, "'and', 'or' or the end"),
        ("(value == 1", 11, r"'\)'"),
        ("value ~ '('", 8, "missing"),
        ("key == 'a' and value ~ '['", 23, "missing"),
        ("value ~ 3", 8, "takes a text"),
        ("value contains null", 15, "takes a text"),
        ("$.a < true", 6, "no order"),
        ("key < null", 6, "null"),
        ("value ? 3", 6, "no filter has this sign"),
        ("key == and", 7, "a text, a number"),
        ("key == 'a' or value == '\ud800'", 24, "half a character"),
        ("key and $.a[1001] == 1", 8, r"up to \[1000\]"),
        ("$[-1]", 1, "no filter has this sign"),
        ("not", 3, "was expected"),
        ("x" * (FILTER_LENGTH_MAX + 1), FILTER_LENGTH_MAX, "at most"),
    ],
)
def test_a_mistake_is_told_with_its_place(text: str, place: int, reason: str) -> None:
    with pytest.raises(InvalidFilter, match=reason) as refused:
        parse(text)

    assert refused.value.place == place


def test_nesting_is_bounded() -> None:
    parse("(" * (NESTING_MAX - 1) + "key" + ")" * (NESTING_MAX - 1))

    with pytest.raises(InvalidFilter, match="nested"):
        parse("(" * NESTING_MAX + "key" + ")" * NESTING_MAX)
    with pytest.raises(InvalidFilter, match="nested"):
        parse("not " * NESTING_MAX + "key")


@pytest.mark.parametrize(
    ("text", "data", "may"),
    [
        ("value contains 'ERROR'", b"..ERROR..", True),
        ("value contains 'ERROR'", b"..error..", False),
        ("value ~ 'ERROR'", b"..error..", False),
        ("value ~ 'ERR.R'", b"", True),
        ("key == 'a' or value contains 'b'", b"..b..", True),
        ("key == 'a' or value contains 'b'", b"..c..", False),
        ("key == 'aa' and value contains 'b'", b"..b..", False),
        ("key == 'a' or not value contains 'b'", b"", True),
        ("key != 'a'", b"", True),
        ("key == ''", b"", True),
        ("$.a == 'x'", b"", True),
        ("subject == 'orders'", b"", True),
        ("header.n", b"", False),
        ("header.n > 3", b"", True),
        ("value == 17", b"", True),
    ],
)
def test_a_batch_in_which_the_text_does_not_stand_need_not_be_opened(
    text: str, data: bytes, may: bool
) -> None:
    assert parse(text).may_match(data) is may


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("$.user.id", True),
        ("$.user.name", False),
        ("U-17", True),
        ("EU-1", True),
        ("u-[0-9]+", True),
        ("U-[0-9]+", False),
        ("^eu", True),
        ("(", False),
        ("", True),
        ("\ud800", False),
        ("$.items[5000]", False),
    ],
)
def test_flymq_looks_for_a_path_a_text_or_a_regex(text: str, holds: bool) -> None:
    assert flymq_filter(text).matches(record()) is holds


def test_flymq_finds_text_of_any_script_in_any_case() -> None:
    assert flymq_filter("ÄRGER").matches(record("großer ärger".encode()))
    assert flymq_filter("$.a").matches(record(b"costs $.A lot"))
    assert not flymq_filter("x").matches(record(None, key=None))
