"""PUB and HPUB: publications in a row become batches, and one buffer of replies.

Owns the order and the text of replies. The engine's publisher makes batches of messages.
"""

from asyncio import Future
from collections import defaultdict
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from millstream.codec.encoding import Message, TemplatedMessages, select_messages
from millstream.engine.publish.receipts import Receipt, Receipts
from millstream.errors import RequestError, UnknownTopic
from millstream.model import Session
from millstream.protocols.flux.context import Services
from millstream.protocols.flux.envelopes import NO_TOPIC, Envelope, template_of
from millstream.protocols.flux.wire import replies
from millstream.protocols.flux.wire.frames import Heading, Publications
from millstream.protocols.flux.wire.replies import Reply

# Messages per heading, on average, from which on templates are faster.
ALIKE_MIN = 2


class _Sent:
    """The publications to one topic, by index, and their receipts."""

    __slots__ = ("indexes", "receipts")

    def __init__(self, indexes: Sequence[int], receipts: "Future[Receipts]") -> None:
        self.indexes = indexes
        self.receipts = receipts


_Known: TypeAlias = Mapping[Heading, Envelope]


class Published(NamedTuple):
    """Publications that are on their way, or stored already: then the answer is known."""

    # Any: PEP 492 leaves the yield type to the loop.
    answer: Coroutine[Any, Any, Reply] | Reply
    is_waiting: bool  # For a topic that is being created: better let others not pile up behind it.


def publish(services: Services, session: Session, run: Publications) -> Published:
    """Write all of it now, in order; the answer waits until it is stored, unless it is."""
    headings, payloads = run.headings, run.payloads
    if len(payloads) == 1:
        return _publish_one(services, session, services.envelopes.of(headings[0]), payloads[0])
    known = {heading: services.envelopes.of(heading) for heading in set(headings)}
    by_topic = _by_topic(headings, known)
    problems = {
        index: problem
        for index in by_topic.pop(NO_TOPIC, ())
        if (problem := known[headings[index]].problem) is not None
    }
    is_waiting = not all(_exists(services, session, topic) for topic in by_topic)
    messages = _messages(known, run)
    sent = []
    for topic, indexes in by_topic.items():
        chosen = select_messages(messages, indexes)
        sent.append(_Sent(indexes, services.publisher.publish_many(session, topic, chosen)))
    if all(batch.receipts.done() for batch in sent):
        known_receipts = [(batch.indexes, batch.receipts.result()) for batch in sent]
        return Published(_answer(known_receipts, problems, len(payloads)), is_waiting)
    return Published(_answered(sent, problems, len(payloads)), is_waiting)


def _publish_one(
    services: Services, session: Session, envelope: Envelope, payload: bytes
) -> Published:
    """The same of a publisher that waits for each answer, for half of the time."""
    if envelope.problem is not None:
        return Published([replies.refusal(envelope.problem)], is_waiting=False)
    message = envelope.key, payload, envelope.headers
    try:
        publishing = services.publisher.publish_one(session, envelope.topic, message)
        if publishing.is_known:
            return Published([_reply(publishing.result())], is_waiting=False)
    except RequestError as problem:
        return Published([replies.refusal(problem)], is_waiting=False)
    is_waiting = not _exists(services, session, envelope.topic)
    return Published(_answered_one(publishing), is_waiting)


def _by_topic(headings: list[Heading], known: _Known) -> dict[str, Sequence[int]]:
    """Which of the publications go to which topic, in their order."""
    topics = {heading: envelope.topic for heading, envelope in known.items()}
    if len(names := set(topics.values())) == 1:
        return {names.pop(): range(len(headings))}
    indexes: defaultdict[str, list[int]] = defaultdict(list)
    for index, topic in enumerate(map(topics.__getitem__, headings)):
        indexes[topic].append(index)
    return {**indexes}


def _messages(known: _Known, run: Publications) -> Sequence[Message]:
    """The messages of the publications, also of those that have problems."""
    headings, payloads = run.headings, run.payloads
    is_known = all(envelope.template is not None for envelope in known.values())
    if is_known or len(known) * ALIKE_MIN <= len(headings):
        templates = {
            heading: envelope.template or template_of(heading, envelope)
            for heading, envelope in known.items()
        }
        if len(templates) == 1:
            return TemplatedMessages([*templates.values()] * len(headings), payloads)
        return TemplatedMessages(list(map(templates.__getitem__, headings)), payloads)
    envelopes = map(known.__getitem__, headings)
    return [
        (envelope.key, payload, envelope.headers)
        for envelope, payload in zip(envelopes, payloads, strict=True)
    ]


def _exists(services: Services, session: Session, topic: str) -> bool:
    try:
        services.topics.describe(session, topic)
    except UnknownTopic:
        return False
    except RequestError:
        return True  # Every publisher to it gets the same answer.
    return True


async def _answered_one(publishing: Awaitable[Receipt]) -> Reply:
    try:
        return [_reply(await publishing)]
    except RequestError as problem:
        return [replies.refusal(problem)]


async def _answered(sent: list[_Sent], problems: dict[int, RequestError], count: int) -> Reply:
    known = [(batch.indexes, await batch.receipts) for batch in sent]
    return _answer(known, problems, count)


def _answer(
    known: list[tuple[Sequence[int], Receipts]], problems: dict[int, RequestError], count: int
) -> Reply:
    if not problems and all(receipts.is_plain for _, receipts in known):
        return [replies.OK * count]
    answers = [replies.OK] * count
    for index, problem in problems.items():
        answers[index] = replies.refusal(problem)
    for indexes, receipts in known:
        if not receipts.is_plain:
            for index, outcome in zip(indexes, receipts.outcomes(), strict=True):
                answers[index] = _reply(outcome)
    return [b"".join(answers)]


def _reply(outcome: Receipt | RequestError) -> bytes:
    if isinstance(outcome, RequestError):
        return replies.refusal(outcome)
    if outcome.is_duplicate:
        return replies.DUPLICATE
    if outcome.delayed_id is not None:
        return replies.ok(f"DEFERRED {outcome.delayed_id}")
    return replies.OK
