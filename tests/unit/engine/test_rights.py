"""Rights on a whole node: who may do what, and what ends when a right is taken away."""

import asyncio
from dataclasses import replace

import pytest

from millstream.codec.batch import read_header, stamp_time
from millstream.config import Config
from millstream.control.acls import Acl, AclFilter
from millstream.engine.gate import EVERY_OPERATION, Operation, topic_resource
from millstream.engine.partitions.slices import Earliest, Latest, Want
from millstream.engine.publish.subjects import Pattern
from millstream.engine.push import SubscriptionSpec
from millstream.errors import Denied, InvalidBatch, TransactionNotFound
from millstream.errors.views import InvalidFilter
from millstream.model import ANONYMOUS, SYSTEM_SESSION, Acks, Session, TopicPartition
from millstream.protocols.flymq.open_transactions import OpenTransactions
from millstream.security.settings import ListenerSettings, Security, Tls, authorizes
from millstream.server.node import Node
from millstream.view_names import filtered_name
from tests.support.deliveries import Subscriber, pause, publish, until
from tests.support.nodes import ORDERS, batch, running_node, values_of
from tests.support.rights import ANN, BOB, ROOT, acl, secured_node
from tests.support.virtual_loop import run

READ = acl("READ", "topic:orders")
READ_BOB = acl("READ", "topic:orders", principal="User:bob")
GROUP = acl("READ", "group:billing")
GROUP_BOB = acl("READ", "group:billing", principal="User:bob")


async def revoke(node: Node, rule: Acl) -> None:
    binding_filter = AclFilter(
        rule.resource_type,
        rule.resource_name,
        rule.pattern_type,
        rule.principal,
        rule.host,
        rule.operation,
        rule.permission,
    )
    assert await node.access_rules.delete(ROOT, [binding_filter]) == [[rule]]


def test_without_a_login_anywhere_nothing_is_asked() -> None:
    tls = Tls()
    mutual = Tls(client_ca="ca.pem", client_certificates="required")
    sasl = {"out": ListenerSettings(port=1, security="SASL_SSL")}

    assert not authorizes(Security(), tls, {})
    assert not authorizes(Security(protocol="tls"), tls, {})
    assert authorizes(Security(protocol="tls"), mutual, {})
    assert authorizes(Security(protocol="sasl_plaintext"), tls, {})
    assert authorizes(Security(), tls, sasl)
    assert not authorizes(Security(authorization="off"), tls, sasl)
    assert authorizes(Security(authorization="on"), tls, {})


def test_rights_follow_acls_hosts_and_owners_at_once() -> None:
    async def story() -> None:
        async with secured_node() as node:
            await node.topics.create(ROOT, "orders")

            def may_read(session: Session) -> bool:
                try:
                    node.topics.describe(session, "orders")
                except Denied:
                    return False
                return True

            assert not may_read(ANN)
            rule = acl("READ", "topic:ord...", host="10.0.0.0/29")
            await node.access_rules.create(ROOT, [rule])
            assert may_read(ANN)
            assert not may_read(replace(ANN, address="10.0.0.9"))
            assert may_read(replace(ANN, address="::ffff:10.0.0.7"))
            await node.topics.alter(ROOT, "orders", {"owner": "User:bob"})
            assert may_read(BOB)
            await node.topics.alter(BOB, "orders", {"owner": "User:ann"})
            assert not may_read(BOB)
            await revoke(node, rule)
            assert may_read(ANN)
            assert not may_read(Session(address="10.0.0.7"))

    run(story())


def test_internal_topics_are_not_meant_by_a_star() -> None:
    async def story() -> None:
        rules = [acl("READ", "topic:*"), acl("READ", "group:*")]
        async with secured_node(*rules) as node:
            await node.topics.create(ROOT, "orders")
            await node.groups.coordinator_of(ROOT, "billing")
            assert [topic.name for topic in node.topics.list(ANN)] == ["orders"]
            with pytest.raises(Denied):
                node.topics.describe(ANN, "__deferred")
            await node.access_rules.create(ROOT, [acl("READ", "topic:__consumer_offsets")])
            names = [topic.name for topic in node.topics.list(ANN)]
            assert names == ["__consumer_offsets", "orders"]

    run(story())


def test_an_owner_is_set_by_the_owner_or_an_administrator_only() -> None:
    async def story() -> None:
        rules = [acl("CREATE", "cluster"), acl("ALTER_CONFIGS", "topic:*")]
        async with secured_node(*rules) as node:
            await node.topics.create(ANN, "mine")
            with pytest.raises(Denied, match="alter cluster"):
                await node.topics.create(ANN, "own", settings={"owner": "User:ann"})
            with pytest.raises(Denied, match="alter cluster"):
                await node.topics.alter(ANN, "mine", {"owner": "User:ann"})
            await node.topics.alter(ANN, "mine", {"retention_ms": "5000"})
            with pytest.raises(Denied, match="alter settings"):
                await node.topics.alter(BOB, "mine", {"retention_ms": "1"})
            assert node.topics.describe(ROOT, "mine").overrides == {"retention_ms": "5000"}

    run(story())


def test_the_filter_of_a_view_is_changed_by_readers_of_its_base_only() -> None:
    async def story() -> None:
        rules = [acl("ALL", "topic:big"), acl("READ", "topic:orders", principal="User:bob")]
        async with secured_node(*rules) as node:
            await node.topics.create(ROOT, "orders")
            view = {"view_of": "orders", "view_where": "value ~ 'big'"}
            await node.topics.create(ROOT, "big", settings=view)
            with pytest.raises(Denied, match="read topic:orders"):
                await node.topics.alter(ANN, "big", {"view_where": "value ~ ''"})
            await node.access_rules.create(ROOT, [READ])
            await node.topics.alter(ANN, "big", {"view_where": "value ~ 'b'"})

    run(story())


def test_a_filter_that_cannot_be_read_is_told_to_those_who_have_the_right() -> None:
    async def story() -> None:
        operations = ("DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS")
        async with secured_node(*(acl(each, "topic:orders") for each in operations)) as node:
            await node.topics.create(ROOT, "orders")
            topics, wrong = node.topics, filtered_name("orders", "$.kg ? 5")
            for ask in (topics.describe, topics.describe_configs, topics.open_configs):
                with pytest.raises(InvalidFilter, match="at character 6"):
                    ask(ANN, wrong)
                for name in (wrong, filtered_name("orders", "$.kg > 5"), "orders"):
                    with pytest.raises(Denied, match=r"topic:orders$"):
                        ask(BOB, name)

    run(story())


def test_a_reader_has_its_filter_checked_without_a_right_to_settings() -> None:
    async def story() -> None:
        async with secured_node(acl("READ", "topic:orders")) as node:
            await node.topics.create(ROOT, "orders")

            described = node.topics.describe_configs(ANN, filtered_name("orders", "$.kg > 5"))

            assert described.is_view
            with pytest.raises(Denied):
                node.topics.describe_configs(ANN, "orders")

    run(story())


def test_a_denied_id_is_not_told_by_its_name() -> None:
    async def story() -> None:
        async with secured_node() as node:
            topic = await node.topics.create(ROOT, "secret-plans")
            with pytest.raises(Denied) as by_id:
                node.topics.describe_id(ANN, topic.topic_id)
            with pytest.raises(Denied) as by_number:
                node.topics.describe_number(ANN, topic.number)
            assert "secret" not in f"{by_id.value} {by_number.value}"
            assert by_id.value.resource == topic_resource(str(topic.topic_id))

    run(story())


def test_a_batch_with_unknown_attributes_is_refused() -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(ROOT, "orders")
            good = batch(b"a")
            _, data = stamp_time(good, read_header(good)._replace(attributes=0x4000), 1)
            with pytest.raises(InvalidBatch, match="unknown bits"):
                node.partitions.append(ROOT, ORDERS, data, Acks.ALL)

    run(story())


def test_operations_are_bits_of_kafka() -> None:
    async def story() -> None:
        async with secured_node(acl("READ", "topic:orders"), acl("ALL", "group:g")) as node:
            assert node.topics.operations(ANN, "orders") == 1 << 3 | 1 << 8
            assert node.topics.operations(ROOT, "orders") == EVERY_OPERATION["topic"]
            assert node.groups.operations(ANN, "g") == EVERY_OPERATION["group"]
            assert node.topics.cluster_operations(ANN) == 0
            assert node.topics.cluster_operations(ROOT) == EVERY_OPERATION["cluster"]
        async with running_node() as node:
            assert node.topics.cluster_operations(ANN) == EVERY_OPERATION["cluster"]

    run(story())


# -- rights that are taken away --------------------------------------------------------------------


def test_a_long_poll_ends_when_its_right_is_taken_away() -> None:
    async def story() -> None:
        async with secured_node(READ) as node:
            await node.topics.create(ROOT, "orders")
            loop = asyncio.get_running_loop()
            want = Want(ORDERS, 0, 1000)
            polling = asyncio.ensure_future(
                node.partitions.read(ANN, [want], min_bytes=1, deadline=loop.time() + 300)
            )
            await asyncio.sleep(1)
            before = loop.time()
            await revoke(node, READ)
            (part,) = await polling
            assert loop.time() - before < 1
            assert isinstance(part.error, Denied)

    run(story())


def test_a_long_poll_gets_nothing_that_came_after_its_right_was_taken_away() -> None:
    async def story() -> None:
        other = acl("READ", "topic:other")
        async with secured_node(READ, other) as node:
            await node.topics.create(ROOT, "orders")
            await node.topics.create(ROOT, "other")
            wants = [Want(ORDERS, 0, 1000), Want(TopicPartition("other", 0), 0, 1000)]
            deadline = asyncio.get_running_loop().time() + 300
            polling = asyncio.ensure_future(
                node.partitions.read(ANN, wants, min_bytes=1, deadline=deadline)
            )
            await asyncio.sleep(1)
            await node.partitions.append(ROOT, wants[1].target, batch(b"for ann"), Acks.ALL)
            revoked = asyncio.ensure_future(revoke(node, READ))
            (orders, payments) = await polling
            await revoked
            await node.partitions.append(ROOT, ORDERS, batch(b"secret"), Acks.ALL)
            assert values_of(payments) == [b"for ann"] or isinstance(orders.error, Denied)
            (again, _) = await node.partitions.read(ANN, wants)
            assert isinstance(again.error, Denied)

    run(story())


def test_push_ends_for_the_member_whose_right_is_taken_away() -> None:
    async def story() -> None:
        async with secured_node(READ, READ_BOB, GROUP, GROUP_BOB) as node:
            await node.topics.create(ROOT, "orders")
            spec = SubscriptionSpec(name="billing", topics=("orders",), start=Latest())
            ann, bob = Subscriber(), Subscriber()
            await ann.subscribe(node, spec, session=ANN)
            await bob.subscribe(node, spec, session=BOB)
            await publish(node, b"1", b"2", b"3", b"4")
            await until(lambda: len(ann.got) + len(bob.got) == 4)
            ann.ack_all()
            bob.ack_all()
            seen = len(bob.got)

            await revoke(node, READ_BOB)
            await publish(node, b"5", b"6", b"7", b"8")
            await until(lambda: len(ann.got) + seen == 8)
            await pause(1)

            assert len(bob.got) == seen
            assert bob.member is not None
            assert bob.member.is_closed

    run(story())


def test_a_pattern_stops_hearing_a_topic_and_hears_it_again_from_where_it_was() -> None:
    async def story() -> None:
        other = acl("READ", "topic:other")
        async with secured_node(READ, other) as node:
            await node.topics.create(ROOT, "orders")
            await node.topics.create(ROOT, "other")
            spec = SubscriptionSpec(pattern=Pattern.parse(">"), start=Earliest())
            ann = await Subscriber().subscribe(node, spec, session=ANN)
            await publish(node, b"1")
            await until(lambda: len(ann.got) == 1)
            ann.ack_all()

            await revoke(node, READ)
            await publish(node, b"2")
            await publish(node, b"x", topic="other")
            await until(lambda: len(ann.got) == 2)
            await pause(1)
            assert ann.values == [b"1", b"x"]

            await node.access_rules.create(ROOT, [READ])
            await until(lambda: len(ann.got) == 3)
            assert ann.values == [b"1", b"x", b"2"]

    run(story())


def test_a_flymq_transaction_is_its_beginners_own() -> None:
    async def story() -> None:
        rules = [acl("WRITE", "topic:orders"), acl("WRITE", "topic:orders", principal="User:bob")]
        rules += [acl("WRITE", "transactional_id:*")]
        async with secured_node(*rules) as node:
            await node.topics.create(ROOT, "orders")
            transactions = OpenTransactions(
                node.transactions,
                node.partitions,
                node.topics,
                config=Config(),
                clock=node.clock,
            )
            name = await transactions.begin(BOB)
            with pytest.raises(TransactionNotFound):
                await transactions.produce(ANN, name, "orders", b"a")
            with pytest.raises(TransactionNotFound):
                await transactions.end(ANN, name, commits=True)
            await transactions.produce(BOB, name, "orders", b"b")
            with pytest.raises(Denied):
                await transactions.produce(BOB, name, "other", b"c")
            # The id is the broker's own, whatever rights a client has.
            lent = name.rpartition(".")[0].rpartition(".")[0]
            with pytest.raises(Denied, match="transactional_id"):
                await node.transactions.init(ANN, lent, timeout_ms=1000)
            await transactions.end(BOB, name, commits=True)

    run(story())


def test_the_broker_and_super_users_may_do_everything() -> None:
    async def story() -> None:
        deny = acl("ALL", "topic:*", principal="User:*", denies=True)
        async with secured_node(deny) as node:
            await node.topics.create(ROOT, "orders")
            assert node.topics.describe(SYSTEM_SESSION, "orders").name == "orders"
            with pytest.raises(Denied):
                node.topics.describe(Session(principal=ANONYMOUS), "orders")
            node.topics.admit_to_cluster(ROOT, Operation.ALTER)

    run(story())
