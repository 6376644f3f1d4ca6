"""What holds for every route: errors, content types, browsers' rules, paging, keys, revisions."""

import http.client
import socket
from typing import Any

import pytest

from tests.support.http import HttpClient, HttpNode


def test_an_error_is_a_problem_with_the_id_of_its_request(ask: HttpClient) -> None:
    answer = ask("GET", "/v1/topics/nope", headers={"X-Request-Id": "mine"})

    assert answer.status == 404
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["x-request-id"] == "mine"
    assert answer.json["error"] == "unknown_topic"
    assert answer.json["instance"] == "mine"


def test_a_wrong_path_is_answered_with_the_nearest(ask: HttpClient) -> None:
    assert ask.get("/v1/topcs").json["message"].endswith("the nearest is /v1/topics")


def test_a_wrong_method_is_answered_with_the_right_ones(ask: HttpClient) -> None:
    answer = ask("PUT", "/v1/topics", {})

    assert answer.status == 405
    assert answer.headers["allow"] == "GET, HEAD, POST"


BAD_BODIES = [
    (b"{", "the body is not JSON", "$"),
    (b'{"name": 1}', "$.name: expected `str`, got `int`", "$.name"),
    (b'{"name": "a", "partitions": 0}', "$.partitions: expected `int` >= 1", "$.partitions"),
    (b'{"name": "a", "colour": 1}', "$: object contains unknown field `colour`", "$"),
    (b"[" * 100_000, "", "$"),
]


@pytest.mark.parametrize(("body", "message", "place"), BAD_BODIES)
def test_a_wrong_body_is_refused_with_its_place(
    ask: HttpClient, body: bytes, message: str, place: str
) -> None:
    answer = ask("POST", "/v1/topics", raw=body, headers={"Content-Type": "application/json"})

    assert answer.status == 400
    assert answer.json["error"] == "invalid_request"
    assert message in answer.json["message"]
    assert answer.json["fields"] == [place]


@pytest.mark.parametrize(
    "path",
    [
        "/v1/topics?limt=1",
        "/v1/topics?limit=x",
        "/v1/topics?limit=1&limit=2",
        "/v1/topics?limit=1001",
        "/v1/topics?after=x",
        "/v1/topics?numbers=maybe",
    ],
)
def test_a_wrong_query_is_refused(ask: HttpClient, path: str) -> None:
    answer = ask.get(path)

    assert (answer.status, answer.json["error"]) == (400, "invalid_request")


def test_a_form_is_refused(ask: HttpClient) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}

    assert ask("POST", "/v1/topics", raw=b"name=x", headers=form).status == 415


def test_a_type_that_is_not_sent_is_refused(ask: HttpClient) -> None:
    assert ask("GET", "/v1/topics", headers={"Accept": "image/png"}).status == 406


def test_a_body_where_none_belongs_is_refused(ask: HttpClient) -> None:
    assert ask("DELETE", "/v1/topics/nope", {"why": 1}).status == 400


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80"])
def test_a_name_that_is_not_ours_is_refused(ask: HttpClient, host: str) -> None:
    assert ask("GET", "/v1/topics", headers={"Host": host}).status == 421


@pytest.mark.parametrize("host", ["localhost:1", "127.0.0.1", "[::1]:9094", "10.0.0.7:9094"])
def test_addresses_are_taken_as_host(ask: HttpClient, host: str) -> None:
    assert ask("GET", "/v1/topics", headers={"Host": host}).status == 200


@pytest.mark.parametrize(
    "headers", [{"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}]
)
def test_changes_from_pages_of_other_sites_are_refused(
    ask: HttpClient, headers: dict[str, str]
) -> None:
    assert ask("POST", "/v1/topics", {"name": "stolen"}, headers=headers).status == 403
    assert ask.get("/v1/topics/stolen").status == 404


def test_changes_from_our_own_page_are_taken(ask: HttpClient) -> None:
    own = {"Origin": f"http://127.0.0.1:{ask.port}", "Sec-Fetch-Site": "same-origin"}

    assert ask("POST", "/v1/topics", {"name": "own"}, headers=own).status == 201


def test_no_answer_may_be_framed_or_stored(ask: HttpClient) -> None:
    headers = ask.get("/v1/topics").headers

    assert headers["x-content-type-options"] == "nosniff"
    assert headers["content-security-policy"] == "frame-ancestors 'none'"
    assert headers["cache-control"] == "no-store"
    assert "access-control-allow-origin" not in headers


def test_pages_follow_each_other_while_the_list_changes(ask: HttpClient) -> None:
    for name in ("page-a", "page-b", "page-d"):
        ask.post("/v1/topics", {"name": name})

    first = ask.get("/v1/topics?name=page-&limit=2").json
    ask.post("/v1/topics", {"name": "page-c"})
    ask("DELETE", "/v1/topics/page-b")
    second = ask.get(f"/v1/topics?name=page-&limit=2&after={first['next']}").json

    assert [topic["name"] for topic in first["items"]] == ["page-a", "page-b"]
    assert [topic["name"] for topic in second["items"]] == ["page-c", "page-d"]
    assert second["next"] is None


def test_numbers_are_strings_if_asked(ask: HttpClient) -> None:
    ask.post("/v1/topics", {"name": "numbers", "settings": {"retention_ms": 2**60}})

    topic = ask.get("/v1/topics/numbers?numbers=string").json

    assert topic["partitions"] == "1"
    assert topic["settings"]["retention_ms"] == str(2**60)


def test_the_same_key_gets_the_same_answer(ask: HttpClient) -> None:
    key = {"Idempotency-Key": "create-once"}

    first = ask("POST", "/v1/topics", {"name": "once"}, headers=key)
    again = ask("POST", "/v1/topics", {"name": "once"}, headers=key)
    other = ask("POST", "/v1/topics", {"name": "twice"}, headers=key)

    assert (first.status, again.status) == (201, 201)
    assert first.text == again.text
    assert (other.status, other.json["error"]) == (422, "idempotency_key_reused")
    assert ask.post("/v1/topics", {"name": "once"}).status == 409


def test_a_stale_revision_changes_nothing(ask: HttpClient) -> None:
    made = ask.post("/v1/topics", {"name": "revised"})
    change = {"settings": {"retention_ms": 1_000}}

    def patched(tag: str) -> int:
        return ask("PATCH", "/v1/topics/revised", change, headers={"If-Match": tag}).status

    tag = made.headers["etag"]
    assert patched(tag) == 200
    assert patched(tag) == 412
    assert ask("DELETE", "/v1/topics/revised", headers={"If-Match": tag}).status == 412
    assert ask("DELETE", "/v1/topics/revised", headers={"If-Match": "*"}).status == 204


def test_a_dry_run_answers_alike_and_changes_nothing(ask: HttpClient) -> None:
    planned = ask.post("/v1/topics", {"name": "planned", "partitions": 7, "dry_run": True})

    assert (planned.status, planned.json["partitions"]) == (201, 7)
    assert ask.get("/v1/topics/planned").status == 404
    assert ask.post("/v1/topics", {"name": "a b", "dry_run": True}).status == 422


def test_a_client_may_wait_before_it_sends_its_body(node: HttpNode) -> None:
    body = b'{"name": "continued"}'
    with socket.create_connection(("127.0.0.1", node.ask.port), timeout=30) as client:
        client.sendall(
            b"POST /v1/topics HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        )
        assert client.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(body)
        assert client.recv(65536).startswith(b"HTTP/1.1 201 ")


def test_requests_of_one_connection_are_answered_in_order(node: HttpNode) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", node.ask.port, timeout=30)
    for name in ("first", "second"):
        connection.request("GET", f"/v1/topics/{name}")
        answer = connection.getresponse()
        assert name in answer.read().decode()
    connection.close()


def test_a_head_request_has_no_body(ask: HttpClient) -> None:
    answer = ask("HEAD", "/v1/topics")

    assert (answer.status, answer.text) == (200, b"")
    assert int(answer.headers["content-length"]) > 0


@pytest.mark.parametrize("sort", ["records", "-records", "-name", "-bytes"])
def test_topics_are_sorted_over_pages(ask: HttpClient, sort: str) -> None:
    for at, count in enumerate((3, 1, 2, 1)):
        ask.post("/v1/topics", {"name": f"sorted-{at}", "partitions": 1})
        if not ask.get(f"/v1/topics/sorted-{at}").json["records"]:
            records = [{"value": "x" * 10} for _ in range(count)]
            ask.post(f"/v1/topics/sorted-{at}/records", {"records": records})
    field = sort.removeprefix("-")
    listed: list[dict[str, Any]] = []
    after: str | None = ""
    while after is not None:
        page = ask.get(f"/v1/topics?name=sorted-&limit=3&sort={sort}&after={after}").json
        listed += page["items"]
        after = page["next"]

    keys = [(each[field], each["name"]) for each in listed]
    assert len(keys) == 4
    assert keys == sorted(keys, reverse=sort.startswith("-"))


def test_a_cursor_of_another_order_is_refused(ask: HttpClient) -> None:
    for at in range(2):
        ask.post("/v1/topics", {"name": f"ordered-{at}", "partitions": 1})
    after = ask.get("/v1/topics?name=ordered-&limit=1&sort=-records").json["next"]

    assert ask.get(f"/v1/topics?sort=bytes&after={after}").status == 400
    assert ask.get(f"/v1/topics?after={after}").status == 400
    assert ask.get("/v1/topics?sort=size").status == 400
