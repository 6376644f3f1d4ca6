"""`client.delayed`: look at records that wait for their time, and cancel them.

Owns the requests to the broker, which keeps what waits; nothing is kept here. Records are delayed
by sending them so, see `records`.
"""

import struct

from millstream.client.answers import Reader, text, understanding
from millstream.client.errors import Refused
from millstream.client.models import Delayed, DelayedPage, DelayedRecord
from millstream.client.own import OwnRequests

LIST, DESCRIBE, CANCEL = range(10_008, 10_011)
LISTED_MAX = 1_000  # What the broker tells in one answer.


class DelayedRecords:
    def __init__(self, requests: OwnRequests) -> None:
        self._requests = requests

    def list(
        self, topic: str | None = None, *, limit: int = 100, after: str | None = None
    ) -> DelayedPage:
        """Those of a topic, or of all, in the order of their arrival; at most 1,000 at once.

        The next page begins `after` the `next_after` of this one.
        """
        doing = "list delayed records" + ("" if topic is None else f" of {topic!r}")
        if limit < 1:
            raise Refused(f"cannot {doing}: a limit of {limit}; at least 1")
        body = text(topic) + text(after) + struct.pack(">i", min(limit, LISTED_MAX))
        answer = self._ask(LIST, body, doing)
        with understanding(doing):
            records = answer.array(lambda: _delayed(answer, answer.text()))
            return DelayedPage(tuple(records), answer.maybe_text())

    def describe(self, id: str) -> DelayedRecord:  # noqa: A002 - what it is called everywhere
        """One of them with what will be delivered; `NotFound` if it does not wait any more."""
        doing = f"look at the delayed record {id!r}"
        answer = self._ask(DESCRIBE, text(id), doing)
        with understanding(doing):
            found = _delayed(answer, id)
            return DelayedRecord(
                id=id,
                topic=found.topic,
                partition=found.partition,
                due_ms=found.due_ms,
                key=answer.maybe_bytes(),
                value=answer.maybe_bytes(),
                headers=tuple(answer.array(lambda: (answer.text(), answer.maybe_bytes()))),
            )

    def cancel(self, id: str) -> Delayed:  # noqa: A002
        """Have it never delivered; `NotFound` if that is too late. Its message id is free again."""
        doing = f"cancel the delayed record {id!r}"
        answer = self._ask(CANCEL, text(id), doing)
        with understanding(doing):
            return _delayed(answer, id)

    def _ask(self, api_key: int, body: bytes, doing: str) -> Reader:
        return self._requests.ask(api_key, body, what="delayed records", doing=doing)


def _delayed(answer: Reader, id: str) -> Delayed:  # noqa: A002
    topic = answer.text()
    partition, due_ms = answer.numbers(">iq")
    return Delayed(id=id, topic=topic, partition=partition, due_ms=due_ms)
