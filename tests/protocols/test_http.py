"""Metrics over HTTP, as Prometheus reads them, from a real broker."""

import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.client import connect
from tests.support.broker_process import BrokerProcess


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("broker"), LISTENERS="kafka,http")
    process.start()
    yield process
    process.kill()


def ask(
    broker: BrokerProcess, path: str, method: str = "GET", body: bytes | None = None
) -> tuple[int, str]:
    connection = http.client.HTTPConnection(broker.host, broker.config.http_port, timeout=30)
    try:
        connection.request(method, path, body)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def test_every_metric_stands_once_with_its_type(broker: BrokerProcess) -> None:
    with connect(broker.address) as client, client.producer() as producer:
        for partition in range(2):
            producer.send("orders", b"x", key=b"%d" % partition).result(30)

    status, text = ask(broker, "/metrics")

    types = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")]
    assert status == 200
    assert len(types) == len(set(types))
    assert "millstream_appended_records_total 2\n" in text
    assert 'millstream_partition_high_watermark{topic="orders",partition="0"} 2\n' in text


def test_a_connection_serves_many_scrapes(broker: BrokerProcess) -> None:
    connection = http.client.HTTPConnection(broker.host, broker.config.http_port, timeout=30)
    for _ in range(3):
        connection.request("GET", "/metrics")
        assert b"millstream_connections" in connection.getresponse().read()
    connection.close()


def test_all_else_is_refused_with_a_sentence(broker: BrokerProcess) -> None:
    unknown, text = ask(broker, "/helth")
    wrong, method_text = ask(broker, "/metrics", "DELETE")

    assert unknown == 404
    assert json.loads(text)["message"].startswith("there is no /helth; ")
    assert wrong == 405
    message = json.loads(method_text)["message"]
    assert message == "DELETE is not allowed on /metrics; allowed: GET, HEAD"
    assert ask(broker, "/metrics", "HEAD") == (200, "")
    assert ask(broker, "/metrics", "POST", b"abc")[0] == 405


def test_bytes_that_are_no_http_are_answered_and_end_the_connection_only(
    broker: BrokerProcess,
) -> None:
    with socket.create_connection((broker.host, broker.config.http_port), timeout=30) as client:
        client.sendall(b"\x00" * 10_000)
        answer = b"".join(iter(lambda: client.recv(65536), b""))

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"Connection: close" in answer
    assert ask(broker, "/metrics")[0] == 200


def test_without_the_listener_the_port_is_not_opened(tmp_path: Path) -> None:
    process = BrokerProcess(tmp_path, LISTENERS="kafka,flymq")
    process.start()
    try:
        assert process.config.http_port == 0
    finally:
        process.kill()
