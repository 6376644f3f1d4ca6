"""The node over REST: cluster, nodes, configuration, connections, figures, events."""

import http.client
import io
import json
import logging
import socket
import time
import zipfile
from contextlib import suppress
from typing import Any

import pytest

from millstream.client import connect
from millstream.control.tokens import decode_token
from tests.http.test_records import events
from tests.support.http import HttpClient, HttpNode, http_node


def test_the_cluster_and_its_node(ask: HttpClient) -> None:
    cluster = ask.get("/v1/cluster").json
    node = ask.get("/v1/nodes/1").json

    assert cluster["controller"] == 1
    assert [each["id"] for each in cluster["nodes"]] == [1]
    assert [each["id"] for each in ask.get("/v1/nodes").json["items"]] == [1]
    assert {listener["name"] for listener in node["listeners"]} == {"kafka", "http"}
    assert ask.get("/v1/nodes/7").status == 404
    assert ask.get("/v1/reassignments").json["items"] == []


@pytest.mark.parametrize(
    "path", ["cluster:rebalance", "nodes/1:drain", "nodes/1:undrain", "leaders:transfer"]
)
def test_a_single_node_moves_nothing(ask: HttpClient, path: str) -> None:
    answer = ask.post(f"/v1/{path}")

    assert (answer.status, answer.json["error"]) == (409, "single_node")


def test_the_cluster_s_level_is_shown_and_one_that_no_node_knows_is_refused(
    ask: HttpClient,
) -> None:
    shown = ask.post("/v1/cluster:upgrade", {"dry_run": True}).json
    refused = ask.post("/v1/cluster:upgrade", {"level": 30_000})

    assert shown["level"] == shown["level_before"]
    assert refused.status in {409, 422}, refused.text
    assert ask.post("/v1/cluster:upgrade").json["level"] == shown["level"]


def test_moves_that_cannot_be_are_refused(ask: HttpClient) -> None:
    ask.post("/v1/topics", {"name": "settled", "partitions": 1})

    def refused(partitions: dict[str, list[int]], topic: str = "settled") -> int:
        return ask.post("/v1/reassignments", {"topic": topic, "partitions": partitions}).status

    assert refused({"0": [7]}) in {409, 422}
    assert refused({"0": [1, 1]}) in {409, 422}
    assert refused({"5": [1]}) == 404
    assert refused({"0": [1]}, "nowhere") == 404
    assert refused({"first": [1]}) == 400
    assert refused({"0": []}) == 400
    assert ask("DELETE", "/v1/reassignments?topic=settled&partition=0").status in {404, 409, 422}
    assert ask.post("/v1/nodes/1:decommission").json["error"] == "single_node"
    assert ask.post("/v1/nodes/7:decommission").status == 404
    assert ask.get("/v1/reassignments").json == {"items": [], "next": None}


def test_invitations_are_made_listed_and_taken_back() -> None:
    with http_node() as node:
        ask = node.ask
        made = ask.post("/v1/cluster/invitations")
        other = ask.post("/v1/cluster/invitations").json
        listed = ask.get("/v1/cluster/invitations").json["items"]
        taken_back = ask("DELETE", made.headers["location"])

        token = decode_token(made.json["token"])
        assert token.addresses == (node.broker.bootstrap,)
        assert {each["id"] for each in listed} == {made.json["id"], other["id"]}
        assert "token" not in listed[0]
        assert taken_back.status == 204
        (left,) = ask.get("/v1/cluster/invitations").json["items"]
        assert left["id"] == other["id"]
        assert ask("DELETE", made.headers["location"]).json["error"] == "unknown_invitation"
        # It is a cluster now, of one node that can be drained.
        assert ask.post("/v1/nodes/1:drain").json["state"] == "draining"
        assert ask.post("/v1/nodes/1:undrain").json["state"] == "ready"


def test_partitions_of_the_cluster_are_paged(ask: HttpClient) -> None:
    ask.post("/v1/topics", {"name": "spread", "partitions": 5})
    names, after = [], ""
    while after is not None:
        page = ask.get(f"/v1/cluster/partitions?limit=2&after={after}").json
        names += [(each["topic"], each["partition"]) for each in page["items"]]
        after = page["next"]

    assert len(names) == len(set(names))
    assert [each for each in names if each[0] == "spread"] == [("spread", at) for at in range(5)]


def test_settings_have_origin_and_meaning(ask: HttpClient) -> None:
    keys = {each["name"]: each for each in ask.get("/v1/config").json["items"]}

    assert (keys["storage"]["value"], keys["storage"]["origin"]) == ("memory", "set")
    assert keys["http.page_max"]["origin"] == "default"
    assert keys["http.page_max"]["meaning"]


def test_a_connection_is_shown_and_cut(node: HttpNode) -> None:
    host, port = node.broker.bootstrap.split(":")
    with socket.create_connection((host, int(port)), timeout=30) as client:
        client.sendall(b"\x00\x00")
        kafka: list[dict[str, Any]] = []
        while not [each for each in kafka if each["received_bytes"] == 2]:
            kafka = node.ask.get("/v1/connections?protocol=kafka").json["items"]
        (mine,) = [each for each in kafka if each["received_bytes"] == 2]
        assert node.ask.get(f"/v1/connections/{mine['id']}").json["address"] == "127.0.0.1"
        assert node.ask("DELETE", f"/v1/connections/{mine['id']}").status == 204
        client.settimeout(30)
        with suppress(ConnectionResetError):
            assert client.recv(1) == b""
    assert node.ask.get(f"/v1/connections/{mine['id']}").status == 404


def test_figures_tell_what_was_written(node: HttpNode) -> None:
    with connect(node.broker.bootstrap) as client, client.producer() as producer:
        producer.send("figures", b"x").result(30)
    deadline = time.monotonic() + 30
    written = 0.0
    while written == 0 and time.monotonic() < deadline:
        series = node.ask.get("/v1/figures?series=appended_records").json["series"]
        written = sum(series[0]["values"])

    assert written > 0
    assert node.ask.get("/v1/figures?series=nope").status == 400
    assert node.ask.get("/v1/figures?step=minute").json["step_ms"] == 60_000


def test_events_begin_with_all_there_is_and_go_on(node: HttpNode) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", node.ask.port, timeout=30)
    connection.request("GET", "/v1/events?of=health,topics")
    stream = events(connection.getresponse())
    first = [next(stream) for _ in range(13)]
    node.ask.post("/v1/topics", {"name": "heard"})
    name, cursor, data = next(stream)
    connection.close()

    assert {each[0] for each in first} == {"health", "topics"}
    assert (name, bool(cursor)) == ("topics", True)
    assert data["revision"] > first[-1][2]["revision"]


def test_the_session_of_an_open_listener(ask: HttpClient) -> None:
    session = ask.get("/v1/session").json

    assert (session["principal"], session["is_required"]) == ("User:ANONYMOUS", False)
    assert ask.get("/v1/whoami").json["principal"] == "User:ANONYMOUS"
    wrong = ask.post("/v1/session", {"user": "ann", "password": "wrong"})
    assert (wrong.status, wrong.json["error"]) == (401, "login_failed")


def test_diagnostics_are_an_archive_without_records_and_secrets(node: HttpNode) -> None:
    with connect(node.broker.bootstrap) as client, client.producer() as producer:
        producer.send("figures", b"a value that nobody else reads").result(30)
    logging.getLogger("millstream.tests").warning("opened with password=hunter2")

    answer = node.ask.get("/v1/diagnostics")

    assert (answer.status, answer.headers["content-type"]) == (200, "application/zip")
    assert "attachment" in answer.headers["content-disposition"]
    with zipfile.ZipFile(io.BytesIO(answer.text)) as archive:
        parts = {name: archive.read(name).decode() for name in archive.namelist()}
    assert parts.keys() == {
        "README.txt",
        "health.json",
        "config.json",
        "cluster.json",
        "figures.json",
        "metrics.txt",
        "log.txt",
    }
    assert json.loads(parts["health.json"])["checks"]
    assert "millstream_appended_records_total" in parts["metrics.txt"]
    assert "opened with password=•••" in parts["log.txt"]
    assert "hunter2" not in parts["log.txt"]
    assert not any("a value that nobody" in text for text in parts.values())
