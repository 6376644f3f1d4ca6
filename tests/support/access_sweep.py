"""The sweep over requests and their rights: a recording policy, ACLs by abbreviation, a digest.

For each request of a protocol: what it asks for equals its rule; exactly these rights are enough;
each of them alone missing is refused and changes nothing; hidden names cannot be told from missing.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from millstream.config import Config
from millstream.control.acls import Acl, AclFilter, AclOperation
from millstream.control.decision import IMPLIED_BY
from millstream.engine.access.rights import KINDS, LISTINGS, RIGHTS
from millstream.engine.gate import Everyone, Operation
from millstream.engine.push import SubscriptionSpec
from millstream.errors import MillstreamError
from millstream.model import Acks, Session, TopicPartition
from millstream.protocols.access_rules import OPERATIONS, RESOURCES, Rule
from millstream.server.node import Node
from tests.support.nodes import ORDERS, batch, running_node
from tests.support.rights import ANN, ROOT, SECURITY, acl, secured_node

NAMES = {"T": "topic:orders", "G": "group:readers", "C": "cluster", "X": "transactional_id:billing"}
LETTERS = {kind: letter for letter, kind in RESOURCES.items()}
WORDS = {operation: letters for letters, operation in OPERATIONS.items()}

# Sends a request about a topic as a session; returns the answer, as text.
Send = Callable[[Node, Session, str], Awaitable[str]]


class Recording(Everyone):
    """Allows everything, and notes what was asked for ANN in the abbreviations of the rules."""

    def __init__(self) -> None:
        self.asked: set[str] = set()

    def owns(self, session: Session, topic: str) -> bool:
        return False

    def allows(self, session: Session, operation: Operation, resource: str) -> bool:
        kind = resource.partition(":")[0]
        if session.principal == ANN.principal and kind not in LISTINGS:
            rights = RIGHTS[operation.words][KINDS[kind]]
            right = rights[-1] if operation is Operation.CREATE else rights[0]
            self.asked.add(f"{WORDS[right.operation]} {LETTERS[right.on]}")
        return True


def rule_of(right: str) -> Acl:
    """The ACL for ANN that gives a right on every name."""
    operation, _, letter = right.partition(" ")
    kind = NAMES[letter].partition(":")[0]
    return acl(OPERATIONS[operation].name, f"{kind}:*" if letter != "C" else kind)


def is_left(right: str, others: set[str]) -> bool:
    """Whether the other rights give this one too."""
    operation, _, letter = right.partition(" ")
    by = IMPLIED_BY.get(OPERATIONS[operation], frozenset[AclOperation]())
    return any(f"{WORDS[other]} {letter}" in others for other in by)


async def prepare(node: Node) -> None:
    """Topics, a group with an offset, a subscription, a record, a delayed record."""
    await node.topics.create(ROOT, "orders")
    await node.topics.create(ROOT, "orders.dlq")
    await node.partitions.append(ROOT, ORDERS, batch(b"a"), Acks.ALL)
    await node.groups.coordinator_of(ROOT, "readers")
    await node.deliveries.create(ROOT, SubscriptionSpec(name="sub", topics=("orders",)))
    await node.transactions.coordinator_of(ROOT, "billing")


def digest(node: Node) -> object:
    """All that a request could have changed."""
    ends = {}
    for topic in node.topics.list(ROOT):
        for partition in range(topic.partition_count):
            target = TopicPartition(topic.name, partition)
            with suppress(MillstreamError):
                log = node.partitions.health(ROOT, target).log
                ends[target] = (log.start_offset, log.end_offset)
    rules: object = None
    with suppress(MillstreamError):
        rules = node.access_rules.acls(ROOT, AclFilter())
    return (
        node.topics.list(ROOT),
        node.groups.list(ROOT),
        node.transactions.list(ROOT),
        node.client_quotas.describe(ROOT),
        node.access_rules.roles(ROOT),
        node.users.list(ROOT),
        rules,
        ends,
    )


async def recorded(send: Send) -> set[str]:
    """The rights that a request asks for."""
    policy = Recording()
    async with running_node(Config(security=SECURITY), policy=policy) as node:
        await prepare(node)
        await bounded(send(node, ANN, "orders"))
        return policy.asked


async def bounded(answer: Awaitable[str]) -> str:
    async with asyncio.timeout(60):
        return await answer


async def answered(send: Send, rights: set[str], name: str = "orders") -> tuple[str, bool]:
    """The answer to a client with these rights, and whether the node is as it was."""
    async with secured_node(*(rule_of(right) for right in sorted(rights))) as node:
        await prepare(node)
        before = digest(node)
        answer = await bounded(send(node, ANN, name))
        return answer, digest(node) == before


async def check_rights(send: Send, rule: Rule, is_denied: Callable[[str], bool]) -> None:
    """Exactly the rights that were asked for are enough, and each needed one is needed."""
    asked = await recorded(send)
    assert set(rule.needs) <= asked <= {*rule.needs, *rule.also}, asked
    answer, _ = await answered(send, asked)
    assert not is_denied(answer), answer
    for missing in rule.needs:
        others = asked - {missing}
        if is_left(missing, others):
            continue
        answer, is_unchanged = await answered(send, others)
        assert is_denied(answer), (missing, answer)
        assert is_unchanged, missing


async def check_hidden(send: Send, rule: Rule) -> None:
    """Without rights a topic that exists is answered as one that does not."""
    there, is_unchanged = await answered(send, set())
    missing, _ = await answered(send, set(), "hidden")

    assert there.replace("orders", "hidden") == missing
    assert is_unchanged or not rule.needs
