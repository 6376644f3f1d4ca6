"""Regular expressions over topic names, in the part of RE2's language that has a meaning there.

Owns the parser and a matcher whose time is bounded whatever the pattern: a finite automaton without
backtracking, whose states are worked out when first needed. Pure. A pattern must match a whole
name. What RE2 cannot do either (back references, looking around) is refused, as is what costs more
than `WORK_MAX`.
"""

import string
from typing import NamedTuple

from msgspec import Struct, field

from millstream.errors.groups import InvalidPattern

PATTERN_LENGTH_MAX = 1_024
PROGRAM_SIZE_MAX = 2_000
NESTING_MAX = 50
REPEAT_MAX = 1_000  # RE2's own bound.
WORK_MAX = 500_000  # Steps of working out states, which are then remembered.

ALPHABET = frozenset(string.ascii_letters + string.digits + "._-")  # Of topic names.
_DIGITS = frozenset(string.digits)
_WORD = frozenset(string.ascii_letters + string.digits + "_")
_CLASSES = {"d": _DIGITS, "w": _WORD, "s": frozenset(" \t\n\f\r")}
_NAMED = {
    "alnum": frozenset(string.ascii_letters + string.digits),
    "alpha": frozenset(string.ascii_letters),
    "digit": _DIGITS,
    "lower": frozenset(string.ascii_lowercase),
    "upper": frozenset(string.ascii_uppercase),
    "punct": frozenset("._-"),
    "word": _WORD,
    "xdigit": frozenset(string.hexdigits),
}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}


# -- the tree ----------------------------------------------------------------------------------


class _Chars(NamedTuple):
    members: frozenset[str]


class _Edge(NamedTuple):
    is_end: bool  # `$` or `\z`; else `^` or `\A`.


class _Sequence(NamedTuple):
    parts: "tuple[_Node, ...]"


class _Choice(NamedTuple):
    branches: "tuple[_Node, ...]"


class _Repeat(NamedTuple):
    part: "_Node"
    low: int
    high: int | None


_Node = _Chars | _Edge | _Sequence | _Choice | _Repeat


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._ignores_case = False

    def parse(self) -> _Node:
        node = self._choice()
        if self._at < len(self._text):
            raise self._problem("a ')' that closes nothing")
        return node

    def _choice(self) -> _Node:
        self._depth += 1
        if self._depth > NESTING_MAX:
            raise self._problem(f"groups nested deeper than {NESTING_MAX}")
        branches = [self._sequence()]
        while self._take("|"):
            branches.append(self._sequence())
        self._depth -= 1
        return branches[0] if len(branches) == 1 else _Choice(tuple(branches))

    def _sequence(self) -> _Node:
        parts = []
        while self._peek() not in {"", "|", ")"}:
            parts.append(self._repeated(self._atom()))
        return _Sequence(tuple(parts))

    def _repeated(self, node: _Node) -> _Node:
        bounds = self._bounds()
        if bounds is None:
            return node
        self._take("?")  # Lazy or not, a whole name matches or it does not.
        if self._peek() in {"*", "+", "?"} or self._bounds() is not None:
            raise self._problem("a repetition of a repetition")
        return _Repeat(node, *bounds)

    def _bounds(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(sign):
                return bounds
        end = self._text.find("}", self._at)
        if self._peek() != "{" or end < 0:
            return None
        low, comma, high = self._text[self._at + 1 : end].partition(",")
        if not _is_number(low) or not (high == "" or _is_number(high)):
            return None  # To RE2 these are then letters, which no topic has.
        self._at = end + 1
        least = int(low)
        most = (int(high) if high else None) if comma else least
        if max(least, most or 0) > REPEAT_MAX or (most is not None and most < least):
            raise self._problem(f"repetitions {low}{comma}{high}")
        return least, most

    def _atom(self) -> _Node:
        sign = self._next()
        match sign:
            case ".":
                return _Chars(ALPHABET)
            case "^" | "$":
                return _Edge(sign == "$")
            case "(":
                return self._group()
            case "[":
                return self._class()
            case "\\":
                return self._escape()
            case "*" | "+" | "?":
                raise self._problem("a repetition of nothing")
            case _:
                return self._chars({sign})

    def _group(self) -> _Node:
        if self._take("?"):
            if self._take("i)"):
                self._ignores_case = True
                return _Sequence(())
            if self._take("P<") or (self._peek() == "<" and self._peek(1) not in {"=", "!"}):
                self._skip_name()
            elif not self._take(":"):
                raise self._problem("a kind of group that is not known")
        had_case = self._ignores_case
        node = self._choice()
        self._ignores_case = had_case
        if not self._take(")"):
            raise self._problem("a '(' that is not closed")
        return node

    def _skip_name(self) -> None:
        self._take("<")
        end = self._text.find(">", self._at)
        if end < 0 or not self._text[self._at : end].isidentifier():
            raise self._problem("a group without a proper name")
        self._at = end + 1

    def _escape(self) -> _Node:
        sign = self._next()
        if sign in {"A", "z"}:
            return _Edge(sign == "z")
        return self._chars(self._escaped(sign))

    def _escaped(self, sign: str) -> frozenset[str]:
        """The characters that a backslash and `sign` stand for."""
        if sign.lower() in _CLASSES:
            members = _CLASSES[sign.lower()]
            return members if sign.islower() else ALPHABET - members
        if sign in _CONTROLS:
            return frozenset(_CONTROLS[sign])
        if sign.isalnum() or not sign.isascii():
            raise self._problem(f"an escape \\{sign} that is not known")
        return frozenset(sign)

    def _class(self) -> _Node:
        is_negated = self._take("^")
        members: set[str] = set()
        is_first = True
        while is_first or self._peek() != "]":
            is_first = False
            members |= self._class_part()
        self._at += 1
        chars = self._with_case(frozenset(members))
        return _Chars(ALPHABET - chars if is_negated else chars & ALPHABET)

    def _class_part(self) -> frozenset[str]:
        if self._take("[:"):
            end = self._text.find(":]", self._at)
            name = self._text[self._at : max(end, self._at)]
            is_negated = name.startswith("^")
            if name.removeprefix("^") not in _NAMED:
                raise self._problem("a class of characters that is not known")
            self._at = end + 2
            members = _NAMED[name.removeprefix("^")]
            return ALPHABET - members if is_negated else members
        low = self._class_char()
        if len(low) != 1 or self._peek() != "-" or self._peek(1) in {"]", ""}:
            return low
        self._at += 1
        high = self._class_char()
        (first,), last = low, next(iter(high))
        if len(high) != 1 or first > last:
            raise self._problem("a range of characters that goes nowhere")
        return frozenset(char for char in ALPHABET if first <= char <= last)

    def _class_char(self) -> frozenset[str]:
        sign = self._next()
        return self._escaped(self._next()) if sign == "\\" else frozenset(sign)

    def _chars(self, members: set[str] | frozenset[str]) -> _Chars:
        return _Chars(self._with_case(frozenset(members)) & ALPHABET)

    def _with_case(self, members: frozenset[str]) -> frozenset[str]:
        if not self._ignores_case:
            return members
        return members | {char.swapcase() for char in members}

    def _peek(self, ahead: int = 0) -> str:
        return self._text[self._at + ahead : self._at + ahead + 1]

    def _take(self, sign: str) -> bool:
        is_there = self._text.startswith(sign, self._at)
        self._at += len(sign) if is_there else 0
        return is_there

    def _next(self) -> str:
        sign = self._peek()
        if not sign:
            raise self._problem("an end where more must follow")
        self._at += 1
        return sign

    def _problem(self, reason: str) -> InvalidPattern:
        return _invalid(self._text, f"{reason}, at {self._at}")


def _invalid(text: str, why: str) -> InvalidPattern:
    return InvalidPattern(f"{text[:260]!r} is no pattern of topics: {why}")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


# -- the automaton -----------------------------------------------------------------------------


class _Step(Struct):
    """Read one of `chars` and go on at the first of `then`; without them, go on at all of them."""

    chars: frozenset[str] | None
    then: list[int]
    edge: _Edge | None = None


class _State(Struct):
    """A set of steps that read something, and what is known of where they lead."""

    steps: frozenset[int]
    accepts: bool  # Whether the name may end here.
    after: dict[str, "_State"] = field(default_factory=dict)


class Pattern:
    """`matches` a whole name or not. Raises `InvalidPattern`, early or late."""

    def __init__(self, text: str) -> None:
        if len(text) > PATTERN_LENGTH_MAX:
            raise _invalid(text, f"longer than {PATTERN_LENGTH_MAX} characters")
        self._text = text
        self._steps: list[_Step] = []
        self._work = 0
        self._states: dict[frozenset[int], _State] = {}
        self._accept = self._add(frozenset())  # Reads nothing, leads nowhere.
        self._entry = self._compile(_Parser(text).parse(), self._accept)
        self._start = self._state(self._closure([self._entry], is_start=True))

    def matches(self, name: str) -> bool:
        assert name, "a topic has a name"
        state = self._start
        for char in name:
            following = state.after.get(char)
            state = self._follow(state, char) if following is None else following
        return state.accepts

    def _follow(self, state: _State, char: str) -> _State:
        self._spend(len(state.steps))
        reached = [
            self._steps[at].then[0] for at in state.steps if char in (self._steps[at].chars or ())
        ]
        following = self._state(self._closure(reached))
        state.after[char] = following
        return following

    def _state(self, steps: frozenset[int]) -> _State:
        known = self._states.get(steps)
        if known is None:
            accepts = self._accept in self._closure(steps, is_end=True)
            known = self._states[steps] = _State(steps, accepts)
        return known

    def _closure(
        self, entries: "list[int] | frozenset[int]", *, is_start: bool = False, is_end: bool = False
    ) -> frozenset[int]:
        """All steps that can be reached without reading."""
        seen = set(entries)
        left = list(entries)
        while left:
            at = left.pop()
            step = self._steps[at]
            if step.chars is not None:
                continue
            if step.edge is not None and not (is_end if step.edge.is_end else is_start):
                continue  # It stays in the set: the end of the name may come yet.
            fresh = [to for to in step.then if to not in seen]
            seen.update(fresh)
            left += fresh
        self._spend(len(seen))
        return frozenset(
            at for at in seen if self._steps[at].chars is not None or self._steps[at].edge
        )

    def _spend(self, work: int) -> None:
        self._work += work
        if self._work > WORK_MAX:
            raise _invalid(self._text, "it costs too much")

    # -- from the tree to steps ------------------------------------------------------------------

    def _compile(self, node: _Node, then: int) -> int:
        """Add the steps that match `node` and go on at `then`; return the first of them."""
        self._spend(1)  # A thousand times nothing, a thousand times, adds no step.
        match node:
            case _Chars(members):
                return self._add(members, then)
            case _Edge():
                return self._add(None, then, edge=node)
            case _Sequence(parts):
                for part in reversed(parts):
                    then = self._compile(part, then)
                return then
            case _Choice(branches):
                return self._add(None, *(self._compile(branch, then) for branch in branches))
            case _Repeat(part, low, high):
                return self._compile_repeat(part, low, high, then)

    def _compile_repeat(self, part: _Node, low: int, high: int | None, then: int) -> int:
        if high is None:
            loop = self._add(None, then)
            self._steps[loop].then.append(self._compile(part, loop))
            then = loop
        else:
            end = then
            for _ in range(high - low):
                then = self._add(None, end, self._compile(part, then))
        for _ in range(low):
            then = self._compile(part, then)
        return then

    def _add(self, chars: frozenset[str] | None, *then: int, edge: _Edge | None = None) -> int:
        if len(self._steps) >= PROGRAM_SIZE_MAX:
            raise _invalid(self._text, "it is too large")
        self._steps.append(_Step(chars, list(then), edge))
        return len(self._steps) - 1
