"""A broker that is killed while clients register: what was answered is there, no id is reused."""

import http.client
import json
import threading
import time
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess

CLIENTS = 4
KILLS = 3
LIFE_S = 1.0
MEDIA = {"Content-Type": "application/vnd.schemaregistry.v1+json"}


def schema(client: int, number: int) -> str:
    return json.dumps({"type": "fixed", "name": f"F{client}_{number}", "size": 4})


class Registering(threading.Thread):
    """Registers schema after schema, and deletes every fifth for good, until the broker is gone."""

    def __init__(self, broker: BrokerProcess, client: int, first: int) -> None:
        super().__init__()
        self._address = (broker.host, broker.config.http_port)
        self._client = client
        self._first = first
        self.answered: dict[int, str] = {}
        self.deleted: set[int] = set()
        self.sent = first

    def run(self) -> None:
        connection = http.client.HTTPConnection(*self._address, timeout=20)
        try:
            while True:
                self.sent += 1
                text = schema(self._client, self.sent)
                path = f"/subjects/s{self._client}-{self.sent}"
                number = self._ask(connection, "POST", f"{path}/versions", {"schema": text})["id"]
                self.answered[number] = text
                if self.sent % 5 == 0:
                    self.deleted.add(number)
                    self._ask(connection, "DELETE", path)
                    self._ask(connection, "DELETE", f"{path}?permanent=true")
        except (OSError, http.client.HTTPException, ValueError):
            return
        finally:
            connection.close()

    @staticmethod
    def _ask(
        connection: http.client.HTTPConnection, method: str, path: str, body: object = None
    ) -> dict[str, int]:
        connection.request(method, path, None if body is None else json.dumps(body), MEDIA)
        answer: dict[str, int] = json.loads(connection.getresponse().read())
        return answer


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_what_was_answered_is_there_and_no_id_means_two_schemas(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, LISTENERS="kafka,http")
    answered: dict[int, str] = {}
    deleted: set[int] = set()
    sent = [0] * CLIENTS
    for _ in range(KILLS):
        broker.start()
        clients = [Registering(broker, at, sent[at]) for at in range(CLIENTS)]
        for client in clients:
            client.start()
        time.sleep(LIFE_S)
        broker.kill()
        for at, client in enumerate(clients):
            client.join()
            sent[at] = client.sent
            for number, text in client.answered.items():
                assert answered.setdefault(number, text) == text, f"id {number} was given twice"
            deleted |= client.deleted
    broker.start()
    try:
        connection = http.client.HTTPConnection(broker.host, broker.config.http_port, timeout=20)
        lost = []
        for number, text in answered.items():
            connection.request("GET", f"/schemas/ids/{number}/schema")
            known = json.loads(connection.getresponse().read())
            if known != json.loads(text) and number not in deleted:
                lost.append(number)
            if number in deleted:
                assert known in (json.loads(text), {**known, "error_code": 40403})
        connection.close()
    finally:
        broker.kill()

    assert len(answered) > 2 * CLIENTS * KILLS
    assert lost == []
