r"""PUB and HPUB: publications in a row become batches, and one buffer of replies.

Owns the order of replies and what each says. What makes a batch of messages is the engine's.
"""

from asyncio import Future
from collections.abc import Coroutine, Sequence
from typing import Any, NamedTuple, TypeAlias

from millstream.codec.spelling import Message, Run
from millstream.engine.receipts import Receipts
from millstream.errors import RequestError, UnknownTopic
from millstream.model import Session
from millstream.protocols.flux import replies
from millstream.protocols.flux.context import Services
from millstream.protocols.flux.envelopes import NO_TOPIC, Envelope
from millstream.protocols.flux.replies import Reply
from millstream.protocols.flux.wire import Publications


class _Sent:
    """What went to one topic: which of the publications, and what becomes of them."""

    __slots__ = ("indexes", "receipts")

    def __init__(self, indexes: Sequence[int], receipts: "Future[Receipts]") -> None:
        self.indexes = indexes
        self.receipts = receipts


# By topic: which of the publications, and what they become.
_Groups: TypeAlias = dict[str, tuple[Sequence[int], Sequence[Message]]]


class Published(NamedTuple):
    """Publications that are on their way."""

    # What a coroutine yields to its loop is between the two of them.
    answer: Coroutine[Any, Any, Reply]
    is_waiting: bool  # For a topic that is being created: better let others not pile up behind it.


def publish(services: Services, session: Session, run: Publications) -> Published:
    """Write all of it now, in order; the rest is to wait for it and to say so."""
    headings, payloads = run.headings, run.payloads
    count = len(payloads)
    problems: dict[int, RequestError] = {}
    if headings.count(headings[0]) == count:
        topic, key, headers, problem = services.envelopes.of(headings[0])
        if problem is None:
            groups: _Groups = {topic: (range(count), Run(key, payloads, headers))}
        else:
            groups, problems = {}, dict.fromkeys(range(count), problem)
    else:
        groups = _grouped(services.envelopes.of_all(headings), payloads, problems)
    is_waiting = not all(_exists(services, session, topic) for topic in groups)
    sent = [
        _Sent(indexes, services.publisher.publish_many(session, topic, messages))
        for topic, (indexes, messages) in groups.items()
    ]
    return Published(_answered(sent, problems, count), is_waiting)


def _grouped(
    envelopes: list[Envelope], payloads: list[bytes], problems: dict[int, RequestError]
) -> _Groups:
    """Messages by their topic; those that are wrong are added to `problems` instead."""
    messages: list[Message] = [
        (key, payload, headers)
        for (_, key, headers, _), payload in zip(envelopes, payloads, strict=True)
    ]
    topics = {envelope.topic for envelope in envelopes}
    if len(topics) == 1 and NO_TOPIC not in topics:
        return {topics.pop(): (range(len(messages)), messages)}
    groups: dict[str, tuple[list[int], list[Message]]] = {}
    for index, envelope in enumerate(envelopes):
        if envelope.problem is not None:
            problems[index] = envelope.problem
            continue
        indexes, chosen = groups.setdefault(envelope.topic, ([], []))
        indexes.append(index)
        chosen.append(messages[index])
    return {**groups}


def _exists(services: Services, session: Session, topic: str) -> bool:
    try:
        services.topics.describe(session, topic)
    except UnknownTopic:
        return False
    except RequestError:
        return True  # Whoever publishes to it is told the same.
    return True


async def _answered(sent: list[_Sent], problems: dict[int, RequestError], count: int) -> Reply:
    known = [(one.indexes, await one.receipts) for one in sent]
    if not problems and all(receipts.is_plain for _, receipts in known):
        return [replies.OK * count]
    told = [replies.OK] * count
    for index, problem in problems.items():
        told[index] = replies.refusal(problem)
    for indexes, receipts in known:
        if not receipts.is_plain:
            for at, index in enumerate(indexes):
                told[index] = _reply(receipts, at)
    return [b"".join(told)]


def _reply(receipts: Receipts, index: int) -> bytes:
    try:
        receipt = receipts[index]
    except RequestError as problem:
        return replies.refusal(problem)
    if receipt.is_duplicate:
        return replies.DUPLICATE
    if receipt.deferred_id is not None:
        return replies.ok(f"DEFERRED {receipt.deferred_id}")
    return replies.OK
