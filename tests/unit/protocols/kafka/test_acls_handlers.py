"""ACLs, roles and explained decisions as clients ask for them."""

import pytest

from millstream.config import Config, Limits
from millstream.kafka_wire.apis.rights import (
    AlterRolesRequest,
    AlterRolesResponse,
    DescribeRolesRequest,
    DescribeRolesResponse,
    ExplainAccessRequest,
    ExplainAccessResponse,
)
from millstream.kafka_wire.apis.security import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from millstream.model import Session
from millstream.server.node import Node
from millstream.storage.files.memory import MemoryFiles
from tests.support.nodes import running_node
from tests.support.rights import ANN, BOB, ROOT, acl, secured_node
from tests.support.virtual_loop import run
from tests.unit.protocols.kafka.asking import ask

New = CreateAclsRequest.Creation
READ_ORDERS = acl("READ", "topic:orders")
Row = tuple[int, str, int, str, str, int, int]


def new(**changes: object) -> New:
    values = {
        "resource_type": 2,
        "resource_name": "orders",
        "resource_pattern_type": 3,
        "principal": "User:ann",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    return New(**{**values, **changes})  # type: ignore[arg-type]


async def create(node: Node, *creations: New, session: Session = ROOT) -> list[int]:
    request = CreateAclsRequest(creations=list(creations))
    answer = await ask(node, request, CreateAclsResponse, session=session)
    assert [bool(r.error_message) for r in answer.results] == [
        bool(r.error_code) for r in answer.results
    ]
    return [result.error_code for result in answer.results]


def acl_filter(**changes: object) -> dict[str, object]:
    values: dict[str, object] = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    return {**values, **changes}


async def describe(
    node: Node, *, session: Session = ROOT, version: int = 3, **changes: object
) -> tuple[int, list[Row]]:
    request = DescribeAclsRequest(**acl_filter(**changes))  # type: ignore[arg-type]
    answer = await ask(node, request, DescribeAclsResponse, session=session, version=version)
    rows = [
        (
            resource.resource_type,
            resource.resource_name,
            resource.pattern_type,
            rule.principal,
            rule.host,
            rule.operation,
            rule.permission_type,
        )
        for resource in answer.resources
        for rule in resource.acls
    ]
    return answer.error_code, rows


async def delete(
    node: Node, *, session: Session = ROOT, **changes: object
) -> tuple[int, list[str]]:
    entry = DeleteAclsRequest.Filter(**acl_filter(**changes))  # type: ignore[arg-type]
    request = DeleteAclsRequest(filters=[entry])
    answer = await ask(node, request, DeleteAclsResponse, session=session)
    (result,) = answer.filter_results
    return result.error_code, [rule.resource_name for rule in result.matching_acls]


def test_acls_are_made_listed_and_removed_and_outlive_a_restart() -> None:
    files = MemoryFiles()

    async def first() -> None:
        async with secured_node(files=files) as node:
            assert await create(node, new(), new(operation=4), new()) == [0, 0, 0]
            assert await create(node, new()) == [0]

    async def second() -> None:
        async with secured_node(files=files) as node:
            _, rows = await describe(node)
            assert rows == [
                (2, "orders", 3, "User:ann", "*", 3, 3),
                (2, "orders", 3, "User:ann", "*", 4, 3),
            ]
            assert await delete(node, operation=4) == (0, ["orders"])
            assert len((await describe(node))[1]) == 1

    run(first())
    run(second())


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"resource_name": ""}, 42),
        ({"resource_type": 4}, 42),
        ({"resource_type": 1}, 42),
        ({"resource_type": 0}, 42),
        ({"resource_type": 99}, 42),
        ({"resource_pattern_type": 1}, 42),
        ({"resource_pattern_type": 2}, 42),
        ({"operation": 1}, 42),
        ({"operation": 13}, 42),
        ({"permission_type": 1}, 42),
        ({"principal": "ann"}, 42),
        ({"principal": "User:"}, 42),
        ({"principal": "Group:ann"}, 67),
        ({"host": "somewhere"}, 42),
        ({"host": "10.0.0.0/33"}, 42),
    ],
    ids=str,
)
def test_a_creation_that_cannot_be_is_refused_and_the_others_are_made(
    change: dict[str, object], code: int
) -> None:
    async def story() -> None:
        async with secured_node() as node:
            assert await create(node, new(**change), new()) == [code, 0]
            assert len((await describe(node))[1]) == 1

    run(story())


def test_filters_mean_what_kafka_means() -> None:
    rules = [
        acl("READ", "topic:orders"),
        acl("READ", "topic:ord..."),
        acl("READ", "topic:*"),
        acl("READ", "topic:x..."),
        acl("WRITE", "group:orders", principal="User:bob", denies=True),
    ]

    async def story() -> None:
        async with secured_node(*rules) as node:

            async def names(**changes: object) -> list[tuple[str, int]]:
                code, rows = await describe(node, **changes)  # type: ignore[arg-type]
                assert code == 0
                return [(row[1], row[2]) for row in rows]

            topic: dict[str, object] = {"resource_type_filter": 2}
            assert len(await names()) == 5
            assert await names(**topic, resource_name_filter="orders", pattern_type_filter=2) == [
                ("orders", 3),
                ("ord", 4),
                ("*", 3),
            ]
            assert await names(resource_name_filter="orders") == [("orders", 3), ("orders", 3)]
            assert await names(pattern_type_filter=4) == [("ord", 4), ("x", 4)]
            assert await names(principal_filter="User:bob") == [("orders", 3)]
            assert await names(permission_type=2) == [("orders", 3)]
            assert await names(operation=4) == [("orders", 3)]
            assert (await describe(node, resource_type_filter=99))[0] == 42
            assert (await describe(node, operation=0))[0] == 42

    run(story())


def test_too_many_acls_are_refused_one_by_one() -> None:
    async def story() -> None:
        config = Config(limits=Limits(acls_max=2))
        async with secured_node(config=config) as node:
            codes = await create(node, new(), new(operation=4), new(operation=8), new())
            assert codes == [0, 0, 44, 0]

    run(story())


def test_without_authorization_there_are_no_acls() -> None:
    async def story() -> None:
        async with running_node() as node:
            answer = await ask(
                node,
                DescribeAclsRequest(**acl_filter()),  # type: ignore[arg-type]
                DescribeAclsResponse,
            )
            assert (answer.error_code, answer.error_message) == (54, "No Authorizer is configured")
            assert await create(node, new()) == [54]
            assert (await delete(node))[0] == 54

    run(story())


def test_who_may_not_alter_the_cluster_changes_no_acl() -> None:
    async def story() -> None:
        async with secured_node(acl("DESCRIBE", "cluster")) as node:
            assert (await describe(node, session=ANN))[0] == 0
            assert (await describe(node, session=BOB)) == (31, [])
            assert await create(node, new(operation=4), session=ANN) == [31]
            assert await delete(node, session=ANN) == (31, [])
            assert len((await describe(node))[1]) == 1

    run(story())


def test_an_owner_gives_rights_to_its_own_topic_only() -> None:
    async def story() -> None:
        async with secured_node() as node:
            await node.topics.create(ROOT, "orders", settings={"owner": "User:ann"})
            bob = new(principal="User:bob")

            assert await create(node, bob, session=ANN) == [0]
            assert await create(node, bob, session=BOB) == [31]
            assert await create(node, new(resource_name="other"), session=ANN) == [31]
            assert await create(node, new(resource_pattern_type=4), session=ANN) == [31]
            mine: dict[str, object] = {"resource_type_filter": 2, "resource_name_filter": "orders"}
            assert (await delete(node, session=ANN, **mine))[0] == 31
            assert await delete(node, session=ANN, **mine, pattern_type_filter=3) == (
                0,
                ["orders"],
            )
            await node.topics.alter(ROOT, "orders", {"owner": "User:bob"})
            assert await create(node, bob, session=ANN) == [31]

    run(story())


def test_roles_are_made_listed_and_deleted() -> None:
    async def story() -> None:
        async with secured_node() as node:

            async def alter(name: str, action: int, description: str = "") -> int:
                change = AlterRolesRequest.Change(name=name, action=action, description=description)
                answer = await ask(
                    node, AlterRolesRequest(changes=[change]), AlterRolesResponse, session=ROOT
                )
                return answer.results[0].error_code

            assert await alter("ops", 0, "On call") == 0
            assert await alter("ops", 0) == 42
            assert await alter("ops", 1, "At night") == 0
            assert await alter("admin", 1) == 42
            assert await alter("nobody", 2) == 91
            assert await alter("ops", 7) == 42
            answer = await ask(node, DescribeRolesRequest(), DescribeRolesResponse)
            assert [(r.name, r.description, r.is_built_in) for r in answer.roles][-2:] == [
                ("guest", "", True),
                ("ops", "At night", False),
            ]
            assert await alter("ops", 2) == 0
            refused = await ask(node, DescribeRolesRequest(), DescribeRolesResponse, session=ANN)
            assert refused.error_code == 31

    run(story())


def test_a_decision_is_explained_by_its_rule() -> None:
    async def story() -> None:
        rules = [READ_ORDERS, acl("READ", "topic:orders", principal="User:bob", denies=True)]
        async with secured_node(*rules) as node:

            async def explain(principal: str, session: Session = ROOT) -> tuple[int, bool, str]:
                request = ExplainAccessRequest(
                    principal=principal,
                    host="10.0.0.7",
                    operation=8,
                    resource_type=2,
                    resource_name="orders",
                )
                answer = await ask(node, request, ExplainAccessResponse, session=session)
                return answer.error_code, answer.is_allowed, answer.rule

            assert await explain("User:ann") == (0, True, str(READ_ORDERS))
            assert await explain("User:bob") == (0, False, "no ACL allows it")
            assert await explain("User:test") == (
                0,
                True,
                "User:test is one of security.super_users",
            )
            assert await explain("Role:consumer") == (0, True, "the role consumer")
            assert await explain("User:ann", ANN) == (0, True, str(READ_ORDERS))
            assert await explain("User:bob", ANN) == (31, False, "")
            assert (await explain("ann"))[0] == 42

    run(story())
