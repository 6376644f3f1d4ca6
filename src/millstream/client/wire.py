"""ListTransactions, the one Kafka request that librdkafka does not offer.

Owns its few bytes (version 0, flexible, KIP-664); each node is asked over a connection of its own.
"""

from collections.abc import Iterable

from millstream.client.answers import Reader, understanding
from millstream.client.errors import ClientError
from millstream.client.models import BrokerNode, Transaction
from millstream.client.secured import Config, Connection

API_KEY = 66
NAMES = {35: "UNSUPPORTED_VERSION", 14: "COORDINATOR_LOAD_IN_PROGRESS", 15: "NOT_AVAILABLE"}
ALL = b"\x01\x01\0"  # No filter by state, none by producer, no tagged fields.
DOING = "list transactions"


def list_transactions(
    nodes: Iterable[BrokerNode], config: Config, *, timeout_s: float
) -> tuple[Transaction, ...]:
    found: list[Transaction] = []
    for node in nodes:
        with Connection(node, config, doing=DOING, timeout_s=timeout_s) as broker:
            found += parse(broker.ask(API_KEY, 0, ALL, is_flexible=True), node.node_id)
    return tuple(sorted(found, key=lambda one: one.transactional_id))


def parse(answer: bytes, coordinator_id: int) -> list[Transaction]:
    """Read the body after the correlation id."""
    with understanding(DOING):
        reader = Reader(answer)
        reader.tags()  # Of the response header.
        _, code = reader.numbers(">ih")
        if code:
            name = NAMES.get(code, f"error {code}")
            raise ClientError(f"cannot {DOING}: {name.lower()}.", code=name)
        for _ in range(reader.varint() - 1):
            reader.text()  # A filter that it does not know.
        return reader.array(lambda: _transaction(reader, coordinator_id))


def _transaction(reader: Reader, coordinator_id: int) -> Transaction:
    return Transaction(
        transactional_id=reader.text(),
        producer_id=reader.number(">q"),
        state=reader.text(),
        coordinator_id=coordinator_id,
    )
