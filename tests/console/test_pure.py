"""The console's pure modules, run where they run: in the page."""

import base64
import json
import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from playwright.sync_api import Page

from tests.support.http import HttpNode

# Any: whatever a function of the page returns.
Run = Callable[..., Any]


@pytest.fixture
def run(page: Page, node: HttpNode) -> Run:
    """`run("data/format.js", "span", 90)` calls a function of a module; `then` is JavaScript."""
    page.goto("/console/about")
    number = re.search(r"/console/([0-9a-f]{16})/app.js", page.content())
    assert number is not None

    def call(module: str, name: str, *arguments: object, then: str = "(value) => value") -> Any:
        return page.evaluate(
            f"async ([path, name, given]) => ({then})((await import(path))[name](...given))",
            [f"/console/{number[1]}/{module}", name, list(arguments)],
        )

    return call


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0 s"),
        (0.0412, "41 ms"),
        (6.34, "6.3 s"),
        (252, "4 min 12 s"),
        (7_199, "2 h"),
        (7_140, "1 h 59 min"),
        (12_000, "3 h 20 min"),
        (86_400 * 12.34, "12.3 d"),
    ],
)
def test_a_span_is_written_as_people_say_it(run: Run, seconds: float, shown: str) -> None:
    assert run("data/format.js", "span", seconds) == shown


def test_json_keeps_its_digits_and_any_depth(run: Run) -> None:
    deep = "[" * 2_000 + "]" * 2_000
    text = '{"items": [{"json": {"id": 12345678901234567890}}, {"json": ' + deep + "}]}"

    texts = "({ items: [a, b] }) => [a.json.id, a.json_text, b.json_text]"
    parsed = run("data/json.js", "parseExact", text, then=texts)

    assert parsed == ["12345678901234567890", '{"id": 12345678901234567890}', deep]
    assert run("data/json.js", "tree", deep, then="(root) => root.kind") == "array"


def test_due_times_are_counted_once_each(run: Run) -> None:
    times = [1_000, 1_000, 5_500, 10_999]

    made = run("parts/histogram.js", "buckets", times, 10)

    assert sum(made["counts"]) == len(times)
    assert len(made["counts"]) <= 10
    assert run("parts/histogram.js", "buckets", [], 10)["counts"] == []


def test_a_rate_is_known_only_from_two_answers(run: Run) -> None:
    before = {"at": 1_000, "records": 10}

    assert run("data/topics.js", "rateOf", before, 30, 3_000) == 10
    assert run("data/topics.js", "rateOf", before, 5, 3_000) is None  # Retention took some.
    assert run("data/topics.js", "rateOf", None, 5, 3_000) is None


def test_a_replica_has_one_state(run: Run) -> None:
    partition = {"leader": 1, "replicas": [1, 2, 3], "in_sync": [1, 2]}

    states = [run("parts/partition_map.js", "stateOf", partition, node) for node in (1, 2, 3, 4)]

    assert states == ["L", "F", "B", "N"]


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ('{"id": 9007199254740993}', {"id": "9007199254740993"}),
        ("[1e30, -2.5e3, 7]", ["1e30", -2500, 7]),
        ("1e30", "1e30"),
        (
            '{"__proto__": {"a": 1}, "id": 90071992547409930}',
            {"__proto__": {"a": 1}, "id": "90071992547409930"},
        ),
        (
            '{"a": "1234567890123456", "b": [null, true, {}]}',
            {"a": "1234567890123456", "b": [None, True, {}]},
        ),
        (r'{"a\n": "\u00e4 \"x\"", "b": 0.5}', {"a\n": '\u00e4 "x"', "b": 0.5}),
    ],
)
def test_long_and_short_numbers_are_read_alike(run: Run, text: str, parsed: object) -> None:
    """A text without long numbers is read by the browser's own parser."""
    answer = run("data/json.js", "parseExact", text, then="(value) => JSON.stringify(value)")

    assert json.loads(answer) == parsed


MESSAGES: list[object] = [
    {"id": 2**63, "low": -(2**63), "item": "flour ✓", "kg": 2.5, "ok": [True, False, None]},
    [0, 127, 128, 255, 256, 65_535, 65_536, 2**32, -1, -32, -33, -129, -40_000, -(2**40)],
    {"long": "x" * 70_000, "many": list(range(20)), "map": {str(n): n for n in range(17)}},
    "",
    [],
    {},
]


@pytest.mark.parametrize("message", MESSAGES)
def test_messagepack_is_written_as_json_with_all_digits(run: Run, message: object) -> None:
    encoded = base64.b64encode(msgspec.msgpack.encode(message)).decode()

    shown = run("data/record.js", "shown", {"base64": encoded}, "msgpack")

    assert shown["kind"] == "json", shown
    assert json.loads(shown["text"]) == message


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        ("c403000aff", '"0x000aff"'),
        ("d6ff691b0d00", '"2025-11-17T11:54:40.000Z"'),
        ("d40510", '"ext 5 0x10"'),
        ("8201a16102a162", '{"1": "a", "2": "b"}'),
        ("cb7ff8000000000000", '"NaN"'),
    ],
)
def test_messagepack_beyond_json_is_spelled_out(run: Run, data: str, shown: str) -> None:
    encoded = base64.b64encode(bytes.fromhex(data)).decode()

    assert run("data/record.js", "shown", {"base64": encoded}, "msgpack")["text"] == shown


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ("", "no end"),
        ("92", "no end"),
        ("ddffffffff", "no end"),
        ("c1", "without a meaning"),
        ("0102", "left over"),
        ("a1ff", "not UTF-8"),
        ("91" * 200 + "01", "levels"),
        ("c7ff", "no end"),
    ],
)
def test_bytes_that_are_no_messagepack_are_shown_with_the_reason(
    run: Run, data: str, problem: str
) -> None:
    encoded = base64.b64encode(bytes.fromhex(data)).decode()

    shown = run("data/record.js", "shown", {"base64": encoded}, "msgpack")

    assert shown["kind"] == "hex"
    assert problem in shown["problem"]
