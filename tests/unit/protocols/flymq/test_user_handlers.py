"""Users, rights and the audit trail over FlyMQ, on nodes that have them and on one without."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from millstream.config import Config
from millstream.control.acls import Acl, AclFilter
from millstream.model import Session
from millstream.protocols.flymq.gateway import FlymqGateway
from millstream.protocols.flymq.router import HANDLERS
from millstream.protocols.flymq.wire import bodies, user_bodies
from millstream.protocols.flymq.wire.frames import OPERATIONS, Body, Opcode
from millstream.server.gateway_factories import flymq_gateway_factory
from millstream.server.net.connection import Address, NewClient, Pace
from millstream.server.net.push_channel import PushChannel
from millstream.server.node import Node
from tests.support.flymq import Refused
from tests.support.rights import ANN, BOB, ROOT, SECURITY, acl, secured_node
from tests.support.virtual_loop import run
from tests.unit.protocols.flymq.arbitrary import arbitrary
from tests.unit.protocols.flymq.asking import Connection, open_listener

Ask = Callable[[Session, Opcode, Body], Awaitable[Any]]
UNTOUCHED = acl("DESCRIBE_CONFIGS", "topic:orders")

REFUSED = {
    "authentication is not enabled": range(0x73, 0x7E),
    "the audit trail is not enabled: set audit.enabled, or have listeners with logins": range(
        0x80, 0x82
    ),
}


def test_every_opcode_has_a_handler() -> None:
    assert set(HANDLERS) == set(OPERATIONS)


@pytest.mark.parametrize("sentence", REFUSED)
def test_what_is_not_there_is_refused_in_a_sentence(sentence: str) -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = listener.connect()
            for number in REFUSED[sentence]:
                opcode = Opcode(number)
                for form in OPERATIONS[opcode].requests:
                    with pytest.raises(Refused, match=f"^{sentence}$"):
                        await client.ask(opcode, arbitrary(form, Random(number)), tuple)

    run(main())


def test_every_login_succeeds_as_the_anonymous_user() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = listener.connect()

            answer = await client.ask(
                Opcode.AUTH,
                user_bodies.Authenticate("ann", "secret"),
                user_bodies.Authenticated,
            )
            assert answer == (True, "ann", ("admin",), "")
            who = await client.ask(Opcode.WHOAMI, bodies.Nothing(), user_bodies.Identity)
            assert who == (False, "", (), ())

    run(main())


# -- with rights -----------------------------------------------------------------------------------

Story = Callable[[Node, Ask], Awaitable[None]]


def on_a_secured_node(story: Story, *acls: Acl, **security: Any) -> None:
    """Run a story with a node and a way to ask it as anybody."""

    async def main() -> None:
        settings = replace(SECURITY, **security)
        config = Config(host="127.0.0.1")
        async with secured_node(*acls, config=config, security=settings) as node:
            make = flymq_gateway_factory(node)

            async def ask(session: Session, opcode: Opcode, request: Body) -> Any:
                client = NewClient(
                    Address("localhost", 9092), "10.0.0.7", Pace(), PushChannel(), session
                )
                gateway = make(client)
                assert isinstance(gateway, FlymqGateway)
                try:
                    return await Connection(gateway, client.pace).ask(opcode, request, tuple)
                finally:
                    gateway.close()

            await story(node, ask)

    run(main())


def a_user(name: str, password: str = "", roles: tuple[str, ...] = (), **others: Any) -> Body:
    fields = {"old_password": "", "is_enabled": True, **others}
    return user_bodies.UserRequest(name, password, roles=roles, **fields)


def test_users_are_made_listed_changed_and_deleted() -> None:
    async def story(node: Node, ask: Ask) -> None:
        made = await ask(ROOT, Opcode.USER_CREATE, a_user("eve", "eves", ("consumer",)))
        listed = await ask(ROOT, Opcode.USER_LIST, bodies.Nothing())
        with pytest.raises(Refused, match=r'^user "eve" already exists$'):
            await ask(ROOT, Opcode.USER_CREATE, a_user("eve", "other"))
        await ask(ROOT, Opcode.USER_UPDATE, a_user("eve", "", ("producer",), is_enabled=False))
        changed = await ask(ROOT, Opcode.USER_GET, user_bodies.UserOnly("eve"))
        await ask(ROOT, Opcode.USER_DELETE, user_bodies.UserOnly("eve"))
        with pytest.raises(Refused, match=r'^user "eve" not found$'):
            await ask(ROOT, Opcode.USER_GET, user_bodies.UserOnly("eve"))
        roles = await ask(ROOT, Opcode.ROLE_LIST, bodies.Nothing())

        assert made == ("eve", ("consumer",), (), True, 0, 0)
        assert [user.user for user in listed.users] == ["eve"]
        assert changed[:4] == ("eve", ("producer",), ("write",), False)
        assert changed.created_s > 0
        assert [role.name for role in roles.roles] == ["admin", "producer", "consumer", "guest"]
        assert roles.roles[0].permissions == ("read", "write", "admin")

    on_a_secured_node(story)


def test_a_user_has_its_own_account_and_no_other() -> None:
    async def story(node: Node, ask: Ask) -> None:
        for name in ("ann", "bob"):
            await ask(ROOT, Opcode.USER_CREATE, a_user(name, "first"))
        own = await ask(ANN, Opcode.USER_GET, user_bodies.UserOnly("ann"))
        await ask(ANN, Opcode.PASSWORD_CHANGE, a_user("ann", "second", old_password="first"))
        with pytest.raises(Refused, match=r"invalid|Authentication failed"):
            await ask(ANN, Opcode.PASSWORD_CHANGE, a_user("ann", "third", old_password="first"))
        for opcode, request in (
            (Opcode.USER_GET, user_bodies.UserOnly("bob")),
            (Opcode.USER_GET, user_bodies.UserOnly("no-such-user")),
            (Opcode.PASSWORD_CHANGE, a_user("bob", "mine", old_password="first")),
            (Opcode.PASSWORD_CHANGE, a_user("ann", "mine")),
        ):
            with pytest.raises(Refused, match=r"^unauthorized: "):
                await ask(ANN, opcode, request)
        with pytest.raises(Refused, match=r"^cannot delete your own account$"):
            await ask(ANN, Opcode.USER_DELETE, user_bodies.UserOnly("ann"))

        assert own.user == "ann"

    on_a_secured_node(story, clear_passwords="always", failed_login_delay_ms=0)


def test_an_acl_of_a_topic_is_a_view_of_the_brokers_acls() -> None:
    async def story(node: Node, ask: Ask) -> None:
        await node.topics.create(ROOT, "orders")
        orders = bodies.TopicOnly("orders")
        before = await ask(ROOT, Opcode.ACL_GET, orders)
        shared = user_bodies.SetAcl("orders", False, ("ann",), ("ops",))
        await ask(ROOT, Opcode.ACL_SET, shared)
        stored = node.access_rules.acls(ROOT, AclFilter())
        named = await ask(ANN, Opcode.ACL_GET, orders)
        await ask(ROOT, Opcode.ACL_SET, user_bodies.SetAcl("orders", True, (), ()))
        listed = await ask(ROOT, Opcode.ACL_LIST, bodies.Nothing())
        removed = await ask(ROOT, Opcode.ACL_DELETE, orders)
        again = await ask(ROOT, Opcode.ACL_DELETE, orders)

        assert before == ("orders", False, False, False, (), ())
        assert {(str(acl.principal), acl.operation.name) for acl in stored} == {
            ("User:ann", "DESCRIBE_CONFIGS"),
            *((name, right) for name in ("User:ann", "Role:ops") for right in ("READ", "WRITE")),
        }
        assert named == ("orders", True, False, False, ("ann",), ("ops",))
        assert listed == ((("orders", True, True, (), ()),), False)
        assert (removed, again) == ((True, "orders"), (False, "orders"))
        # What it does not show, it does not touch.
        assert node.access_rules.acls(ROOT, AclFilter()) == [UNTOUCHED]

    on_a_secured_node(story, UNTOUCHED)


def test_an_owner_shares_its_topic_and_others_do_not() -> None:
    async def story(node: Node, ask: Ask) -> None:
        await node.topics.create(ROOT, "orders", settings={"owner": "User:ann"})
        shared = user_bodies.SetAcl("orders", False, ("bob",), ())
        with pytest.raises(Refused, match=r"^unauthorized: "):
            await ask(BOB, Opcode.ACL_SET, shared)
        with pytest.raises(Refused, match=r"^unauthorized: "):
            await ask(BOB, Opcode.ACL_DELETE, bodies.TopicOnly("orders"))
        await ask(ANN, Opcode.ACL_SET, shared)

        assert (await ask(BOB, Opcode.ACL_GET, bodies.TopicOnly("orders"))).users == ("bob",)

    on_a_secured_node(story)


def test_no_topic_is_public_where_every_listener_asks_for_a_login() -> None:
    async def story(node: Node, ask: Ask) -> None:
        public = user_bodies.SetAcl("orders", True, (), ())
        with pytest.raises(Refused, match=r"^cannot make topic public because anonymous access"):
            await ask(ROOT, Opcode.ACL_SET, public)

        assert node.access_rules.acls(ROOT, AclFilter()) == []

    on_a_secured_node(story, protocol="sasl_plaintext")
