"""What a published message becomes besides its payload: its topic, its key and its headers.

Owns the way from a subject to a record: the first token is the topic, the whole is the key and
stands in a header. The one thing to know: neighbours with the same line share one envelope, so that
a batch spells what they share once.
"""

from typing import NamedTuple, cast

from millstream.codec.records import Record
from millstream.engine import queue_headers
from millstream.engine.subjects import check_subject, topic_of
from millstream.errors import RequestError
from millstream.errors.deliveries import InvalidSubject
from millstream.ports import Clock
from millstream.protocols.flux.headers import KEY, SUBJECT, HeaderList
from millstream.protocols.flux.wire import Heading

ENVELOPES_MAX = 4_096
NO_TOPIC = ""  # Of what cannot be published.


class Envelope(NamedTuple):
    topic: str
    key: bytes
    headers: HeaderList
    problem: RequestError | None = None  # Why nothing can be published under this heading.


class Envelopes:
    """Those of PUB lines are kept, for all who publish the same."""

    def __init__(self, clock: Clock, *, delay_ms_max: int) -> None:
        self._clock = clock
        self._delay_ms_max = delay_ms_max
        self._kept: dict[Heading, Envelope] = {}

    def of_all(self, headings: list[Heading]) -> list[Envelope]:
        found = list(map(self._kept.get, headings))
        # By identity and in C: nearly always all of them are known.
        if None in found:
            return [self.of(heading) for heading in headings]
        return cast(list[Envelope], found)

    def of(self, heading: Heading) -> Envelope:
        envelope = self._kept.get(heading)
        if envelope is not None:
            return envelope
        envelope = make_envelope(heading)
        if heading.headers:
            return self._checked(envelope)
        if len(self._kept) >= ENVELOPES_MAX:
            self._kept.clear()
        self._kept[heading] = envelope
        return envelope

    def _checked(self, envelope: Envelope) -> Envelope:
        """Read what the headers ask for: a batch would be refused with all that is in it."""
        record = Record(0, 0, None, None, envelope.headers)
        now_ms = self._clock.now_ms()
        try:
            queue_headers.read_asked([record], now_ms=now_ms, delay_ms_max=self._delay_ms_max)
        except RequestError as problem:
            return envelope._replace(topic=NO_TOPIC, problem=problem)
        return envelope


def make_envelope(heading: Heading) -> Envelope:
    try:
        subject = check_subject(heading.subject.decode())
    except UnicodeDecodeError:
        return Envelope(NO_TOPIC, b"", (), InvalidSubject(repr(heading.subject), "it is not UTF-8"))
    except RequestError as problem:
        return Envelope(NO_TOPIC, b"", (), problem)
    key = heading.subject
    headers: HeaderList = ((SUBJECT, heading.subject),)
    for header in heading.headers:
        if header[0] == KEY:
            key = header[1] or b""
        else:
            headers += (header,)
    return Envelope(topic_of(subject), key, headers)
