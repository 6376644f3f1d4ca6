"""Computes the topic, key and headers of a published message from its line.

The first token of the subject is the topic, the whole is the key and stands in a header. Messages
with the same line share one envelope and one template, so that a batch encodes what they share
once.
"""

from functools import lru_cache
from typing import NamedTuple

from millstream.codec.encoding import MessageTemplate
from millstream.config import Limits
from millstream.engine.produce.options import check_headers
from millstream.engine.publish.subjects import check_subject, topic_of
from millstream.errors import RequestError
from millstream.errors.deliveries import InvalidSubject
from millstream.names import KEY_HEADER, SUBJECT_HEADER
from millstream.ports import Clock
from millstream.protocols.flux.wire.frames import Heading
from millstream.protocols.flux.wire.headers import HeaderList

ENVELOPES_MAX = 4_096
NO_TOPIC = ""  # Of a message that cannot be published.


class Envelope(NamedTuple):
    topic: str
    key: bytes
    headers: HeaderList
    problem: RequestError | None = None  # Why nothing can be published under this heading.
    # Made when the heading comes a second time.
    template: MessageTemplate | None = None


class Envelopes:
    """Envelopes of PUB lines are cached, for all clients that publish the same."""

    def __init__(self, clock: Clock, *, limits: Limits) -> None:
        self._clock = clock
        self._limits = limits
        self._kept: dict[Heading, Envelope] = {}

    def of(self, heading: Heading) -> Envelope:
        envelope = self._kept.get(heading)
        if envelope is not None:
            if envelope.template is None:
                # Not before: where subjects are very many, most do not come again.
                envelope = envelope._replace(template=template_of(heading, envelope))
                self._kept[heading] = envelope
            return envelope
        envelope = make_envelope(heading)
        if heading.headers:
            return self._checked(envelope)
        if len(self._kept) >= ENVELOPES_MAX:
            self._kept.clear()
        self._kept[heading] = envelope
        return envelope

    def _checked(self, envelope: Envelope) -> Envelope:
        """Check the options in the headers: a bad one would have the whole batch refused."""
        try:
            check_headers(envelope.headers, now_ms=self._clock.now_ms(), limits=self._limits)
        except RequestError as problem:
            return envelope._replace(topic=NO_TOPIC, problem=problem)
        return envelope


def template_of(heading: Heading, envelope: Envelope) -> MessageTemplate:
    """The template of all messages under a heading."""
    return MessageTemplate(envelope.key, heading.size, envelope.headers)


def make_envelope(heading: Heading) -> Envelope:
    plain = _plain(heading.subject)
    if plain.problem is not None or not heading.headers:
        return plain
    key, headers = plain.key, plain.headers
    for header in heading.headers:
        if header[0] == KEY_HEADER:
            key = header[1] or b""
        else:
            headers += (header,)
    return Envelope(plain.topic, key, headers)


@lru_cache(maxsize=ENVELOPES_MAX)
def _plain(subject: bytes) -> Envelope:
    """Of a message that says nothing but its subject."""
    try:
        text = check_subject(subject.decode())
    except UnicodeDecodeError:
        return Envelope(NO_TOPIC, b"", (), InvalidSubject(repr(subject), "it is not UTF-8"))
    except RequestError as problem:
        return Envelope(NO_TOPIC, b"", (), problem)
    return Envelope(topic_of(text), subject, ((SUBJECT_HEADER, subject),))
