"""Splits the bytes of a Flux client into commands.

Finds the ends of lines, header blocks and payloads, however the stream was cut. Pure. Publications
that come in a row become one request, because they are written as one batch; the line of a PUB is
parsed once, since a client that publishes a lot sends the same few lines again and again. A line
that breaks the rules is a `Mistake` in its place, and reading goes on behind it: after the payload
if its size is known, else with the next line.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import cast

from millstream.protocols.flux.wire.commands import (
    NUMBER_DIGITS_MAX,
    Acks,
    Command,
    Mistake,
    SubOrder,
    number,
    read_command,
    read_connect,
    usage,
)
from millstream.protocols.flux.wire.headers import HeaderList, read_headers

KNOWN_LINES_MAX = 8_192  # Each counts twice.
KNOWN_LINE_BYTES_MAX = 256
ACKS_MAX = 1_000  # In a row that become one request.
# Looked at at once for publications under mixed headings.
BLOCK_BYTES_MIN = 4 * 2**10
BLOCK_BYTES_MAX = 64 * 2**10
MIXED_MIN = 8  # With fewer of them in a block it is cheaper to take them one by one.


class Heading:
    """The line and headers before a payload. Compared by identity, as the key of its envelope."""

    __slots__ = ("headers", "seam", "size", "subject")

    def __init__(
        self, subject: bytes, size: int, headers: HeaderList = (), seam: bytes = b""
    ) -> None:
        self.subject = subject
        self.size = size  # Of the payload.
        self.headers = headers
        self.seam = seam  # The bytes between two payloads, if the next has the same heading.


Known = dict[bytes, Heading]  # By the line of a PUB, without its LF. For all clients of a listener.


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    line_bytes_max: int
    header_bytes_max: int
    payload_bytes_max: int


class Publications:
    """Consecutive publications: the heading of each, and its payload."""

    __slots__ = ("headings", "payloads")

    def __init__(self) -> None:
        self.headings: list[Heading] = []
        self.payloads: list[bytes] = []


class Request:
    """A command and its length in bytes."""

    __slots__ = ("command", "size")

    def __init__(self, command: Command | Publications, size: int) -> None:
        self.command = command
        self.size = size

    def __len__(self) -> int:
        return self.size


class Parser:
    """Feed it chunks of any size."""

    def __init__(
        self, known: Known, bounds: Bounds, order: SubOrder = SubOrder.GROUP_FIRST
    ) -> None:
        self._known = known
        self._bounds = bounds
        self._order = order
        self._held: list[bytes] = []  # The bytes of a command that is not whole yet.
        self._held_bytes = 0
        self._wanted_bytes = 0  # Before that many are there, there is no use in looking at it.
        self._skipped_bytes = 0  # Still to come of a payload that is refused.
        self._skips_line = False  # And whatever comes before the next LF.

    @property
    def unfinished_bytes(self) -> int:
        return self._held_bytes

    def allow(self, bounds: Bounds) -> None:
        """Take larger commands from here on."""
        self._bounds = bounds

    def feed(self, data: bytes) -> Iterator[Request]:
        """Yield the commands that `data` completes; feed again after all of them."""
        if self._held_bytes:
            self._held.append(data)
            self._held_bytes += len(data)
            if self._held_bytes < self._wanted_bytes:
                return
            data = b"".join(self._held)
        self._held, self._held_bytes = [], len(data)
        at = 0
        while True:
            begun = at = self._skip(data, at)
            run = Publications()
            at = self._publications(data, at, run)
            if run.payloads:
                yield Request(run, at - begun)
                continue
            command, at = self._command(data, at)
            if command is not None:
                yield Request(command, at - begun)
            elif at == begun:
                break
        tail = data[at:]
        self._held, self._held_bytes = [tail], len(tail)

    def _skip(self, data: bytes, at: int) -> int:
        """Skip the bytes of a refused command, as far as they have arrived."""
        skipped = min(self._skipped_bytes, len(data) - at)
        self._skipped_bytes -= skipped
        at += skipped
        if self._skips_line and not self._skipped_bytes:
            eol = data.find(b"\n", at)
            self._skips_line = eol < 0
            return len(data) if eol < 0 else eol + 1
        return at

    def _publications(self, data: bytes, at: int, run: Publications) -> int:
        """Read consecutive publications. These are the broker's hottest loops: keep them bare."""
        if self._skipped_bytes or self._skips_line:
            return at
        known, find, startswith = self._known, data.find, data.startswith
        add_heading, add_payload = run.headings.append, run.payloads.append
        last: Heading | None = None
        block_bytes = BLOCK_BYTES_MIN
        while (eol := find(b"\n", at)) >= 0:
            heading = known.get(data[at:eol])
            start = eol + 1
            if heading is None or not startswith(b"\r\n", end := start + heading.size):
                publication = self._publication(data, at, eol)
                if publication is None:
                    break
                heading, start, at = publication
                end = start + heading.size
            else:
                at = end + 2
            add_heading(heading)
            add_payload(data[start:end])
            if heading is last:
                at = _repeated(data, end, run) or at
            elif block_bytes and last is not None:
                at, block_bytes = _mixed(data, at, known, run, block_bytes)
            last = run.headings[-1]
        return at

    def _publication(self, data: bytes, at: int, eol: int) -> tuple[Heading, int, int] | None:
        """Read one that is whole and right: its heading, where its payload starts, where it ends.

        None: `_command` reads it instead.
        """
        known = self._known.get(data[at:eol])
        if known is not None and data.startswith(b"\n", end := eol + 1 + known.size):
            return known, eol + 1, end + 1
        words = data[at:eol].split() if eol - at <= self._bounds.line_bytes_max else []
        if not words or words[0].upper() not in _PUBLISHING:
            return None
        read = self._heading(words, data, eol + 1)
        if isinstance(read, Mistake) or read is None:
            return None
        heading, start = read
        end = start + heading.size
        if data.startswith(b"\r\n", end):
            end += 2
        elif data.startswith(b"\n", end):
            end += 1
        else:
            return None
        if not heading.headers and len(words) == _PUB_WORDS and eol - at <= KNOWN_LINE_BYTES_MAX:
            self._learn(data[at:eol], heading)
        return heading, start, end

    def _learn(self, line: bytes, heading: Heading) -> None:
        """With and without the CR: it is looked for in a stream cut at LF, or at CRLF."""
        if len(self._known) + 2 > KNOWN_LINES_MAX:
            self._known.clear()
        heading.seam = b"\r\n%b\n" % line
        self._known[line] = self._known[line.removesuffix(b"\r")] = heading

    def _heading(
        self, words: list[bytes], data: bytes, at: int
    ) -> tuple[Heading, int] | Mistake | None:
        """Read the heading, and where its payload starts; None: it has not arrived yet."""
        sizes = _sizes(words)
        if isinstance(sizes, Mistake):
            return sizes
        header_bytes, total_bytes = sizes
        if header_bytes > self._bounds.header_bytes_max:
            return Mistake(f"headers of more than {self._bounds.header_bytes_max} bytes")
        if total_bytes > self._bounds.payload_bytes_max:
            return Mistake(f"a payload of more than {self._bounds.payload_bytes_max} bytes")
        if header_bytes == 0:
            return Heading(words[1], total_bytes), at
        if len(data) < at + header_bytes:
            return None
        headers = read_headers(data[at : at + header_bytes])
        if isinstance(headers, Mistake):
            return headers
        return Heading(words[1], total_bytes - header_bytes, headers), at + header_bytes

    def _command(self, data: bytes, at: int) -> tuple[Command | None, int]:
        """Parse one command that is not a complete PUB or HPUB; None if it is incomplete."""
        self._wanted_bytes = 0
        if self._skipped_bytes or self._skips_line:
            return None, at
        eol = data.find(b"\n", at)
        if (len(data) if eol < 0 else eol) - at > self._bounds.line_bytes_max:
            self._skips_line = True
            return Mistake(f"a line of more than {self._bounds.line_bytes_max} bytes"), at
        if eol < 0:
            return None, at
        words = data[at:eol].split()
        if not words:
            return None, eol + 1
        if words[0].upper() in _PUBLISHING:
            return self._unpublished(words, data, at, eol + 1)
        if words[0].upper() == b"CONNECT":
            return read_connect(data[at:eol]), eol + 1
        command = read_command(words, self._order)
        if isinstance(command, Acks):
            return self._acks(command, data, eol + 1)
        return command, eol + 1

    def _unpublished(
        self, words: list[bytes], data: bytes, at: int, behind: int
    ) -> tuple[Command | None, int]:
        """Say why a PUB or HPUB is none: it is wrong, or not all of it is there."""
        sizes = _sizes(words)
        if isinstance(sizes, Mistake):
            return sizes, behind  # The length of its payload is unknown: go on with the next line.
        end = behind + sizes[1]
        mistake = self._heading(words, data, behind)
        if not isinstance(mistake, Mistake):
            if len(data) <= end or data[end:] == b"\r":
                self._wanted_bytes = max(end, len(data)) + 1 - at
                return None, at
            mistake = Mistake(f"what follows is longer than {sizes[1]} bytes")
        self._skipped_bytes = sizes[1]
        self._skips_line = True
        return mistake, behind

    def _acks(self, acks: Acks, data: bytes, at: int) -> tuple[Acks, int]:
        """Take along those that follow: there are as many as there are messages."""
        add, find, startswith = acks.acks.append, data.find, data.startswith
        while len(acks.acks) < ACKS_MAX and startswith(b"ACK ", at):
            eol = find(b"\n", at)
            text = data[at + 4 : eol].rstrip()
            if eol < 0 or not text.isdigit() or len(text) > NUMBER_DIGITS_MAX:
                break  # It is not whole, or says more, or is wrong: `read_command` knows.
            add((int(text), None))
            at = eol + 1
        return acks, at


_PUBLISHING = (b"PUB", b"HPUB")
_PUB_WORDS = 3
_HPUB_WORDS = 4
_SIZE_OF = attrgetter("size")


def _repeated(data: bytes, end: int, run: Publications) -> int:
    """Take all that follow under the same heading as the last one, whose payload ends at `end`.

    Return where they end; 0 if there are none.
    """
    heading = run.headings[-1]
    seam, size, startswith = heading.seam, heading.size, data.startswith
    if not seam:
        return 0
    start, gap, add_payload = 0, len(seam), run.payloads.append
    while startswith(seam, end):
        start = end + gap
        end = start + size
        add_payload(data[start:end])
    if not start:
        return 0
    end += 2
    if not startswith(b"\r\n", end - 2):
        run.payloads.pop()  # It is not whole: its line has another turn.
        end = start + 2 - gap
    run.headings += [heading] * (len(run.payloads) - len(run.headings))
    return end


def _mixed(
    data: bytes, at: int, known: Known, run: Publications, block_bytes: int
) -> tuple[int, int]:
    """Take the publications of a block under known headings, if no payload has a CRLF in it.

    Return where they end, and how large a block to try next: a small one where not all could be
    taken, since the bytes behind were split in vain; none where there were hardly any.
    """
    block = data[at : at + block_bytes]
    parts = block.split(b"\r\n")
    whole = (len(parts) - 1) // 2
    payloads = parts[1 : 2 * whole : 2]
    headings_or_none = list(map(known.get, parts[0 : 2 * whole : 2]))
    count = headings_or_none.index(None) if None in headings_or_none else whole
    headings = cast(list[Heading], headings_or_none[:count])
    sizes, lengths = list(map(_SIZE_OF, headings)), list(map(len, payloads[:count]))
    if sizes != lengths:
        count = next(index for index in range(count) if sizes[index] != lengths[index])
    run.headings += headings[:count]
    run.payloads += payloads[:count]
    left = parts[2 * count :]
    end = at + len(block) - sum(map(len, left)) - 2 * (len(left) - 1)
    if count == whole and (count or block_bytes < BLOCK_BYTES_MAX):
        return end, min(2 * block_bytes, BLOCK_BYTES_MAX)
    return end, BLOCK_BYTES_MIN if count >= MIXED_MIN else 0


def _sizes(words: list[bytes]) -> tuple[int, int] | Mistake:
    """How many bytes the headers have, and how many there are in all."""
    is_plain = words[0].upper() == b"PUB"
    if len(words) != (_PUB_WORDS if is_plain else _HPUB_WORDS):
        return usage("PUB" if is_plain else "HPUB")
    total_bytes = number(words[-1])
    header_bytes = 0 if is_plain else number(words[2])
    if total_bytes is None or header_bytes is None or total_bytes < header_bytes:
        return usage("PUB" if is_plain else "HPUB")
    return header_bytes, total_bytes
