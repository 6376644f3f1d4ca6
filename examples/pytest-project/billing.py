"""A program as it is found anywhere: reads orders, writes bills, with a plain Kafka client."""

import json

from confluent_kafka import Consumer, Producer

PRICE = {"flour": 2, "rye": 3}


def bill(order: dict[str, object]) -> dict[str, object]:
    return {"id": order["id"], "euro": PRICE[str(order["item"])] * int(str(order["kg"]))}


def run(bootstrap: str, orders: str, bills: str, *, count: int) -> None:
    """Bill `count` orders, then stop."""
    producer = Producer({"bootstrap.servers": bootstrap})
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "billing", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([orders])
    try:
        for message in consumer.consume(count, timeout=30):
            order = json.loads(message.value() or b"")
            producer.produce(bills, json.dumps(bill(order)), key=message.key())
        producer.flush()
        consumer.commit()
    finally:
        consumer.close()
