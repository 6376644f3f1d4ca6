"""Encodes the requests of a client and decodes its replies, for each protocol. Pure.

Everything is made of frames of one size, so that a client needs no more than a count of answers to
know how much it may send: what Python costs must not bound a broker. Values hold digits, spaces
and small letters alone; no word that is looked for in a stream can stand in one.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

NUMBER_BYTES = 16
RARE, HALF = b"rare", b"half"  # Words in one value of a hundred, and in every second one.
INBOX = b"_INBOX.b"
NATS_GREETING = b'CONNECT {"verbose":false,"pedantic":false}\r\n'
TAIL_COUNT = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How one protocol is spoken. An `answer` stands once in every reply to a publication."""

    greeting: bytes = b""
    publish: bytes  # With places for subject, size and value.
    answer: bytes
    error: bytes
    subscribe: bytes  # With a place for the subject.
    subscribed: bytes
    message: bytes  # A regular expression with a place for the size: what is done, and a number.


FLUX = Dialect(
    publish=b"PUB %b %d\r\n%b\r\n",
    answer=b"+OK",
    error=b"-ERR",
    subscribe=b"SUB %b s\r\n",
    subscribed=b"+OK\r\n",
    message=rb"MSG \S+ s %d (\d+)\r\n(\d{16})[^\r]*\r\n",
)
CORE_NATS = Dialect(
    greeting=NATS_GREETING,
    publish=b"PUB %b %d\r\n%b\r\n",
    answer=b"",
    error=b"-ERR",
    subscribe=b"SUB %b 1\r\nPING\r\n",
    subscribed=b"PONG\r\n",
    message=rb"MSG \S+ (1) %d\r\n(\d{16})[^\r]*\r\n",
)
JETSTREAM = Dialect(
    greeting=NATS_GREETING + b"SUB %b 1\r\n" % INBOX,
    publish=b"PUB %%b %b %%d\r\n%%b\r\n" % INBOX,
    answer=b'"seq":',
    error=b'"error"',
    subscribe=CORE_NATS.subscribe,
    subscribed=CORE_NATS.subscribed,
    message=CORE_NATS.message,
)
DIALECTS = {"flux": FLUX, "core nats": CORE_NATS, "jetstream": JETSTREAM}


def tails(size: int) -> list[bytes]:
    """What follows the number in a value: the value of number `n` ends in number `n % 100`."""
    padding_bytes = size - NUMBER_BYTES
    fields = []
    for number in range(TAIL_COUNT):
        words = [b"", HALF if number % 2 == 0 else b"none", RARE if number == 0 else b"none"]
        fields.append(b" ".join(words)[:padding_bytes].ljust(padding_bytes, b"x"))
    return fields


def value(number: int, size: int) -> bytes:
    return b"%016d" % number + tails(size)[number % TAIL_COUNT]


def subjects(topic: str, count: int) -> list[bytes]:
    """As long as each other; there are ten at most."""
    assert count <= 10
    return [f"{topic}.s{number}".encode() for number in range(count)]


def publications(
    dialect: Dialect, subjects: Sequence[bytes], *, size: int, count: int
) -> tuple[bytes, int]:
    """All that a publisher says, subjects in turn, and how long one publication is."""
    ends = tails(size)
    heads = [dialect.publish % (subject, size, b"%b") for subject in subjects]
    said = b"".join(
        heads[number % len(heads)] % (b"%016d" % number + ends[number % TAIL_COUNT])
        for number in range(count)
    )
    assert len(said) % count == 0, "publications differ in length"
    return said, len(said) // count


def deferred_publications(
    subject: bytes, dues_ms: Sequence[int], *, size: int
) -> tuple[bytes, int]:
    """What a Flux publisher says for records that are to be delivered at these times."""
    ends = tails(size)
    frames = []
    for number, due_ms in enumerate(dues_ms):
        headers = b"ms-deliver-at: %d\r\n\r\n" % due_ms
        head = b"HPUB %b %d %d\r\n" % (subject, len(headers), len(headers) + size)
        frames.append(head + headers + b"%016d" % number + ends[number % TAIL_COUNT] + b"\r\n")
    assert len({len(frame) for frame in frames}) == 1, "publications differ in length"
    return b"".join(frames), len(frames[0])


class Counter:
    """How often a word was in a stream, however it was cut."""

    def __init__(self, word: bytes) -> None:
        self._word = word
        self._tail = b""
        self.count = 0

    def feed(self, data: bytes) -> None:
        joined = self._tail + data
        self.count += joined.count(self._word)
        # Too short for the word itself, so nothing is counted twice.
        self._tail = joined[len(joined) - len(self._word) + 1 :] if len(self._word) > 1 else b""


class Messages:
    """Cuts what a subscriber hears into `(what is acknowledged, number)`, however it came."""

    def __init__(self, dialect: Dialect, size: int) -> None:
        self._pattern = re.compile(dialect.message.replace(b"%d", b"%d" % size))
        self._unread = b""

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        data = self._unread + data
        pairs: list[tuple[bytes, bytes]] = self._pattern.findall(data)
        last = data.rfind(b"MSG ")
        whole = self._pattern.match(data, last) if last >= 0 else None
        if whole is not None:
            last = whole.end()
        # Without a beginning: whatever it is, it is shorter than a word that begins one.
        self._unread = data[last:] if last >= 0 else data[-3:]
        return pairs


class Allowance:
    """How much of what there is to say may be said, with so many answers outstanding."""

    def __init__(self, said: bytes, frame_bytes: int, window: int) -> None:
        self._said = memoryview(said)
        self._frame_bytes = frame_bytes
        self._window = window
        self._sent_bytes = 0

    def part(self, answered: int, bytes_max: int) -> memoryview:
        """What to send next; empty when answers have to come first, or all was said."""
        allowed = (answered + self._window) * self._frame_bytes
        return self._said[self._sent_bytes : min(allowed, self._sent_bytes + bytes_max)]

    def sent(self, count_bytes: int) -> None:
        self._sent_bytes += count_bytes

    @property
    def is_used_up(self) -> bool:
        return self._sent_bytes == len(self._said)
