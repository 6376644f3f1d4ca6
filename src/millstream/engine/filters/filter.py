"""Compiles the text of a filter once, into a test that runs for every record.

    errors = parse("value contains 'ERROR' and header.region == eu")
    errors.matches(record, topic="app-logs")

Owns what each comparison means. Pure, and every test is short: of JSON only the values at the
filter's paths are read (`json_paths`), and regular expressions have a budget (`regexes`). The type
of the literal decides the comparison: a number as a number, a text as bytes in order. An absent
value equals `null` and nothing else, so `!=` holds for it and every other comparison does not.
"""

import operator as operators
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias, assert_never

from millstream.codec.records import NO_REQUIRED_SUBSTRINGS, Record, RequiredSubstrings
from millstream.engine.filters.json_paths import ABSENT, Document
from millstream.engine.filters.language import (
    All,
    Comparison,
    Exists,
    Field,
    HeaderField,
    JsonPath,
    Literal,
    Node,
    Not,
    Operand,
    Operator,
    Some,
    read_filter,
    read_path,
)
from millstream.engine.filters.regexes import InvalidRegex, Regex
from millstream.errors.views import InvalidFilter
from millstream.names import SUBJECT_HEADER
from millstream.storage.secondary_index.terms import (
    NUMBER_LENGTH_MAX,
    AnyTerm,
    EveryTerm,
    Term,
    Terms,
    number_content,
)

_Test: TypeAlias = Callable[[Record, str], bool]
_Bytes: TypeAlias = Callable[[Record, str], bytes | None]

# Both sides are of one type by then, which the checker cannot see: hence Any.
_Order: TypeAlias = Callable[[Any, Any], bool]
_ORDERS: dict[Operator, _Order] = {
    Operator.EQUAL: operators.eq,
    Operator.LESS: operators.lt,
    Operator.AT_MOST: operators.le,
    Operator.MORE: operators.gt,
    Operator.AT_LEAST: operators.ge,
}
_NEGATED = {Operator.UNEQUAL: Operator.EQUAL, Operator.MATCHES_NOT: Operator.MATCHES}


class Filter:
    """Made by `parse` or `flymq_filter`. `text` is what it was made of."""

    __slots__ = ("_test", "is_flymq", "required", "terms", "text")

    def __init__(
        self,
        text: str,
        test: _Test,
        required: RequiredSubstrings = NO_REQUIRED_SUBSTRINGS,
        terms: Terms | None = None,
        *,
        is_flymq: bool = False,
    ) -> None:
        self.text = text
        self.is_flymq = is_flymq  # Its text is in FlyMQ's language.
        self._test = test
        self.required = required
        self.terms = terms  # That every match has, for an index of keys and headers.

    def __repr__(self) -> str:
        return f"<Filter {self.text!r}>"

    def matches(self, record: Record, topic: str = "") -> bool:
        """Whether `record` is wanted; a record that names no subject has its topic's name."""
        return self._test(record, topic)

    def may_match(self, data: bytes) -> bool:
        """Whether any record in these uncompressed bytes of a batch can be wanted.

        A batch without any of the filter's required substrings holds no match.
        """
        return not self.required.texts or self.required.any_in(data)


def parse(text: str) -> Filter:
    """Compile a filter; raise `InvalidFilter` that names the place."""
    node = read_filter(text)
    test = _Compiler(text).test(node)
    required = RequiredSubstrings(tuple(_required_substrings(node)))
    return Filter(text, test, required, required_terms(node))


def flymq_filter(text: str) -> Filter:
    """A filter in FlyMQ's language: a JSON path that exists, else a text, else a regex.

    The text is found in value or key in any case; what is no regex is only a text.
    """
    path = read_path(text) if text.startswith("$.") else None
    exists = None if path is None else _exists(path, Document())
    lowered = text.lower().encode("utf-8", "replace")
    try:
        regex = Regex(text)
    except InvalidRegex:
        regex = None

    def has_text(content: bytes | None) -> bool:
        return content is not None and (
            lowered in _lowered(content) or (regex is not None and regex.found_in(content))
        )

    def test(record: Record, topic: str) -> bool:
        is_there = exists is not None and exists(record, topic)
        return is_there or has_text(record.value) or has_text(record.key)

    is_plain = exists is None and regex is not None and regex.literal is not None
    required = _folded_substrings(lowered) if is_plain else NO_REQUIRED_SUBSTRINGS
    return Filter(text, test, required, is_flymq=True)


class _Compiler:
    """Turns a tree into one function. All its paths share a reading of the value."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._document = Document()

    def test(self, node: Node) -> _Test:
        match node:
            case All(parts):
                return _joined([self.test(part) for part in parts], _both)
            case Some(parts):
                return _joined([self.test(part) for part in parts], _either)
            case Not(part):
                return _negated(self.test(part))
            case Exists(JsonPath() as path):
                return _exists(path, self._document)
            case Exists(operand):
                get = _getter(operand)
                return lambda record, topic: get(record, topic) is not None
            case Comparison():
                return self._comparison(node)
            case _:
                assert_never(node)

    def _comparison(self, node: Comparison) -> _Test:
        if node.operator in _NEGATED:
            return _negated(self._comparison(node._replace(operator=_NEGATED[node.operator])))
        if isinstance(node.operand, JsonPath):
            document, holds = self._document, self._json_test(node)
            slot = document.slot(node.operand.steps)
            return lambda record, _: holds(document.at(record.value, slot))
        get, fits = _getter(node.operand), self._bytes_test(node)
        if node.literal is None:
            return lambda record, topic: get(record, topic) is None

        def test(record: Record, topic: str) -> bool:
            content = get(record, topic)
            return content is not None and fits(content)

        return test

    def _bytes_test(self, node: Comparison) -> Callable[[bytes], bool]:
        literal = node.literal
        if isinstance(literal, int | float) and not isinstance(literal, bool):
            return partial(_compares_number, _ORDERS[node.operator], literal)
        spelled = _spelled(literal)
        if node.operator is Operator.CONTAINS:
            return lambda content: spelled in content
        if node.operator is Operator.MATCHES:
            return self._regex(node).found_in
        order = _ORDERS[node.operator]
        return lambda content: order(content, spelled)

    def _json_test(self, node: Comparison) -> Callable[[object], bool]:
        literal = node.literal
        if literal is None:
            return lambda value: value is None or value is ABSENT
        if isinstance(literal, bool):
            if node.operator is Operator.EQUAL:
                return lambda value: value is literal
            raise InvalidFilter(self._text, node.place, "true and false have no order")
        if node.operator is Operator.CONTAINS:
            return lambda value: isinstance(value, str) and str(literal) in value
        if node.operator is Operator.MATCHES:
            regex = self._regex(node)
            return lambda value: isinstance(value, str) and regex.found_in(_encoded(value))
        order = _ORDERS[node.operator]
        if isinstance(literal, str):
            return lambda value: isinstance(value, str) and order(value, literal)
        return lambda value: type(value) in _NUMBERS and order(value, literal)

    def _regex(self, node: Comparison) -> Regex:
        try:
            return Regex(str(node.literal))
        except InvalidRegex as problem:
            raise InvalidFilter(self._text, node.place, str(problem)) from None


_NUMBERS = (int, float)


def _getter(operand: Operand) -> _Bytes:
    match operand:
        case Field.VALUE:
            return lambda record, _: record.value
        case Field.KEY:
            return lambda record, _: record.key
        case Field.SUBJECT:
            return _subject
        case HeaderField(name):
            return lambda record, _: _header(record, name)
        case JsonPath():
            raise AssertionError("a path is read by the document")
        case _:
            assert_never(operand)


def _header(record: Record, name: str) -> bytes | None:
    """The last header of that name counts, as in Kafka's own `lastHeader`."""
    for header_name, content in reversed(record.headers):
        if header_name == name:
            return content
    return None


def _subject(record: Record, topic: str) -> bytes | None:
    subject = _header(record, SUBJECT_HEADER) if record.headers else None
    return topic.encode() if subject is None else subject


def _exists(path: JsonPath, document: Document) -> _Test:
    slot = document.slot(path.steps)
    return lambda record, _: document.at(record.value, slot) is not ABSENT


def _joined(tests: list[_Test], join: Callable[[_Test, _Test], _Test]) -> _Test:
    """One test of many, in halves: as deep as few, and faster than a loop."""
    if len(tests) == 1:
        return tests[0]
    middle = len(tests) // 2
    return join(_joined(tests[:middle], join), _joined(tests[middle:], join))


def _both(left: _Test, right: _Test) -> _Test:
    return lambda record, topic: left(record, topic) and right(record, topic)


def _either(left: _Test, right: _Test) -> _Test:
    return lambda record, topic: left(record, topic) or right(record, topic)


def _negated(test: _Test) -> _Test:
    return lambda record, topic: not test(record, topic)


def _compares_number(order: _Order, literal: float, content: bytes) -> bool:
    if len(content) > NUMBER_LENGTH_MAX or b"_" in content:  # Python would read 1_000.
        return False
    try:
        return order(int(content), literal)
    except ValueError:
        with suppress(ValueError):
            return order(float(content), literal)
        return False


def _spelled(literal: Literal) -> bytes:
    """As a client would write it into a header: true is `true`."""
    return str(literal).lower().encode() if isinstance(literal, bool) else str(literal).encode()


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _lowered(content: bytes) -> bytes:
    if content.isascii():
        return content.lower()
    return content.decode("utf-8", "replace").lower().encode()


# -- what must stand in a batch for any of its records to match --------------------------------

# The two characters beyond ASCII whose lower case begins with a letter of it.
_ALSO_LOWER = {b"k": "\N{KELVIN SIGN}", b"i": "\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}"}


def _folded_substrings(lowered: bytes) -> RequiredSubstrings:
    """For an ASCII text that is found in any case."""
    others = [text.encode() for letter, text in _ALSO_LOWER.items() if letter in lowered]
    return RequiredSubstrings((lowered, *others), folds_case=True)


def _required_substrings(node: Node) -> frozenset[bytes]:
    """Substrings of which at least one is in every matching record; empty if none is known."""
    match node:
        case All(parts):
            known = [required for part in parts if (required := _required_substrings(part))]
            # The longest text is the rarest, as a rule.
            return max(known, key=lambda required: min(map(len, required)), default=frozenset())
        case Some(parts):
            each = [_required_substrings(part) for part in parts]
            return frozenset().union(*each) if all(each) else frozenset()
        case Comparison(operand, operator, literal):
            return frozenset(filter(None, [_required_substring(operand, operator, literal)]))
        case Exists(HeaderField(name)):
            return frozenset([name.encode()] if name and "\ufffd" not in name else [])
        case Exists() | Not():
            return frozenset()
        case _:
            assert_never(node)


def _required_substring(operand: Operand, operator: Operator, literal: Literal) -> bytes | None:
    # JSON may spell a text in many ways, and a subject may come from the name of the topic.
    if isinstance(operand, JsonPath) or operand is Field.SUBJECT or not isinstance(literal, str):
        return None
    if operator in {Operator.EQUAL, Operator.CONTAINS}:
        return literal.encode()
    if operator is Operator.MATCHES:
        return Regex(literal).literal
    return None


# -- what an index of keys and headers can be asked for ----------------------------------------


def required_terms(node: Node) -> Terms | None:
    """The keys and header values that every match has; None if a match may have any."""
    match node:
        case All(parts):
            known = [terms for part in parts if (terms := required_terms(part)) is not None]
            return EveryTerm(tuple(known)) if known else None
        case Some(parts):
            each = [required_terms(part) for part in parts]
            known = [terms for terms in each if terms is not None]
            return AnyTerm(tuple(known)) if len(known) == len(each) else None
        case Comparison(operand, Operator.EQUAL, literal) if literal is not None:
            if operand is Field.KEY:
                return Term(None, _content(literal))
            if isinstance(operand, HeaderField):
                return Term(operand.name, _content(literal))
            return None
        case Comparison() | Exists() | Not():
            return None
        case _:
            assert_never(node)


def _content(literal: Literal) -> bytes:
    if isinstance(literal, int | float) and not isinstance(literal, bool):
        return number_content(literal)
    return _spelled(literal)
