"""Batch groups on a whole node: a driver that begins and ends batches, and tasks that write."""

from millstream.internal_topics.batch_groups import BatchGroupValue, Ending
from millstream.model import Producer, TopicPartition
from millstream.names import BATCH_MEMBER_MARK
from millstream.server.node import Node
from tests.support.nodes import ORDERS, SESSION
from tests.support.transactions import Writer

GROUP = "spark:orders"
SERIES = "query"


class Driver:
    """Begins batches of a group and ends them, as the sink's driver does."""

    def __init__(self, node: Node, *, group: str = GROUP, series: str = SERIES) -> None:
        self.node = node
        self.group = group
        self.series = series
        self.term = 0

    async def begin(self) -> BatchGroupValue:
        opened = await self.node.batch_groups.begin(SESSION, self.group)
        self.term = opened.term
        return opened

    def task(self, name: str = "0.0", *, timeout_ms: int = 60_000) -> Writer:
        transactional_id = f"{self.group}{BATCH_MEMBER_MARK}{self.term}~{name}"
        return Writer(self.node, transactional_id=transactional_id, timeout_ms=timeout_ms)

    async def wrote(
        self, *values: bytes, name: str = "0.0", target: TopicPartition = ORDERS
    ) -> Writer:
        """A task that has written, and left its transaction open."""
        writer = self.task(name)
        await writer.init()
        await writer.write(target, *values)
        return writer

    async def renew(self, member: Writer) -> None:
        await self.node.batch_groups.renew(
            SESSION, self.group, self.term, {member.transactional_id: member.producer}
        )

    async def commit(self, batch_id: int, *members: Writer) -> None:
        await self._end(batch_id, members, commits=True)

    async def abort(self, batch_id: int, *members: Writer) -> None:
        await self._end(batch_id, members, commits=False)

    async def _end(self, batch_id: int, members: tuple[Writer, ...], *, commits: bool) -> None:
        named: dict[str, Producer] = {
            member.transactional_id: member.producer for member in members
        }
        ending = Ending(self.term, self.series, batch_id, named)
        await self.node.batch_groups.end(SESSION, self.group, ending, commits=commits)
