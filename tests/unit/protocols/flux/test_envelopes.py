"""From a subject to a record: topic, key and headers."""

import pytest

from millstream.config import Limits
from millstream.errors import InvalidBatch, RequestError
from millstream.errors.deliveries import InvalidSubject
from millstream.protocols.flux.envelopes import ENVELOPES_MAX, Envelope, Envelopes
from millstream.protocols.flux.wire.frames import Heading


class StoppedClock:
    def now_ms(self) -> int:
        return 1_700_000_000_000


def envelopes() -> Envelopes:
    return Envelopes(StoppedClock(), limits=Limits(delay_ms_max=60_000))


def test_the_first_word_is_the_topic_and_the_whole_is_key_and_header() -> None:
    envelope = envelopes().of(Heading(b"orders.us.created", 5))

    headers = (("ms-subject", b"orders.us.created"),)
    assert envelope == Envelope("orders", b"orders.us.created", headers)


def test_a_key_may_be_given_and_is_no_header_then() -> None:
    envelope = envelopes().of(Heading(b"orders", 5, (("a", b"1"), ("ms-key", b"k"))))

    assert envelope.key == b"k"
    assert envelope.headers == (("ms-subject", b"orders"), ("a", b"1"))


def test_a_heading_that_comes_again_has_the_same_envelope() -> None:
    known, heading = envelopes(), Heading(b"orders", 5)

    first, *others = [known.of(heading) for _ in range(3)]

    # What it has in common with others in a batch is found out when it comes again.
    assert [other._replace(template=None) for other in others] == [first] * 2
    assert others[0] is others[1]
    assert others[0].template is not None
    assert (others[0].template.key, others[0].template.size) == (b"orders", 5)


def test_what_is_kept_is_bounded() -> None:
    known = envelopes()
    headings = [Heading(b"orders.%d" % n, 1) for n in range(ENVELOPES_MAX + 1)]
    first = known.of(headings[0])

    for heading in headings:
        known.of(heading)

    again = known.of(headings[0])
    assert again == first
    assert again is not first


@pytest.mark.parametrize(
    ("heading", "kind"),
    [
        (Heading(b"orders.*", 1), InvalidSubject),
        (Heading(b"orders..us", 1), InvalidSubject),
        (Heading(b"orders.\xff", 1), InvalidSubject),
        (Heading(b"orders.\x01", 1), InvalidSubject),
        (Heading(b"orders", 1, (("ms-delay-ms", b"soon"),)), InvalidBatch),
        (Heading(b"orders", 1, (("ms-delay-ms", b"60001"),)), InvalidBatch),
        (Heading(b"orders", 1, (("ms-ttl-ms", b"-1"),)), InvalidBatch),
        (Heading(b"orders", 1, (("ms-message-id", b""),)), InvalidBatch),
    ],
)
def test_what_cannot_be_published_is_known_before_it_meets_its_neighbours(
    heading: Heading, kind: type[RequestError]
) -> None:
    assert isinstance(envelopes().of(heading).problem, kind)
