"""The filter language: text in, a tree of comparisons out.

    value contains 'timeout' and not (header.retry > 3 or $.user.id == 'root')

Owns the grammar and where in the text a mistake is. Pure; what a comparison means is in `filter`.
Text stands in single or double quotes, a quote in it is written twice, and a backslash is a
backslash, so that regular expressions read as they do elsewhere.
"""

import re
from enum import Enum
from typing import NamedTuple, TypeAlias

from millstream.errors.views import InvalidFilter

FILTER_LENGTH_MAX = 4_096
NESTING_MAX = 50
INDEX_MAX = 1_000  # Of an element in a path.


class Field(Enum):
    VALUE = "value"
    KEY = "key"
    SUBJECT = "subject"


class HeaderField(NamedTuple):
    name: str


class JsonPath(NamedTuple):
    """Steps into the value read as JSON: names of members and indexes of elements."""

    steps: tuple[str | int, ...]


class Operator(Enum):
    EQUAL = "=="
    UNEQUAL = "!="
    LESS = "<"
    AT_MOST = "<="
    MORE = ">"
    AT_LEAST = ">="
    MATCHES = "~"
    MATCHES_NOT = "!~"
    CONTAINS = "contains"


Operand: TypeAlias = Field | HeaderField | JsonPath
Literal: TypeAlias = str | int | float | bool | None


class Comparison(NamedTuple):
    operand: Operand
    operator: Operator
    literal: Literal
    place: int  # Of the literal.


class Exists(NamedTuple):
    operand: Operand


class Not(NamedTuple):
    part: "Node"


class All(NamedTuple):
    parts: "tuple[Node, ...]"


class Some(NamedTuple):
    parts: "tuple[Node, ...]"


Node: TypeAlias = Comparison | Exists | Not | All | Some

_QUOTED = r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\""
_TOKENS = re.compile(
    rf"""
    (?P<sign>==|!=|<=|>=|!~|[<>~()])
    |(?P<quoted>{_QUOTED})
    |(?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)(?![\w.-])
    |(?P<path>\$(?:\.[\w-]+|\[\d+\]|\[(?:{_QUOTED})\])*)
    |(?P<header>header(?:\.[\w.-]+|\[(?:{_QUOTED})\]))
    |(?P<word>\w[\w.:-]*)
    """,
    re.VERBOSE,
)
_STEPS = re.compile(rf"\.(?P<name>[\w-]+)|\[(?P<index>\d+)\]|\[(?P<quoted>{_QUOTED})\]")
_SPACE = re.compile(r"\s*")

_FIELDS = {field.value: field for field in Field}
_OPERATORS = {operator.value: operator for operator in Operator}
_CONSTANTS: dict[str, Literal] = {"true": True, "false": False, "null": None}
_RESERVED = {"and", "or", "not", "contains"}
_TEXT_ONLY = {Operator.MATCHES, Operator.MATCHES_NOT, Operator.CONTAINS}
_WITH_NULL = {Operator.EQUAL, Operator.UNEQUAL}


def read_filter(text: str) -> Node:
    """Read a whole filter; raise `InvalidFilter` that says where it goes wrong."""
    if len(text) > FILTER_LENGTH_MAX:
        reason = f"{len(text)} characters, at most {FILTER_LENGTH_MAX}"
        raise InvalidFilter(text, FILTER_LENGTH_MAX, reason)
    try:
        text.encode()
    except UnicodeEncodeError as problem:
        raise InvalidFilter(text, problem.start, "half a character, which no text has") from None
    return _Parser(text).whole()


def read_path(text: str) -> JsonPath | None:
    """Read a text that is nothing but a JSON path; None if it is something else."""
    match = _TOKENS.fullmatch(text)
    if match is None or match.lastgroup != "path":
        return None
    path = JsonPath(tuple(_steps(text)))
    return None if _reaches_too_far(path) else path


class _Token(NamedTuple):
    kind: str  # A group of `_TOKENS`, or "end".
    text: str
    place: int


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._depth = 0
        self._tokens = _tokens(text)
        self._at = 0

    def whole(self) -> Node:
        node = self._some()
        if self._next.kind != "end":
            raise self._problem("'and', 'or' or the end was expected")
        return node

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self) -> _Token:
        token = self._next
        self._at += 1
        return token

    def _takes(self, text: str) -> bool:
        """Take the next token if it is this word or sign."""
        if self._next.kind in {"word", "sign"} and self._next.text == text:
            self._at += 1
            return True
        return False

    def _problem(self, reason: str) -> InvalidFilter:
        return InvalidFilter(self._text, self._next.place, reason)

    def _some(self) -> Node:
        parts = [self._all()]
        while self._takes("or"):
            parts.append(self._all())
        return parts[0] if len(parts) == 1 else Some(tuple(parts))

    def _all(self) -> Node:
        parts = [self._term()]
        while self._takes("and"):
            parts.append(self._term())
        return parts[0] if len(parts) == 1 else All(tuple(parts))

    def _term(self) -> Node:
        self._depth += 1
        if self._depth > NESTING_MAX:
            raise self._problem(f"nested more than {NESTING_MAX} deep")
        node = self._inner()
        self._depth -= 1
        return node

    def _inner(self) -> Node:
        if self._takes("not"):
            return Not(self._term())
        if self._takes("("):
            node = self._some()
            if not self._takes(")"):
                raise self._problem("a ')' was expected")
            return node
        return self._comparison()

    def _comparison(self) -> Node:
        operand = self._operand()
        operator = None
        if self._next.kind in {"sign", "word"}:
            operator = _OPERATORS.get(self._next.text)
        if operator is None:
            return Exists(operand)
        self._take()
        place = self._next.place
        literal = self._literal()
        if operator in _TEXT_ONLY and not isinstance(literal, str):
            raise InvalidFilter(self._text, place, f"'{operator.value}' takes a text")
        if operator not in _WITH_NULL and literal is None:
            raise InvalidFilter(self._text, place, f"nothing is '{operator.value}' null")
        return Comparison(operand, operator, literal, place)

    def _operand(self) -> Operand:
        token = self._next
        if token.kind == "path":
            path = JsonPath(tuple(_steps(token.text)))
            if _reaches_too_far(path):
                raise self._problem(f"elements up to [{INDEX_MAX}] can be asked for")
            self._take()
            return path
        if token.kind == "header":
            self._take()
            name = token.text.removeprefix("header")
            return HeaderField(name[1:] if name[0] == "." else _unquoted(name[1:-1]))
        field = _FIELDS.get(token.text) if token.kind == "word" else None
        if field is None:
            raise self._problem("value, key, subject, header.NAME or $.PATH was expected")
        self._take()
        return field

    def _literal(self) -> Literal:
        token = self._next
        if token.kind == "quoted":
            literal: Literal = _unquoted(token.text)
        elif token.kind == "number":
            literal = int(token.text) if token.text.lstrip("-").isdigit() else float(token.text)
        elif token.kind == "word" and token.text not in _RESERVED:
            literal = _CONSTANTS.get(token.text, token.text)
        else:
            raise self._problem("a text, a number, true, false or null was expected")
        self._take()
        return literal


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    at = 0
    while True:
        space = _SPACE.match(text, at)
        at = at if space is None else space.end()
        if at == len(text):
            return [*tokens, _Token("end", "", at)]
        match = _TOKENS.match(text, at)
        if match is None or match.lastgroup is None:
            is_open = text[at] in "'\""
            reason = "the quote is not closed" if is_open else "no filter has this sign"
            raise InvalidFilter(text, at, reason)
        tokens.append(_Token(match.lastgroup, match.group(), at))
        at = match.end()


def _steps(path: str) -> list[str | int]:
    steps: list[str | int] = []
    for match in _STEPS.finditer(path):
        if match["index"] is not None:
            steps.append(int(match["index"]))
        else:
            steps.append(match["name"] or _unquoted(match["quoted"]))
    return steps


def _reaches_too_far(path: JsonPath) -> bool:
    return any(isinstance(step, int) and step > INDEX_MAX for step in path.steps)


def _unquoted(text: str) -> str:
    quote = text[0]
    return text[1:-1].replace(quote * 2, quote)
