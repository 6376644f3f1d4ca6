"""Events are summed, bounded, and what is dropped is told."""

import asyncio
from typing import Any

from millstream.engine.audit.recorder import Recorder
from millstream.metrics import AUDIT_DROPPED, Metrics
from millstream.model import Session, user_principal
from millstream.security.audit import Audit
from tests.support.nodes import FixedClock
from tests.support.virtual_loop import run

ANN = Session(principal=user_principal("ann"), address="10.0.0.7")


def recorder(metrics: Metrics | None = None, **settings: Any) -> Recorder:
    return Recorder(Audit(**settings), 1, FixedClock(), metrics or Metrics(), is_whole=True)


def deny(notes: Recorder, resource: str = "topic:orders") -> None:
    notes.note("access.denied", ANN, result="denied", operation="READ", resource=resource)


def test_a_hundred_thousand_denials_in_a_second_are_two_events_at_most() -> None:
    async def scenario() -> None:
        notes, events = recorder(), []
        for _ in range(10):
            for _ in range(10_000):
                deny(notes)
            await asyncio.sleep(0.1)
            events += notes.take(100)
        await asyncio.sleep(1)
        events += notes.take(100)

        assert len(events) <= 2
        assert sum(event.facts.count for event in events) == 100_000

    run(scenario())


def test_other_operations_and_addresses_are_other_events() -> None:
    async def scenario() -> None:
        notes = recorder()
        deny(notes)
        deny(notes, "topic:other")
        deny(notes)

        counts = {e.facts.resource: e.facts.count for e in notes.take(100, is_all=True)}
        assert counts == {"topic:orders": 2, "topic:other": 1}

    run(scenario())


def test_uses_of_records_have_their_records_and_bytes_summed() -> None:
    async def scenario() -> None:
        notes = recorder(events=("data.*",))
        for _ in range(3):
            details = {"records": 10, "bytes": 100}
            notes.note("data.produce", ANN, resource="topic:orders", details=details)
        (event,) = notes.take(100, is_all=True)

        assert event.facts.count == 3
        assert event.facts.details == {"records": 30, "bytes": 300}

    run(scenario())


def test_a_full_queue_drops_counts_and_tells_the_gap() -> None:
    async def scenario() -> None:
        metrics = Metrics()
        notes = recorder(metrics, queue_events_max=3)
        for at in range(10):
            notes.note("group.delete", ANN, resource=f"group:{at}")

        assert notes.is_full
        assert metrics.value(AUDIT_DROPPED) == 7
        events = notes.take(100)
        assert [e.facts.event for e in events] == ["group.delete"] * 3 + ["audit.gap"]
        assert events[-1].facts.details == {"dropped": 7}
        assert notes.take(100) == []

    run(scenario())


def test_events_that_could_not_be_written_come_again_in_their_order() -> None:
    async def scenario() -> None:
        notes = recorder()
        for at in range(3):
            notes.note("group.delete", ANN, resource=f"group:{at}")
        taken = notes.take(2)
        notes.put_back(taken)

        assert [e.facts.resource for e in notes.take(9)] == ["group:0", "group:1", "group:2"]

    run(scenario())


def test_excluded_principals_and_events_that_are_off_leave_nothing() -> None:
    async def scenario() -> None:
        notes = recorder(exclude_principals=("User:ann",))
        deny(notes)
        notes.note("data.produce", ANN, resource="topic:orders")
        notes.note("group.delete", ANN, resource="group:a")  # An act is not excluded.

        assert [e.facts.event for e in notes.take(9, is_all=True)] == ["group.delete"]

    run(scenario())


def test_an_event_wakes_the_writer_beside_sums_that_wait() -> None:
    async def scenario() -> None:
        notes, wakes = recorder(), []
        notes.wake = lambda: wakes.append(1)
        notes.note("audit.read", ANN, resource="topic:a")  # Due in a minute.
        before = len(wakes)
        notes.note("group.delete", ANN, resource="group:a")

        assert len(wakes) == before + 1
        assert notes.next_due_ms() == 0

    run(scenario())
