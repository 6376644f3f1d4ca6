"""The commands of Flux, and the grammar of their lines.

Owns the meaning of every line except PUB and HPUB: those are followed by a payload, so `wire` reads
them. Pure. A line that means nothing becomes a `Mistake`, which is answered like a command, because
a typing error must not cost a client its connection.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import isfinite
from typing import TypeAlias

DURABLE = "DURABLE:"
REPLAY_COUNT = 100  # Where a client does not say how many.
NUMBER_DIGITS_MAX = 19
WORD_SHOWN_MAX = 32


class SubOrder(Enum):
    """Which argument is first in a SUB with a group. The original's code and description differ."""

    GROUP_FIRST = "code"
    SID_FIRST = "readme"


@dataclass(frozen=True, slots=True)
class Mistake:
    """The error for the client; nothing was done."""

    text: str


@dataclass(frozen=True, slots=True)
class Subscribe:
    pattern: str
    sid: str
    group: str | None = None
    durable: str | None = None


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    sid: str
    count_max: int | None = None  # After so many messages, those before included; None: at once.


# A message's number and its holder: a sid, a durable name or `subject:name`; None: any holder.
# A plain tuple: there is one for every message that is delivered.
Ack: TypeAlias = tuple[int, str | None]


@dataclass(frozen=True, slots=True)
class Acks:
    """ACKs that came in a row. They have no answer, so they can be handled as one."""

    acks: list[Ack]


@dataclass(frozen=True, slots=True)
class Nack:
    ack: Ack
    delay_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Reject:
    ack: Ack
    error: str = ""


@dataclass(frozen=True, slots=True)
class Pull:
    subject: str  # Or the sid of a subscription in pull mode.
    count: int


@dataclass(frozen=True, slots=True)
class FlowControl:
    """None: as configured."""

    sid: str
    is_pull: bool
    rate: float | None = None
    burst: int | None = None
    buffer: int | None = None


@dataclass(frozen=True, slots=True)
class Statistics:
    sid: str | None = None


@dataclass(frozen=True, slots=True)
class Headers:
    """Whether messages come with their headers from here on."""

    is_on: bool


@dataclass(frozen=True, slots=True)
class ReplayOne:
    sequence: int


@dataclass(frozen=True, slots=True)
class ReplayFrom:
    sequence: int
    count: int = REPLAY_COUNT


@dataclass(frozen=True, slots=True)
class ReplayFirst:
    count: int = REPLAY_COUNT


@dataclass(frozen=True, slots=True)
class ReplayLast:
    count: int = 1


@dataclass(frozen=True, slots=True)
class ReplayTime:
    timestamp_ms: int
    count: int = REPLAY_COUNT


@dataclass(frozen=True, slots=True)
class Ping: ...


@dataclass(frozen=True, slots=True)
class Pong: ...


@dataclass(frozen=True, slots=True)
class Info: ...


@dataclass(frozen=True, slots=True, repr=False)
class Connect:
    """A login; without a user and a token it is only a greeting."""

    user: str = ""
    password: str = ""
    token: str = ""


@dataclass(frozen=True, slots=True)
class Join:
    node_id: str
    address: str


@dataclass(frozen=True, slots=True)
class Leave:
    node_id: str


Replay: TypeAlias = ReplayOne | ReplayFrom | ReplayFirst | ReplayLast | ReplayTime
Simple: TypeAlias = Mistake | Headers | Ping | Pong | Info | Join | Leave
Command: TypeAlias = (
    Subscribe
    | Unsubscribe
    | Acks
    | Nack
    | Reject
    | Pull
    | FlowControl
    | Statistics
    | Replay
    | Connect
    | Simple
)

USAGE: Mapping[str, str] = {
    "PUB": "PUB <subject> <bytes>",
    "HPUB": "HPUB <subject> <header bytes> <total bytes>",
    "SUB": "SUB <subject> [group | DURABLE:name] <sid>",
    "UNSUB": "UNSUB <sid> [messages]",
    "ACK": "ACK <seq> [sid | durable name]",
    "NACK": "NACK <seq> [sid | durable name] [delay ms]",
    "REJECT": "REJECT <seq> [sid | durable name] [why]",
    "PULL": "PULL <subject | sid> <count>",
    "STATS": "STATS [sid]",
    "HEADERS": "HEADERS ON | OFF",
    "PING": "PING",
    "PONG": "PONG",
    "INFO": "INFO",
    "CONNECT": 'CONNECT {"user": …, "pass": …} or {"auth_token": …}',
    "AUTH": "AUTH <user> <password>",
    "JOIN": "JOIN <node id> <address>",
    "LEAVE": "LEAVE <node id>",
}


def read_command(words: Sequence[bytes], order: SubOrder = SubOrder.GROUP_FIRST) -> Command:
    """Read the words of a line; PUB and HPUB come here only when they are wrong."""
    assert words
    try:
        command, *arguments = (word.decode() for word in words)
    except UnicodeDecodeError:
        return Mistake("a command is UTF-8")
    command = command.upper()
    if command == "SUB":
        return _subscribe(arguments, order)
    read = READERS.get(command)
    if read is not None:
        return read(arguments)
    return usage(command) if command in USAGE else Mistake(f"unknown command {_shown(words[0])}")


def read_connect(line: bytes) -> Command:
    """Read a whole CONNECT line: blanks in a password count."""
    try:
        options = json.loads(line.split(None, 1)[1])
    except (IndexError, ValueError, RecursionError):
        return usage("CONNECT")
    if not isinstance(options, dict):
        return usage("CONNECT")
    values = [options.get(name) or "" for name in ("user", "pass", "auth_token")]
    if not all(isinstance(value, str) for value in values):
        return usage("CONNECT")
    return Connect(*values)


def _authenticate(words: list[str]) -> Command:
    return Connect(*words) if len(words) == 2 else usage("AUTH")


def usage(command: str) -> Mistake:
    return Mistake(f"usage: {USAGE[command]}")


def number(text: bytes | str) -> int | None:
    """A whole number in plain digits; None for anything else."""
    if not text.isdigit() or not text.isascii() or len(text) > NUMBER_DIGITS_MAX:
        return None
    return int(text)


def _subscribe(words: list[str], order: SubOrder) -> Command:
    match words:
        case [pattern, sid]:
            return Subscribe(pattern, sid)
        case [pattern, first, second]:
            # A durable name is known by its prefix, so it may stand in either place.
            if first.startswith(DURABLE) or second.startswith(DURABLE):
                name, sid = (first, second) if first.startswith(DURABLE) else (second, first)
                durable = name.removeprefix(DURABLE)
                return Subscribe(pattern, sid, durable=durable) if durable else usage("SUB")
            if order is SubOrder.SID_FIRST:
                return Subscribe(pattern, first, group=second)
            return Subscribe(pattern, second, group=first)
    return usage("SUB")


def _unsubscribe(words: list[str]) -> Command:
    match words:
        case [sid]:
            return Unsubscribe(sid)
        case [sid, text] if (count_max := number(text)) is not None:
            return Unsubscribe(sid, count_max)
    return usage("UNSUB")


def _ack(words: list[str]) -> Command:
    ack = _sequence_and_holder(words) if len(words) in (1, 2) else None
    return usage("ACK") if ack is None else Acks([ack])


def _nack(words: list[str]) -> Command:
    ack = _sequence_and_holder(words[:2]) if len(words) in (1, 2, 3) else None
    if ack is None:
        return usage("NACK")
    if len(words) < 3:
        return Nack(ack)
    delay_ms = number(words[2])
    return usage("NACK") if delay_ms is None else Nack(ack, delay_ms)


def _reject(words: list[str]) -> Command:
    ack = _sequence_and_holder(words[:2]) if words else None
    return usage("REJECT") if ack is None else Reject(ack, " ".join(words[2:]))


def _sequence_and_holder(words: list[str]) -> Ack | None:
    sequence = number(words[0])
    return None if sequence is None else (sequence, words[1] if len(words) > 1 else None)


def _pull(words: list[str]) -> Command:
    if len(words) != 2:
        return usage("PULL")
    count = number(words[1])
    return Pull(words[0], count) if count else Mistake("invalid count")


def _flow_control(words: list[str]) -> Command:
    if not 2 <= len(words) <= 5:
        return Mistake("invalid FLOWCTL arguments")
    mode = words[1].upper()
    if mode not in ("PUSH", "PULL"):
        return Mistake("invalid mode (PUSH or PULL)")
    try:
        amounts = [float(word) for word in words[2:]] + [0.0] * (5 - len(words))
    except ValueError:
        return Mistake("invalid FLOWCTL arguments")
    if not all(map(isfinite, amounts)):
        return Mistake("invalid FLOWCTL arguments")
    rate = amounts[0] if amounts[0] > 0 else None
    burst, buffer = (int(amount) if amount >= 1 else None for amount in amounts[1:])
    return FlowControl(words[0], mode == "PULL", rate, burst, buffer)


def _statistics(words: list[str]) -> Command:
    return Statistics(*words) if len(words) <= 1 else usage("STATS")


def _headers(words: list[str]) -> Command:
    states = {"ON": True, "OFF": False}
    if len(words) != 1 or words[0].upper() not in states:
        return usage("HEADERS")
    return Headers(states[words[0].upper()])


def _replay(words: list[str]) -> Command:
    """`REPLAY 5` is the one record, `REPLAY SEQ 5` is from there on, as the description has it."""
    match [words[0].upper(), *words[1:]] if words else []:
        case ["LAST", *counts] if (count := _count(counts, default=1)) is not None:
            return ReplayLast(count)
        case ["FIRST", *counts] if (count := _count(counts)) is not None:
            return ReplayFirst(count)
        case ["SEQ", text, *counts] if (count := _count(counts)) is not None:
            sequence = number(text)
            if sequence is not None:
                return ReplayFrom(sequence, count)
        case ["TIME", text, *counts] if (count := _count(counts)) is not None:
            timestamp_ms = _milliseconds(text)
            if timestamp_ms is not None:
                return ReplayTime(timestamp_ms, count)
        case [text]:
            sequence = number(text)
            if sequence is not None:
                return ReplayOne(sequence)
    return Mistake("invalid replay mode")


def _count(words: list[str], default: int = REPLAY_COUNT) -> int | None:
    if not words:
        return default
    return (number(words[0]) or None) if len(words) == 1 else None


def _milliseconds(text: str) -> int | None:
    """Seconds since the epoch, whole or with a fraction."""
    seconds, _, fraction = text.partition(".")
    whole = number(seconds) if len(seconds) <= 12 else None
    if whole is None or (fraction and number(fraction) is None):
        return None
    return whole * 1000 + int(fraction[:3].ljust(3, "0"))


def _join(words: list[str]) -> Command:
    return Join(*words) if len(words) == 2 else usage("JOIN")


def _leave(words: list[str]) -> Command:
    return Leave(*words) if len(words) == 1 else usage("LEAVE")


def _alone(name: str, command: Command) -> Callable[[list[str]], Command]:
    return lambda words: usage(name) if words else command


def _shown(word: bytes) -> str:
    return repr(word[:WORD_SHOWN_MAX].decode("ascii", "replace"))


READERS: Mapping[str, Callable[[list[str]], Command]] = {
    "UNSUB": _unsubscribe,
    "ACK": _ack,
    "NACK": _nack,
    "REJECT": _reject,
    "PULL": _pull,
    "FLOWCTL": _flow_control,
    "STATS": _statistics,
    "HEADERS": _headers,
    "REPLAY": _replay,
    "PING": _alone("PING", Ping()),
    "PONG": _alone("PONG", Pong()),
    "INFO": _alone("INFO", Info()),
    "AUTH": _authenticate,
    "JOIN": _join,
    "LEAVE": _leave,
}
