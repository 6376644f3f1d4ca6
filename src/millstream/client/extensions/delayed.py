"""`client.delayed`: lists records that wait for their time, and cancels them.

The broker keeps the waiting records; nothing is kept here. `records` has how to delay one.
"""

from typing import TYPE_CHECKING

from millstream.client.errors import Refused
from millstream.client.extensions.requests import BrokerRequests
from millstream.client.models import Delayed, DelayedPage, DelayedRecord

# Here and below imported late: the tables take a while, and few programs need them.
if TYPE_CHECKING:
    from millstream.kafka_wire.apis import millstream as own

LISTED_MAX = 1_000  # Of the broker, in one answer.
_FEATURE = "delayed records"


class DelayedRecords:
    def __init__(self, requests: BrokerRequests) -> None:
        self._requests = requests

    def list(
        self, topic: str | None = None, *, limit: int = 100, after: str | None = None
    ) -> DelayedPage:
        """Those of a topic, or of all, in the order of their arrival; at most 1,000 at once.

        The next page begins `after` the `next_after` of this one.
        """
        from millstream.kafka_wire.apis import millstream as own

        doing = "list delayed records" + ("" if topic is None else f" of {topic!r}")
        if limit < 1:
            raise Refused(f"cannot {doing}: a limit of {limit}; at least 1")
        request = own.ListDelayedRequest(topic=topic, after=after, count_max=min(limit, LISTED_MAX))
        answer = self._requests.call(
            request, own.ListDelayedResponse, feature=_FEATURE, doing=doing
        )
        records = tuple(_delayed(delayed, delayed.id) for delayed in answer.delayed)
        return DelayedPage(records, answer.next_after)

    def describe(self, id: str) -> DelayedRecord:  # noqa: A002 - what it is called everywhere
        """One of them with its key, value and headers; `NotFound` if it does not wait any more."""
        from millstream.kafka_wire.apis import millstream as own

        answer = self._requests.call(
            own.DescribeDelayedRequest(id=id),
            own.DescribeDelayedResponse,
            feature=_FEATURE,
            doing=f"look at the delayed record {id!r}",
        )
        return DelayedRecord(
            id=id,
            topic=answer.topic,
            partition=answer.partition,
            due_ms=answer.due_ms,
            key=answer.key,
            value=answer.value,
            headers=tuple((header.name, header.value) for header in answer.headers),
        )

    def cancel(self, id: str) -> Delayed:  # noqa: A002
        """Have it never delivered; `NotFound` if that is too late. Its message id is free again."""
        from millstream.kafka_wire.apis import millstream as own

        answer = self._requests.call(
            own.CancelDelayedRequest(id=id),
            own.CancelDelayedResponse,
            feature=_FEATURE,
            doing=f"cancel the delayed record {id!r}",
        )
        return _delayed(answer, id)


def _delayed(
    delayed: "own.ListDelayedResponse.Delayed | own.CancelDelayedResponse",
    id: str,  # noqa: A002
) -> Delayed:
    return Delayed(id=id, topic=delayed.topic, partition=delayed.partition, due_ms=delayed.due_ms)
