"""The audit trail by REST: pages, the tail, exports; rights to it."""

import csv
import http.client
import io
import json
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from tests.support.http import ADMIN_PASSWORD, HttpClient, secured_http_node


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpClient]:
    with secured_http_node(tmp_path_factory.mktemp("secrets")) as node:
        for at in range(5):
            assert node.ask.post("/v1/topics", {"name": f"t{at}"}).status == 201
        node.ask.post("/v1/users", {"name": "mel", "password": "rye"})
        yield node.ask


def events(ask: HttpClient, query: str, count: int) -> list[dict[str, Any]]:
    """All pages, as soon as so many events are written."""
    deadline = time.monotonic() + 30
    while True:
        collected: list[dict[str, Any]] = []
        after: str | None = ""
        while after is not None:
            answer = ask.get(f"/v1/audit?{query}&after={after}")
            assert answer.status == 200, answer
            page = answer.json
            collected += page["items"]
            after = page["next"]
        if len(collected) >= count or time.monotonic() > deadline:
            return collected


def test_pages_are_newest_first_and_leave_nothing_out(ask: HttpClient) -> None:
    made = events(ask, "event=topic.create&resource=topic:t&limit=2", 5)

    assert [each["resource"] for each in made] == [f"topic:t{at}" for at in (4, 3, 2, 1, 0)]
    assert {each["principal"] for each in made} == {"User:admin"}
    assert events(ask, "event=topic.create&principal=mel", 0) == []
    assert events(ask, "event=topic.create&until=1h", 0) == []
    assert len(events(ask, "event=topic.create,user.create&from=1h&text=MEL", 1)) == 1
    assert ask.get("/v1/audit?from=12").status == 400
    assert ask.get("/v1/audit?after=nonsense").status == 400


def test_an_export_is_lines_or_a_table(ask: HttpClient) -> None:
    events(ask, "event=topic.create&resource=topic:t", 5)

    lines = ask.get("/v1/audit/export?event=topic.create&resource=topic:t").text.splitlines()
    table = ask.get("/v1/audit/export?event=topic.create&resource=topic:t&format=csv").text

    assert [json.loads(line)["resource"] for line in lines][-1] == "topic:t0"
    rows = list(csv.DictReader(io.StringIO(table.decode())))
    assert [row["resource"] for row in rows][-1] == "topic:t0"
    assert len(lines) == len(rows) == 5


def test_a_tail_shows_what_happens_and_goes_on_from_its_cursor(ask: HttpClient) -> None:
    @contextmanager
    def tail(path: str, **headers: str) -> Iterator[http.client.HTTPResponse]:
        connection = http.client.HTTPConnection(ask.host, ask.port, timeout=30)
        login = ask.as_user("admin", ADMIN_PASSWORD).headers
        connection.request("GET", path, headers=login | headers)
        with closing(connection), connection.getresponse() as response:
            assert response.status == 200
            yield response

    def next_event(response: http.client.HTTPResponse) -> tuple[str, str]:
        """The resource of an event, and its cursor."""
        cursor = ""
        while line := response.readline():
            name, _, value = line.decode().strip().partition(": ")
            if name == "id":
                cursor = value
            elif name == "data":
                return json.loads(value)["resource"], cursor
        return "", ""

    with tail("/v1/audit/tail?event=topic.create&resource=topic:new") as response:
        ask.post("/v1/topics", {"name": "new-a"})
        resource, cursor = next_event(response)
    ask.post("/v1/topics", {"name": "new-b"})
    path = "/v1/audit/tail?event=topic.create&resource=topic:new"
    with tail(path, **{"Last-Event-ID": cursor}) as response:
        following, _ = next_event(response)

    assert (resource, following) == ("topic:new-a", "topic:new-b")


@pytest.mark.parametrize("path", ["/v1/audit", "/v1/audit/tail", "/v1/audit/export"])
def test_the_trail_needs_a_right(ask: HttpClient, path: str) -> None:
    assert ask.as_user("mel", "rye").get(path).status == 403
    assert HttpClient(ask.port).get(path).status == 401
