"""Views and transactions by REST."""

from tests.support.http import HttpClient, HttpNode


def test_a_view_is_created_changed_and_deleted(ask: HttpClient) -> None:
    ask.post("/v1/topics", {"name": "sales", "partitions": 2})
    body = {"name": "big-sales", "topic": "sales", "filter": "$.total > 500"}
    planned = ask.post("/v1/views", {**body, "dry_run": True})
    before = ask.get("/v1/views?topic=sales").json["items"]
    made = ask.post("/v1/views", body)
    changed = ask("PATCH", "/v1/views/big-sales", {"filter": "$.total > 900"})

    assert (planned.json["partitions"], before) == (2, [])
    assert made.status == 201
    assert made.headers["location"] == "/v1/views/big-sales"
    assert changed.json["filter"] == "$.total > 900"
    assert [v["name"] for v in ask.get("/v1/views?topic=sales").json["items"]] == ["big-sales"]
    assert ask("DELETE", "/v1/views/big-sales").status == 204
    assert ask.get("/v1/views/big-sales").status == 404
    assert ask.get("/v1/topics/sales").status == 200


def test_a_wrong_filter_makes_no_view(ask: HttpClient) -> None:
    ask.post("/v1/topics", {"name": "wrong-base"})

    answer = ask.post("/v1/views", {"name": "wrong", "topic": "wrong-base", "filter": "$.a >"})

    assert answer.status == 422
    assert "filter" in answer.json["message"]
    assert ask.get("/v1/views/wrong").status == 404


def test_a_topic_is_no_view(ask: HttpClient) -> None:
    ask.post("/v1/topics", {"name": "plain-topic"})

    assert ask("DELETE", "/v1/views/plain-topic").status == 404
    assert ask.get("/v1/topics/plain-topic").status == 200


def test_a_hanging_transaction_is_seen_and_aborted(node: HttpNode, ask: HttpClient) -> None:
    from confluent_kafka import KafkaException, Producer

    ask.post("/v1/topics", {"name": "ledger"})
    port = node.broker.call(lambda broker: broker.addresses["kafka"].port)
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{port}", "transactional.id": "settle"})
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce("ledger", b"1")
    producer.flush(10)

    view = ask.get("/v1/transactions/settle").json
    listed = ask.get("/v1/transactions?state=ongoing").json["items"]
    aborted = ask.post("/v1/transactions/settle:abort")
    fenced = None
    try:
        producer.commit_transaction(10)
    except KafkaException as error:
        fenced = error

    assert view["state"] == "ongoing"
    assert view["partitions"] == [{"topic": "ledger", "partition": 0}]
    assert view["age_ms"] >= 0
    assert [t["transactional_id"] for t in listed] == ["settle"]
    assert aborted.json["state"] in {"empty", "complete_abort", "prepare_abort"}
    assert fenced is not None
    assert ask.get("/v1/transactions/nobody").status == 404


def test_an_unknown_state_is_refused(ask: HttpClient) -> None:
    answer = ask.get("/v1/transactions?state=sleeping")

    assert answer.status == 422
    assert "sleeping" in answer.json["message"]
