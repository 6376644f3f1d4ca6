"""Dead letters whose way back leaves spans, for nodes with a `tracing.endpoint`.

A letter has the headers of its record: the span stands in the trace that the producer began.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from millstream.codec.records import Record
from millstream.control.catalog import Topic
from millstream.engine.dead_letters.redriven import RedrivenLetters
from millstream.engine.dead_letters.service import DeadLetter, DeadLetters
from millstream.model import SYSTEM_SESSION, Offset, TopicPartition
from millstream.tracing import conventions
from millstream.tracing.spans import (
    LINKS_MAX,
    TRACEPARENT,
    Span,
    TraceContext,
    Tracer,
    read_traceparent,
)

OPERATION = "redrive"


class TracedDeadLetters(DeadLetters):
    def __init__(self, tracer: Tracer, *services: Any, **settings: Any) -> None:
        super().__init__(*services, **settings)  # As `DeadLetters` has them.
        self._tracer = tracer

    async def _send_back(
        self,
        redriven: RedrivenLetters,
        topic: Topic,
        destination: TopicPartition,
        letters: Sequence[DeadLetter],
        least: Offset,
    ) -> Offset:
        contexts = contexts_of(letter.record for letter in letters)
        sampled = [context for context in contexts if context.is_sampled]
        if not sampled and (contexts or not self._tracer.begins_trace()):
            return await super()._send_back(redriven, topic, destination, letters, least)
        began_ns = self._tracer.now_ns()
        offset, error = None, ""
        try:
            offset = await super()._send_back(redriven, topic, destination, letters, least)
            return offset
        except BaseException as problem:
            error = type(problem).__name__
            raise
        finally:
            attributes = conventions.messaging(OPERATION, SYSTEM_SESSION, destination, error=error)
            self._tracer.end(
                Span(
                    name=f"{OPERATION} {destination.topic}",
                    began_ns=began_ns,
                    ended_ns=self._tracer.now_ns(),
                    attributes=attributes | conventions.batch(offset=offset, count=len(letters)),
                    contexts=sampled,
                    error=error,
                )
            )


def contexts_of(records: Iterable[Record]) -> list[TraceContext]:
    """The contexts in the headers of records, each once, `LINKS_MAX` at most."""
    contexts: dict[TraceContext, None] = {}
    for record in records:
        for name, value in record.headers:
            if name == TRACEPARENT and value is not None:
                context = read_traceparent(bytes(value).decode("latin-1"))
                if context is not None:
                    contexts[context] = None
        if len(contexts) >= LINKS_MAX:
            break
    return list(contexts)[:LINKS_MAX]
