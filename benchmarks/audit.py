"""The audit trail: cost of an event on the event loop, events a second, and denials of one client.

    python -m benchmarks.audit

A node with its logs on disk in this process. The first figure is the CPU of the loop's thread, the
second what all threads take.
"""

import asyncio
import tempfile
import time
from contextlib import suppress
from typing import Literal

from millstream.config import Config
from millstream.engine.audit.trail import AuditQuery
from millstream.engine.gate import Operation
from millstream.errors import Denied
from millstream.model import Session, user_principal
from millstream.security.audit import Audit
from millstream.security.settings import Security
from millstream.server.node import Node, build_node, running
from millstream.server.system.real_ports import real_ports

EVENTS_A_SECOND = 5_000
SECONDS = 5
TICK_S = 0.02
DENIALS = 100_000
ANN = Session(principal=user_principal("ann"), mechanism="TLS", address="10.0.0.7")
ROOT = Session(principal=user_principal("root"))


async def steady(node: Node) -> None:
    """Note so many events a second, and see them written."""
    recorder, writer = node.audit.recorder, node.audit.writer
    assert recorder is not None
    assert writer is not None
    await writer.flush()
    first, loop = writer.head.seq, asyncio.get_running_loop()
    noting = 0.0
    cpu, every = time.thread_time(), time.process_time()
    began = loop.time()
    for tick in range(round(SECONDS / TICK_S)):
        start = time.thread_time()
        for at in range(round(EVENTS_A_SECOND * TICK_S)):
            recorder.note("group.delete", ANN, resource=f"group:{tick}-{at}")
        noting += time.thread_time() - start
        await asyncio.sleep(max(0.0, began + (tick + 1) * TICK_S - loop.time()))
    await writer.flush(is_last=True)
    took_s = loop.time() - began
    cpu, every = time.thread_time() - cpu, time.process_time() - every
    count = EVENTS_A_SECOND * SECONDS
    assert writer.head.seq - first >= count
    print(f"{count / took_s:,.0f} events/s written, none dropped: {recorder.dropped == 0}")
    print(f"note: {noting / count * 1e6:.2f} us an event")
    print(
        f"the loop's thread: {cpu / count * 1e6:.2f} us, all threads: {every / count * 1e6:.2f} us"
    )


async def denials(node: Node) -> None:
    """Refuse one client as often as the machine can."""
    writer = node.audit.writer
    assert writer is not None
    await writer.flush(is_last=True)
    first = writer.head.seq
    began = time.perf_counter()
    for at in range(DENIALS):
        with suppress(Denied):
            node.partitions.admit_append(ANN, "orders")
        if at % 1_000 == 0:
            await asyncio.sleep(0)
    took_s = time.perf_counter() - began
    await writer.flush(is_last=True)
    page = await node.audit.query(ROOT, AuditQuery(events=("access.denied",)), events_max=100)
    counts = [each.event.data.count for each in page.events if each.event]
    print(
        f"{DENIALS / took_s:,.0f} denials/s, {took_s / DENIALS * 1e6:.2f} us each: "
        f"{writer.head.seq - first} events in {took_s:.1f} s, counting {sum(counts)}"
    )


async def granted(node: Node) -> None:
    """A decision that is allowed, gate included."""
    gate = node.topics._gate
    began = time.perf_counter()
    for _ in range(DENIALS):
        gate.admit(ROOT, Operation.READ, "topic:orders")
    print(
        f"a cached decision, gate included: {(time.perf_counter() - began) / DENIALS * 1e6:.2f} us"
    )


async def main() -> None:
    choices: tuple[Literal["on", "off"], ...] = ("on", "off")
    for enabled in choices:
        with tempfile.TemporaryDirectory() as directory:
            config = Config(
                data_dir=directory,
                audit=Audit(enabled=enabled),
                security=Security(authorization="on", super_users=("User:root",)),
            )
            async with running(build_node(config, real_ports(config))) as node:
                print(f"audit.enabled = {enabled}")
                await granted(node)
                if enabled == "on":
                    await steady(node)
                    await denials(node)


if __name__ == "__main__":
    asyncio.run(main())
