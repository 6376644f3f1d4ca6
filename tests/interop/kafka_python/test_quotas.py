"""kafka-python's messages for client quotas; its administrator has no methods for them yet."""

from typing import Any

from kafka.protocol.admin import AlterClientQuotasRequest, DescribeClientQuotasRequest

from tests.interop.kafka_python.clients import administering
from tests.support.broker_process import BrokerProcess

EXACT, DEFAULT, ANY = 0, 1, 2


def ask(broker: BrokerProcess, request: Any) -> Any:
    with administering(broker.address) as admin:
        return admin._manager.run(admin._manager.send, request)


def alter(broker: BrokerProcess, parts: dict[str, str | None], **rates: float | None) -> Any:
    request = AlterClientQuotasRequest(
        entries=[
            AlterClientQuotasRequest.EntryData(
                entity=[
                    AlterClientQuotasRequest.EntryData.EntityData(
                        entity_type=kind, entity_name=name
                    )
                    for kind, name in parts.items()
                ],
                ops=[
                    AlterClientQuotasRequest.EntryData.OpData(
                        key=key, value=rate or 0.0, remove=rate is None
                    )
                    for key, rate in rates.items()
                ],
            )
        ],
        validate_only=False,
    )
    (entry,) = ask(broker, request).entries
    return entry


def described(
    broker: BrokerProcess, kind: str, match_type: int, name: str | None
) -> dict[str | None, dict[str, float]]:
    component = DescribeClientQuotasRequest.ComponentData(
        entity_type=kind, match_type=match_type, match=name
    )
    answer = ask(broker, DescribeClientQuotasRequest(components=[component], strict=True))
    assert answer.error_code == 0
    return {
        entry.entity[0].entity_name: {value.key: value.value for value in entry.values}
        for entry in answer.entries
    }


def test_quotas_are_set_described_and_taken_away(broker: BrokerProcess) -> None:
    assert alter(broker, {"client-id": "app"}, producer_byte_rate=5e6).error_code == 0
    assert alter(broker, {"client-id": None}, consumer_byte_rate=9e9).error_code == 0

    assert described(broker, "client-id", ANY, None) == {
        "app": {"producer_byte_rate": 5e6},
        None: {"consumer_byte_rate": 9e9},
    }
    assert described(broker, "client-id", DEFAULT, None) == {None: {"consumer_byte_rate": 9e9}}

    assert alter(broker, {"client-id": "app"}, producer_byte_rate=None).error_code == 0
    assert alter(broker, {"client-id": None}, consumer_byte_rate=None).error_code == 0
    assert described(broker, "client-id", ANY, None) == {}


def test_what_is_not_carried_out_is_refused_with_a_sentence(broker: BrokerProcess) -> None:
    refused = alter(broker, {"user": "alice"}, request_percentage=50.0)

    assert refused.error_code == 42
    assert "'request_percentage' is not limited here" in refused.error_message
