"""Message ids of a transactional producer and of a plain one, over commits, aborts and restarts."""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.codec.compression import Codec
from millstream.model import Acks, Appended
from millstream.server.node import Node
from millstream.storage.files.memory import MemoryFiles
from tests.support.nodes import ORDERS, SESSION
from tests.support.queues import batch_of, message, values_in
from tests.support.tiers import sized
from tests.support.transactions import Writer, running_transactions
from tests.support.virtual_loop import run

ids = st.lists(st.sampled_from([b"a", b"b", b"c"]), min_size=1, max_size=3)
sending = st.tuples(st.sampled_from(["plain", "in transaction"]), ids)
lives = st.lists(
    st.lists(st.one_of(sending, st.sampled_from(["commit", "abort"])), max_size=8),
    min_size=1,
    max_size=3,
)


class Model:
    """Which ids count, and for whom."""

    def __init__(self) -> None:
        self.committed: set[bytes] = set()
        self.open: set[bytes] = set()

    def take(self, how: str, ids: list[bytes]) -> set[int]:
        """The indexes of the duplicates."""
        own = self.open if how == "in transaction" else self.committed
        duplicates = set()
        for index, message_id in enumerate(ids):
            if message_id in self.committed or message_id in own:
                duplicates.add(index)
            own.add(message_id)
        return duplicates

    def end(self, how: str) -> None:
        if how == "commit":
            self.committed |= self.open
        self.open.clear()


async def send(writer: Writer, how: str, ids: list[bytes], codec: Codec) -> Appended:
    messages = [message(b"x" + item, message_id=item) for item in ids]
    if how == "plain":
        data = batch_of(*messages, codec=codec)
        return await writer.node.partitions.append(SESSION, ORDERS, data, Acks.ALL)
    await writer.add(ORDERS)
    sequence = writer.sequences.get(ORDERS, 0)
    writer.sequences[ORDERS] = sequence + len(ids)
    data = batch_of(
        *messages,
        codec=codec,
        producer=writer.producer,
        base_sequence=sequence,
        is_transactional=True,
    )
    return await writer.send(ORDERS, data)


async def end(writer: Writer, *, commits: bool) -> None:
    node: Node = writer.node
    await writer.end(commits=commits)
    replica = node.hub.find(node.topics.describe(SESSION, "orders").log(0))
    while replica.log.producers.first_unstable_offset is not None:
        await asyncio.sleep(0.01)


@settings(max_examples=sized(60), deadline=None)
@given(plan=lives, codec=st.sampled_from(list(Codec)))
def test_an_id_is_taken_once_unless_its_transaction_was_rolled_back(
    plan: list[list[str | tuple[str, list[bytes]]]], codec: Codec
) -> None:
    async def story() -> None:
        files, model = MemoryFiles(), Model()
        writer: Writer | None = None
        written: list[bytes] = []
        has_open = False
        for life in plan:
            async with running_transactions(files=files) as node:
                if writer is None:
                    writer = Writer(node)
                    await writer.init()
                writer.node = node
                for step in life:
                    if isinstance(step, str):
                        if has_open:
                            await end(writer, commits=step == "commit")
                            model.end(step)
                            has_open = False
                        continue
                    how, ids = step
                    has_open |= how == "in transaction"
                    appended = await send(writer, how, ids, codec)

                    duplicates = model.take(how, ids)
                    assert set(appended.duplicates) == duplicates
                    written += [
                        b"x" + message_id
                        for at, message_id in enumerate(ids)
                        if at not in duplicates
                    ]
                assert await values_in(node) == written

    run(story())
