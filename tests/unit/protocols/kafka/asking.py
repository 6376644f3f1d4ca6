"""Ask a handler directly: a context made by hand, and the answer as a client would read it."""

import inspect
from typing import TypeVar

from millstream.kafka_wire.apis.table import APIS
from millstream.kafka_wire.headers import RequestHeader, decode_response, encode_response
from millstream.kafka_wire.schema import Message
from millstream.model import Session, user_principal
from millstream.protocols.kafka.context import Broker, Context, Endpoint
from millstream.protocols.kafka.fetch_sessions import Sessions
from millstream.protocols.kafka.router import HANDLERS
from millstream.server.net.connection import Pace
from millstream.server.node import Node
from tests.support.nodes import SESSION

STRANGER = Session(principal=user_principal("stranger"))

M = TypeVar("M", bound=Message)


def context_of(
    node: Node, header: RequestHeader, session: Session, *, request_bytes: int = 0
) -> Context:
    broker = Broker(
        config=node.config,
        cluster_id="cluster",
        topics=node.topics,
        partitions=node.partitions,
        groups=node.groups,
        consumer_groups=node.consumer_groups,
        producer_ids=node.producer_ids,
        fetch_sessions=Sessions(node.config.limits, node.entropy),
        transactions=node.transactions,
        batch_groups=node.batch_groups,
        client_quotas=node.client_quotas,
        resources=node.resources,
        usage=node.usage,
        dead_letters=node.dead_letters,
        delayed=node.delayed,
        repairs=node.repairs,
        users=node.users,
        access_rules=node.access_rules,
        audit=node.audit,
        encryption=node.encryption,
        checkpoints=node.checkpoints,
        members=node.members,
        cluster=node.cluster,
    )
    return Context(broker, session, header, Endpoint("localhost", 9092), Pace(), request_bytes)


async def ask(
    node: Node,
    request: Message,
    answer: type[M],
    *,
    version: int | None = None,
    session: Session = SESSION,
) -> M:
    """Call the handler of `request`; return its answer after a way over the wire."""
    api = next(api for api in APIS.values() if api.request is type(request))
    header = RequestHeader(api.key, api.last if version is None else version, 7)
    outcome = HANDLERS[api.key](context_of(node, header, session), request)
    response = await outcome if inspect.isawaitable(outcome) else outcome
    assert isinstance(response, Message)
    frame = b"".join(bytes(chunk) for chunk in encode_response(header, response))  # type: ignore[arg-type]
    _, read = decode_response(api, header.api_version, frame[4:])
    assert isinstance(read, answer)
    return read
