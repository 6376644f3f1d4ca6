"""Every public method of every engine service refuses a session that the policy denies.

The services are read from a running node, so that a new one is checked without an entry here.
"""

import asyncio
import inspect
from collections.abc import Callable
from uuid import UUID

import pytest

from millstream.codec.markers import ControlKind, Marker
from millstream.control.acls import (
    Acl,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)
from millstream.control.catalog import Topic
from millstream.control.commands import UserChange
from millstream.control.nodes import NodeState
from millstream.control.quotas import Entity
from millstream.control.resources import ResourceKind
from millstream.engine.access.acls import Question
from millstream.engine.audit.trail import AuditQuery
from millstream.engine.dead_letters.service import RedrivePlan
from millstream.engine.gate import Everyone, Operation
from millstream.engine.groups.consumer.vocabulary import Beat
from millstream.engine.partitions.slices import Earliest, Slice, Want
from millstream.engine.publish.publisher import Publication, Receipts
from millstream.engine.push import SubscriptionSpec
from millstream.engine.schemas.parsing import Draft
from millstream.engine.schemas.service import Listed
from millstream.errors import Denied
from millstream.internal_topics.batch_groups import Ending
from millstream.internal_topics.schemas import SchemaText, SchemaValue
from millstream.metrics import REQUESTS
from millstream.model import (
    SYSTEM,
    Acks,
    Epoch,
    Producer,
    Session,
    TopicPartition,
    user_principal,
)
from millstream.schemas.definition import SchemaType
from millstream.server.node import Node
from tests.support.nodes import ORDERS, SESSION, batch, running_node
from tests.support.virtual_loop import run

# Public parts of a node that are no services: each has a reason to ask no gate.
WITHOUT_GATE = {
    "authentication": "says who a session is, before anything can be asked",
    "members": "says where nodes are, as metadata does; `cluster` is gated, a token is proved",
    "logins": "the same, for protocols that prove it with each request",
    "running_config": "follows settings that `resources` has let through its gate",
    "unpacking": "bounds memory, reads no topic",
    "usage": "charges quotas, refuses nothing",
}
# Answer what a session may do, instead of refusing; a stranger may do nothing.
QUESTIONS = {
    "topics.operations",
    "topics.cluster_operations",
    "topics.may_describe_configs",
    "groups.operations",
    "topics.sees",
    "groups.sees",
}
READ_ORDERS = Acl(
    resource_type=ResourceType.TOPIC,
    resource_name="orders",
    pattern_type=PatternType.LITERAL,
    principal="User:stranger",
    host="*",
    operation=AclOperation.READ,
    permission=Permission.ALLOW,
)
Call = tuple[tuple[object, ...], dict[str, object]]
DRAFT = Draft(SchemaType.AVRO, '"string"')
REGISTERED = SchemaValue("orders-value", 1, 1, SchemaText(SchemaType.AVRO, '"string"'))
HEARD = SubscriptionSpec(name="billing", topics=("orders",))
STRANGER = Session(principal=user_principal("stranger"))
MEMBER: dict[str, object] = {"member_id": "m", "generation": 1}
JOIN: dict[str, object] = {
    "protocol_type": "consumer",
    "protocols": [],
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 10_000,
}


def arguments_of(topic: Topic) -> dict[str, Call]:
    return {
        "topics.create": (("fresh",), {}),
        "topics.check_create": (("fresh",), {}),
        "topics.delete": (("orders",), {}),
        "topics.alter": (("orders", {"retention_ms": "1"}), {}),
        "topics.check_alter": (("orders", {"retention_ms": "1"}), {}),
        "topics.add_partitions": (("orders",), {"total": 5}),
        "topics.check_add_partitions": (("orders",), {"total": 5}),
        "topics.node_config": ((), {}),
        "topics.quorum": ((), {}),
        "topics.describe": (("orders",), {}),
        "topics.masks": (("orders",), {}),
        "topics.describe_id": ((topic.topic_id,), {}),
        "topics.describe_configs": (("orders",), {}),
        "topics.open_configs": (("orders",), {}),
        "topics.may_describe_configs": (("orders",), {}),
        "topics.operations": (("orders",), {}),
        "topics.sees": (("orders",), {}),
        "topics.cluster_operations": ((), {}),
        "topics.admit_to_cluster": ((Operation.ALTER,), {}),
        "topics.describe_number": ((topic.number,), {}),
        "topics.list": ((), {}),
        "partitions.append": ((ORDERS, batch(b"a"), Acks.ALL), {}),
        "partitions.admit_append": (("orders",), {}),
        "partitions.admit_read": (("orders",), {}),
        "partitions.read": (([Want(ORDERS, 0, 100)],), {}),
        "partitions.find": ((ORDERS, Earliest()), {}),
        "partitions.epoch_end": ((ORDERS, Epoch(1)), {}),
        "partitions.delete_records": ((ORDERS,), {}),
        "partitions.leadership": ((topic,), {}),
        "partitions.current_leader": ((ORDERS,), {}),
        "partitions.awake": (([topic],), {}),
        "partitions.health": ((ORDERS,), {}),
        "partitions.segments": ((ORDERS,), {}),
        "partitions.filter_figures": (("orders",), {}),
        "partitions.storage_problems": ((), {}),
        "partitions.write_marker": ((ORDERS, Marker(ControlKind.ABORT, 1, 0, 0)), {}),
        "partitions.producers": ((ORDERS,), {}),
        "transactions.coordinator_of": (("billing",), {}),
        "transactions.init": (("billing",), {"timeout_ms": 1000}),
        "transactions.add_partitions": (("billing", Producer(1, 0), [ORDERS]), {}),
        "transactions.add_offsets": (("billing", Producer(1, 0), "readers"), {}),
        "transactions.check_partitions": (("billing", Producer(1, 0), [ORDERS]), {}),
        "transactions.check_offsets": (("billing", 1, 0, "readers"), {}),
        "transactions.verify_offsets": (("billing", Producer(1, 0), "readers"), {}),
        "transactions.end": (("billing", Producer(1, 0)), {"commits": True}),
        "transactions.describe": (("billing",), {}),
        "transactions.wait_ended": (("billing",), {"until": 0.0}),
        "transactions.list": ((), {}),
        "client_quotas.describe": ((), {}),
        "client_quotas.alter": ((Entity("test", None), {"producer_byte_rate": 1.0}), {}),
        "client_quotas.check_alter": ((Entity("test", None), {"producer_byte_rate": 1.0}), {}),
        "resources.describe": ((ResourceKind.NODE, "1"), {}),
        "resources.open": ((ResourceKind.NODE, "1"), {}),
        "resources.names": ((ResourceKind.GROUP,), {}),
        "resources.alter": ((ResourceKind.NODE, "1", {"retention_ms": "1"}), {}),
        "resources.check_alter": ((ResourceKind.NODE, "1", {"retention_ms": "1"}), {}),
        "resources.admit_to_loggers": ((Operation.ALTER,), {}),
        "schemas.types": ((), {}),
        "schemas.subjects": (("", Listed()), {}),
        "schemas.schemas": (("", Listed()), {}),
        "schemas.versions": (("orders-value", Listed()), {}),
        "schemas.version": (("orders-value", 1), {}),
        "schemas.users": (("orders-value", 1), {}),
        "schemas.with_metadata": (("orders-value", {}), {}),
        "schemas.lookup": (("orders-value", DRAFT), {}),
        "schemas.formatted": ((REGISTERED, "resolved"), {}),
        "schemas.by_id": ((1,), {}),
        "schemas.by_id_now": ((1,), {}),
        "schemas.places": ((1,), {}),
        "schemas.by_guid": ((UUID(int=1),), {}),
        "schemas.problem": ((REGISTERED, b""), {}),
        "schemas.decoding": ((1, "orders-value"), {}),
        "schemas.encoding": (("orders-value",), {}),
        "schemas.record_names": (("orders", DRAFT), {}),
        "schemas.config": (("orders-value",), {}),
        "schemas.mode": (("orders-value",), {}),
        "schemas.contexts": ((), {}),
        "schemas.check": (("orders-value", DRAFT), {}),
        "schemas.explain": (("orders-value", DRAFT), {}),
        "schema_changes.register": (("orders-value", DRAFT), {}),
        "schema_changes.delete_version": (("orders-value", 1), {}),
        "schema_changes.delete_subject": (("orders-value",), {}),
        "schema_changes.delete_context": ((".mill",), {}),
        "schema_changes.set_config": (("orders-value", {"normalize": True}), {}),
        "schema_changes.delete_config": (("orders-value",), {}),
        "schema_changes.set_mode": (("orders-value", "READONLY"), {}),
        "schema_changes.delete_mode": (("orders-value",), {}),
        "delayed.count_by_due": (("orders", [0]), {}),
        "delayed.list": (("orders",), {}),
        "delayed.describe": (("orders~0",), {}),
        "delayed.cancel": (("orders~0",), {}),
        "publisher.publish": (([Publication("orders", b"a")],), {}),
        "publisher.publish_many": (("orders", [(None, b"a", ())]), {}),
        "publisher.publish_one": (("orders", (None, b"a", ())), {}),
        "deliveries.subscribe": ((HEARD, lambda records: True), {}),
        "deliveries.join": (("billing", lambda records: True), {}),
        "deliveries.create": ((HEARD,), {}),
        "deliveries.delete": (("billing",), {}),
        "deliveries.list": ((), {}),
        "deliveries.describe": (("billing",), {}),
        "dead_letters.page": (("orders",), {"count_max": 1}),
        "dead_letters.list": (("orders",), {}),
        "dead_letters.statistics": (("orders",), {}),
        "dead_letters.replay": ((TopicPartition("orders.dlq", 0), 0), {}),
        "dead_letters.redrive": (("orders", RedrivePlan()), {}),
        "dead_letters.purge": (("orders",), {}),
        "producer_ids.next": ((), {}),
        "groups.join": (("readers",), JOIN),
        "groups.sync": (("readers",), {**MEMBER, "assignments": {}}),
        "groups.heartbeat": (("readers",), MEMBER),
        "groups.leave": (("readers", []), {}),
        "groups.commit_offsets": (("readers", {}), {}),
        "groups.commit_in_transaction": (
            ("readers", {}),
            {"transactional_id": "billing", "producer": Producer(1, 0)},
        ),
        "groups.fetch_offsets": (("readers",), {}),
        "groups.delete_offsets": (("readers", [ORDERS]), {}),
        "groups.coordinator_of": (("readers",), {}),
        "groups.describe": (("readers",), {}),
        "groups.delete": (("readers",), {}),
        "groups.operations": (("readers",), {}),
        "groups.sees": (("readers",), {}),
        "groups.admit_member": (("readers",), {}),
        "audit.query": ((AuditQuery(),), {}),
        "audit.follow": ((AuditQuery(),), {}),
        "access_rules.acls": ((AclFilter(),), {}),
        "access_rules.create": (([READ_ORDERS],), {}),
        "access_rules.delete": (([AclFilter()],), {}),
        "access_rules.replace": (([], [READ_ORDERS]), {}),
        "access_rules.of_topic": (("orders",), {}),
        "access_rules.share": (("orders", ["User:ann"]), {}),
        "access_rules.explain": (
            (Question(SYSTEM, "", AclOperation.READ, ResourceType.TOPIC, "orders"),),
            {},
        ),
        "access_rules.roles": ((), {}),
        "access_rules.put_role": (("ops",), {}),
        "access_rules.delete_role": (("ops",), {}),
        "groups.list": ((), {}),
        "consumer_groups.heartbeat": (("readers", Beat(member_id="m", epoch=0)), {}),
        "consumer_groups.describe": (("readers",), {}),
        "users.list": ((), {}),
        "users.describe": (("ann",), {}),
        "users.alter": (([UserChange(name="ann")],), {}),
        "users.set_password": (("ann", "secret"), {}),
        "users.change_own_password": (("old", "new"), {}),
        "users.disconnect": (("ann",), {}),
        "users.credentials": (("secret",), {}),
        "repairs.list": ((), {}),
        "repairs.skip": ((ORDERS, 0), {}),
        "cluster.describe": (("kafka", ("localhost", 9092)), {}),
        "cluster.known": (("kafka", ("localhost", 9092)), {}),
        "cluster.invite": ((("localhost:9092",),), {}),
        "cluster.change": ((1, NodeState.DRAINING), {}),
        "cluster.decommission": ((1,), {}),
        "cluster.check_decommission": ((1,), {}),
        "cluster.features": ((), {}),
        "cluster.check_upgrade": ((), {}),
        "cluster.upgrade": ((), {}),
        "cluster.check_move": ((topic, 0, (1,)), {}),
        "cluster.move": ((topic, {0: (1,)}), {}),
        "cluster.elect": ((topic, 0), {}),
        "cluster.plan_rebalance": ((), {"count_max": 1}),
        "cluster.moves": ((), {}),
        "cluster.invite_here": (("localhost",), {}),
        "cluster.invitations": ((), {}),
        "cluster.revoke": (("abc",), {}),
        "cluster.is_alone": ((), {}),
        "cluster.listeners": ((1,), {}),
        "encryption.describe": ((), {}),
        "encryption.rotate": (("data",), {}),
        "encryption.rewrite": ((), {}),
        "encryption.require": ((), {"is_required": False}),
        "checkpoints.make": ((), {}),
        "checkpoints.read": (("", "", 0), {}),
        "checkpoints.remove": ((), {}),
        "batch_groups.begin": (("spark:orders",), {}),
        "batch_groups.renew": (("spark:orders", 1, {}), {}),
        "batch_groups.end": (("spark:orders", Ending(1, "query", 0, {})), {"commits": True}),
    }


def services(node: Node) -> dict[str, object]:
    """The parts of the engine that a protocol can call, by their name in the node."""
    return {
        name: part
        for name, part in vars(node).items()
        if not name.startswith("_")
        and name not in WITHOUT_GATE
        and type(part).__module__.startswith("millstream.engine.")
    }


def public_methods(node: Node) -> dict[str, Callable[..., object]]:
    return {
        f"{service}.{name}": getattr(part, name)
        for service, part in services(node).items()
        for name, _ in inspect.getmembers(type(part), inspect.isfunction)
        if not name.startswith("_")
    }


class OnlyFriends(Everyone):
    def allows(self, session: Session, operation: Operation, resource: str) -> bool:
        return session == SESSION

    def operations_of(self, session: Session, resource: str) -> int:
        return 255 if session == SESSION else 0

    def owns(self, session: Session, topic: str) -> bool:
        return session == SESSION


async def ask(method: Callable[..., object], *arguments: object, **keywords: object) -> None:
    result = method(STRANGER, *arguments, **keywords)
    if isinstance(result, list) and isinstance(result[0], asyncio.Future):
        await asyncio.wait(result)
    if inspect.isawaitable(result):
        result = await result
    if isinstance(result, Receipts):  # A publisher is told for each message.
        result[0]
    if isinstance(result, list):  # A reader is told for each partition.
        raise result[0].error if isinstance(result[0], Slice) else result[0].exception()  # type: ignore[misc]


async def is_denied(method: Callable[..., object], call: Call) -> bool:
    arguments, keywords = call
    try:
        await ask(method, *arguments, **keywords)
    except Denied as problem:
        return "stranger may not" in str(problem)
    return False


def denials(node: Node) -> float:
    samples = [sample for sample in node.metrics.samples() if sample.metric is REQUESTS]
    return sum(sample.value for sample in samples if "denied" in sample.labels)


def test_every_public_method_takes_the_session_first() -> None:
    async def story() -> list[str]:
        async with running_node() as node:
            return [
                name
                for name, method in public_methods(node).items()
                if next(iter(inspect.signature(method).parameters), "") != "session"
            ]

    assert run(story()) == []


def test_every_public_method_is_called_here() -> None:
    async def story() -> None:
        async with running_node() as node:
            topic = await node.topics.create(SESSION, "orders")

            assert set(arguments_of(topic)) == set(public_methods(node))
            assert set(vars(node)) >= set(WITHOUT_GATE)

    run(story())


def test_a_stranger_is_denied_and_changes_nothing() -> None:
    async def story() -> list[str]:
        admitted = []
        async with running_node(policy=OnlyFriends()) as node:
            topic = await node.topics.create(SESSION, "orders")
            await node.partitions.append(SESSION, ORDERS, batch(b"a"), Acks.ALL)
            for name, method in public_methods(node).items():
                if name in QUESTIONS:
                    arguments, keywords = arguments_of(topic)[name]
                    assert not method(STRANGER, *arguments, **keywords)
                    continue
                before = denials(node)
                is_refused = await is_denied(method, arguments_of(topic)[name])
                if not is_refused or denials(node) == before:
                    admitted.append(name)

            assert node.topics.list(SESSION) == [topic]
            assert node.groups.list(SESSION) == []
            health = node.partitions.health(SESSION, ORDERS)
            assert (health.log.start_offset, health.log.end_offset) == (0, 1)
        return admitted

    assert run(story()) == []


def test_a_topic_that_does_not_exist_is_denied_before_it_is_unknown() -> None:
    async def story() -> None:
        async with running_node(policy=OnlyFriends()) as node:
            with pytest.raises(Denied):
                node.partitions.health(STRANGER, TopicPartition("secret", 0))

    run(story())
