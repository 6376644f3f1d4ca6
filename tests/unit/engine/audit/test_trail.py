"""What a node writes into its audit trail, and how it is asked for."""

import asyncio
from dataclasses import replace

import pytest

from millstream.config import Config
from millstream.engine.access.authentication import Identity
from millstream.engine.audit.trail import AuditQuery, all_pages
from millstream.engine.schemas.parsing import Draft
from millstream.errors import Denied, InternalTopic, InvalidRequest
from millstream.errors.access import LoginFailed
from millstream.model import Acks, Principal, Session, TopicPartition, user_principal
from millstream.names import AUDIT_TOPIC
from millstream.schemas.definition import SchemaType
from millstream.security.audit import Audit
from millstream.security.audit_events import Event
from millstream.server.node import Node
from millstream.storage.files.memory import MemoryFiles
from tests.support.crashing_files import CrashingFiles
from tests.support.nodes import ORDERS, batch, running_node
from tests.support.rights import ANN, ROOT, acl, secured_node
from tests.support.virtual_loop import run

AUDITED = Config(audit=Audit(enabled="on"))


async def events_of(node: Node, query: AuditQuery | None = None) -> list[Event]:
    """All events, oldest first."""
    assert node.audit.writer is not None
    assert await node.audit.writer.flush(is_last=True)
    pages = [page async for page in all_pages(node.audit, ROOT, query or AuditQuery())]
    return [each.event for page in pages for each in page.events if each.event][::-1]


async def names_of(node: Node) -> list[str]:
    return [event.data.event for event in await events_of(node)]


def test_acts_of_administrators_are_in_the_trail_with_their_actor() -> None:
    async def scenario() -> None:
        async with secured_node(config=AUDITED) as node:
            asked = replace(ROOT, address="10.0.0.9", client_id="tool", protocol="kafka")
            await node.topics.create(asked, "orders", partitions=3)
            await node.topics.alter(asked, "orders", {"retention_ms": "1000"})
            await node.topics.delete(asked, "orders")
            events = [e for e in await events_of(node) if e.subject == "topic:orders"]

            assert [e.data.event for e in events] == [
                "topic.create",
                "topic.modify",
                "topic.delete",
            ]
            assert {e.data.principal for e in events} == {"User:test"}
            assert {e.data.address for e in events} == {"10.0.0.9"}
            assert events[1].data.details["settings"] == {"retention_ms": "1000"}

    run(scenario())


def test_what_no_client_asked_for_is_the_act_of_a_node() -> None:
    async def scenario() -> None:
        async with secured_node(config=AUDITED) as node:
            events = await events_of(node)

            principals = {(e.data.event, e.subject): e.data.principal for e in events}
            assert principals["system.start", "cluster"] == "Node:1"
            assert principals["topic.create", "topic:__audit"] == "Node:1"

    run(scenario())


def test_no_user_acts_as_a_node() -> None:
    async def scenario() -> None:
        async with secured_node(config=AUDITED) as node:
            claimed = replace(ROOT, principal=Principal.parse("Node:1"))

            with pytest.raises(Denied):
                await node.topics.create(claimed, "orders")

    run(scenario())


def test_refusals_are_summed_and_name_the_rule() -> None:
    async def scenario() -> None:
        async with secured_node(config=AUDITED) as node:
            await node.topics.create(ROOT, "orders")
            for _ in range(3):
                with pytest.raises(Denied):
                    node.partitions.append(ANN, ORDERS, batch(b"a"), Acks.ALL)
            denied = [e for e in await events_of(node) if e.data.event == "access.denied"]

            assert len(denied) == 1
            assert denied[0].data.count == 3
            assert denied[0].data.operation == "WRITE"
            assert denied[0].data.resource == "topic:orders"
            assert denied[0].data.rule == "no ACL allows it"
            assert denied[0].data.result == "denied"

    run(scenario())


def test_a_restart_continues_chain_and_control_log() -> None:
    async def scenario() -> None:
        files = MemoryFiles()
        async with secured_node(config=AUDITED, files=files) as node:
            await node.topics.create(ROOT, "orders")
            first = await events_of(node)
        async with secured_node(config=AUDITED, files=files) as node:
            await node.topics.create(ROOT, "more")
            events = await events_of(node)

            assert [e.id for e in events][: len(first)] == [e.id for e in first]
            assert [e.seq for e in events] == list(range(1, len(events) + 1))
            made = [e.subject for e in events if e.data.event == "topic.create"]
            assert sorted(made) == ["topic:__audit", "topic:more", "topic:orders"]
            names = [e.data.event for e in events]
            assert names.count("system.start") == 2
            assert names.count("system.stop") == 1

    run(scenario())


def test_without_logins_only_starts_and_stops_are_noted() -> None:
    async def scenario() -> None:
        async with running_node(Config(audit=Audit(enabled="on"))) as node:
            await node.topics.create(ROOT, "orders")
            assert await names_of(node) == ["system.start"]
        async with running_node(Config()) as node:
            assert node.audit.recorder is None
            assert [topic.name for topic in node.topics.list(ROOT)] == []

    run(scenario())


def test_only_a_right_on_the_trail_itself_opens_it() -> None:
    async def scenario() -> None:
        everything = acl("ALL", "topic:*")
        async with secured_node(everything, config=AUDITED) as node:
            assert node.audit.writer is not None
            await node.audit.writer.flush()
            with pytest.raises(Denied):
                await node.audit.query(ANN, AuditQuery())
            with pytest.raises(Denied):
                await node.audit.follow(ANN, AuditQuery())
            await node.access_rules.create(ROOT, [acl("READ", "topic:__audit")])

            assert (await node.audit.query(ANN, AuditQuery())).events

    run(scenario())


def test_not_even_an_administrator_changes_the_trail() -> None:
    async def scenario() -> None:
        async with secured_node(config=AUDITED) as node:
            assert node.audit.writer is not None
            await node.audit.writer.flush()
            target = TopicPartition(AUDIT_TOPIC, 0)
            calls = [
                lambda: node.topics.delete(ROOT, AUDIT_TOPIC),
                lambda: node.topics.alter(ROOT, AUDIT_TOPIC, {"retention_ms": "1"}),
                lambda: node.topics.add_partitions(ROOT, AUDIT_TOPIC, total=9),
            ]
            for call in calls:
                with pytest.raises(InternalTopic):
                    await call()
            with pytest.raises(InternalTopic):
                node.partitions.delete_records(ROOT, target)
            with pytest.raises(InternalTopic):
                node.partitions.append(ROOT, target, batch(b"a"), Acks.ALL)

    run(scenario())


def test_pages_are_bounded_and_cursors_go_on() -> None:
    async def scenario() -> None:
        async with secured_node(config=AUDITED) as node:
            for at in range(12):
                await node.topics.create(ROOT, f"t{at}")
            everything = [event.id for event in await events_of(node)]
            ids: list[str] = []
            cursor = ""
            while True:
                page = await node.audit.query(ROOT, AuditQuery(), events_max=5, cursor=cursor)
                assert len(page.events) <= 5
                ids += [each.event.id for each in page.events if each.event]
                cursor = page.cursor
                if not cursor:
                    break
            assert ids == everything[::-1]
            with pytest.raises(InvalidRequest):
                await node.audit.query(ROOT, AuditQuery(), cursor="1.2")
            with pytest.raises(InvalidRequest):
                await node.audit.query(ROOT, AuditQuery(events=("no.such",)))

    run(scenario())


def test_the_trail_is_followed_forwards_from_its_end() -> None:
    async def scenario() -> None:
        async with secured_node(config=AUDITED) as node:
            before = await node.audit.follow(ROOT, AuditQuery(), cursor="end")
            assert before.events == []
            await node.topics.create(ROOT, "orders")
            await events_of(node)
            page = await node.audit.follow(
                ROOT, AuditQuery(events=("topic.*",)), cursor=before.cursor
            )
            names = [each.event.subject for each in page.events if each.event]
            assert "topic:orders" in names

    run(scenario())


def test_a_full_disk_keeps_events_until_there_is_room_and_tells_what_it_dropped() -> None:
    async def scenario() -> None:
        files = CrashingFiles()
        audit = Audit(enabled="on", queue_events_max=6, on_failure="refuse")
        async with secured_node(config=Config(audit=audit), files=files) as node:
            writer, recorder = node.audit.writer, node.audit.recorder
            assert writer is not None
            assert recorder is not None
            await node.topics.create(ROOT, "orders")
            await events_of(node)
            files.space_left = 0
            for at in range(8):
                recorder.note("group.delete", ANN, resource=f"group:{at}")
            assert not await writer.flush()
            assert recorder.refuses
            login = Identity(user_principal("ann"), "PLAIN")
            with pytest.raises(LoginFailed, match="audit trail cannot be written"):
                node.authentication.accept(login, Session(address="127.0.0.1"))
            root = Identity(user_principal("test"), "PLAIN")
            assert node.authentication.accept(root, Session(address="127.0.0.1"))
            with pytest.raises(LoginFailed):
                node.authentication.accept(root, Session(address="10.0.0.7"))
            files.space_left = None
            await asyncio.sleep(2)

            events = await events_of(node)
            names = [event.data.event for event in events]
            assert names.count("group.delete") == 5
            (gap,) = [event for event in events if event.data.event == "audit.gap"]
            assert gap.data.details["dropped"] == 4  # And the login of a super user.
            assert not recorder.refuses
            assert [event.seq for event in events] == list(range(1, len(events) + 1))

    run(scenario())


def test_schemas_are_in_the_trail() -> None:
    async def scenario() -> None:
        async with secured_node(config=AUDITED) as node:
            assert node.schema_changes is not None
            draft = Draft(SchemaType.AVRO, '"string"')
            await node.schema_changes.register(ROOT, "orders-value", draft)
            await node.schema_changes.delete_subject(ROOT, "orders-value")
            events = [e for e in await events_of(node) if e.data.event.startswith("schema.")]

            assert [(e.data.event, e.subject) for e in events] == [
                ("schema.register", "subject:orders-value"),
                ("schema.delete", "subject:orders-value"),
            ]

    run(scenario())


def test_a_trail_that_is_being_opened_is_waited_for() -> None:
    files = CrashingFiles()

    async def scenario() -> None:
        async with running_node(AUDITED, files=files) as node:
            assert await names_of(node) == ["system.start"]
        async with running_node(AUDITED, files=files) as node:
            topic = node.topics.describe(ROOT, AUDIT_TOPIC)
            node.hub.wake([topic.log(at) for at in range(topic.partition_count)])

            page = await node.audit.query(ROOT, AuditQuery())

            names = [each.event.data.event for each in page.events if each.event]
            assert names[-2:] == ["system.stop", "system.start"]

    run(scenario())
