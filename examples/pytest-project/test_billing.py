"""Tests against a real broker: the fixtures come with Millstream. Run: pytest"""

import json

import billing


def test_a_bill_is_price_times_weight():
    assert billing.bill({"id": 1, "item": "rye", "kg": 5}) == {"id": 1, "euro": 15}


def test_every_order_becomes_a_bill(millstream_broker, millstream_client, millstream_make_topic):
    orders, bills = millstream_make_topic(), millstream_make_topic()
    for number in range(3):
        order = json.dumps({"id": number, "item": "flour", "kg": number})
        millstream_client.produce(orders, order, key=str(number))

    billing.run(millstream_broker.bootstrap, orders, bills, count=3)

    with millstream_client.consumer(bills) as consumer:
        written = [json.loads(message.value) for message in consumer.take(3)]
    assert written == [{"id": 0, "euro": 0}, {"id": 1, "euro": 2}, {"id": 2, "euro": 4}]
