"""Users, roles, ACLs and quotas by REST."""

from collections.abc import Iterator

import pytest

from tests.support.http import HttpClient, HttpNode, secured_http_node


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpNode]:
    with secured_http_node(tmp_path_factory.mktemp("secrets")) as node:
        yield node


@pytest.fixture
def ask(secured: HttpNode) -> HttpClient:
    return secured.ask


def test_a_user_is_created_changed_and_deleted(ask: HttpClient) -> None:
    made = ask("POST", "/v1/users", {"name": "ann", "password": "rye", "roles": ["consumer"]})
    changed = ask("PATCH", "/v1/users/ann", {"roles": [], "is_enabled": False})
    listed = ask("GET", "/v1/users?name=an").json["items"]
    gone = ask("DELETE", "/v1/users/ann")

    assert made.status == 201
    assert made.headers["location"] == "/v1/users/ann"
    assert made.json["mechanisms"] == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert b"rye" not in made.text
    assert (changed.json["roles"], changed.json["is_enabled"]) == ([], False)
    assert [user["name"] for user in listed] == ["ann"]
    assert gone.status == 204
    assert ask("GET", "/v1/users/ann").status == 404


def test_a_user_is_made_once(ask: HttpClient) -> None:
    ask("POST", "/v1/users", {"name": "bob", "password": "rye"})

    answer = ask("POST", "/v1/users", {"name": "bob", "password": "rye"})

    assert answer.status == 409


def test_a_password_counts_from_the_answer_on(ask: HttpClient) -> None:
    ask("POST", "/v1/users", {"name": "eve", "password": "before"})

    assert ask("POST", "/v1/users/eve/password", {"password": "after"}).status == 204

    def login(password: str) -> int:
        return ask.as_user("eve", password).get("/v1/users/eve").status

    assert (login("before"), login("after")) == (401, 200)


def test_a_role_is_created_described_and_deleted(ask: HttpClient) -> None:
    made = ask("POST", "/v1/roles", {"name": "bakers", "description": "read orders"})
    again = ask("PATCH", "/v1/roles/bakers", {"description": "read all"})
    names = [role["name"] for role in ask("GET", "/v1/roles").json["items"]]

    assert made.status == 201
    assert again.json == {
        "name": "bakers",
        "description": "read all",
        "is_built_in": False,
        "users": [],
    }
    assert names == sorted(names)
    assert {"admin", "bakers"} <= set(names)
    assert ask("DELETE", "/v1/roles/bakers").status == 204
    assert ask("GET", "/v1/roles/bakers").status == 404


RULE = {
    "resource_type": "topic",
    "resource_name": "orders",
    "principal": "User:dan",
    "operation": "read",
}


def test_an_acl_decides_and_says_so(ask: HttpClient) -> None:
    question = {**RULE, "host": "10.0.0.7"}
    before = ask("POST", "/v1/acls:check", question).json
    made = ask("POST", "/v1/acls", {"acls": [RULE]})
    after = ask("POST", "/v1/acls:check", question).json
    listed = ask("GET", "/v1/acls?principal=User:dan").json["items"]
    removed = ask("DELETE", "/v1/acls?principal=User:dan&resource_type=topic").json["items"]

    assert before == {"is_allowed": False, "rule": "no ACL allows it"}
    assert made.status == 201
    assert after["is_allowed"] is True
    assert "User:dan" in after["rule"]
    whole = {**RULE, "pattern": "literal", "host": "*", "permission": "allow"}
    assert listed == removed == [whole]
    assert ask("GET", "/v1/acls?principal=User:dan").json["items"] == []


def test_acls_are_listed_in_pages(ask: HttpClient) -> None:
    rules = [{**RULE, "principal": f"User:p{i}"} for i in range(5)]
    ask("POST", "/v1/acls", {"acls": rules})

    first = ask("GET", "/v1/acls?limit=3").json
    second = ask("GET", f"/v1/acls?limit=3&after={first['next']}").json

    assert [len(first["items"]), len(second["items"]), second["next"]] == [3, 2, None]


def test_a_wrong_principal_is_refused_by_name(ask: HttpClient) -> None:
    answer = ask("POST", "/v1/acls:check", {**RULE, "principal": "dan"})

    assert answer.status == 422
    assert "'dan'" in answer.json["message"]


def test_a_user_without_rights_sees_and_changes_nothing(ask: HttpClient) -> None:
    ask("POST", "/v1/users", {"name": "mel", "password": "rye"})
    mel = ask.as_user("mel", "rye")
    refused = [
        mel(method, path, body).status
        for method, path, body in (
            ("GET", "/v1/users", None),
            ("POST", "/v1/users", {"name": "x", "password": "y"}),
            ("PATCH", "/v1/users/bob", {"roles": ["admin"]}),
            ("DELETE", "/v1/users/bob", None),
            ("POST", "/v1/users/bob/password", {"password": "z"}),
            ("GET", "/v1/roles", None),
            ("POST", "/v1/roles", {"name": "x"}),
            ("GET", "/v1/acls", None),
            ("POST", "/v1/acls", {"acls": [RULE]}),
            ("DELETE", "/v1/acls", None),
            ("GET", "/v1/quotas", None),
            ("PUT", "/v1/quotas?user=mel", {"limits": {"producer_byte_rate": 1}}),
        )
    ]

    assert refused == [403] * len(refused)
    assert mel.get("/v1/users/mel").status == 200
    assert HttpClient(ask.port).get("/v1/users").status == 401


def test_quotas_are_set_listed_and_taken_away(ask: HttpClient) -> None:
    path = "/v1/quotas?user=ann&client_id=app"
    planned = ask("PUT", path, {"limits": {"producer_byte_rate": 9}, "dry_run": True})
    before = ask("GET", "/v1/quotas").json["items"]
    ask("PUT", path, {"limits": {"producer_byte_rate": 1024, "consumer_byte_rate": 2048}})
    put = ask("PUT", path, {"limits": {"consumer_byte_rate": None}})

    assert planned.json["limits"] == {"producer_byte_rate": 9}
    assert before == []
    assert put.json == {
        "user": "ann",
        "client_id": "app",
        "ip": None,
        "limits": {"producer_byte_rate": 1024},
    }
    assert ask("GET", "/v1/quotas").json["items"] == [put.json]
    assert ask("DELETE", path).status == 204
    assert ask("GET", "/v1/quotas").json["items"] == []


def test_a_quota_that_is_none_is_refused(ask: HttpClient) -> None:
    answer = ask("PUT", "/v1/quotas?user=ann", {"limits": {"colour": 1}})

    assert answer.status == 422
    assert "colour" in answer.json["message"]


def test_a_client_is_told_its_principal_and_what_it_may_do(ask: HttpClient) -> None:
    ask("POST", "/v1/topics", {"name": "shown", "partitions": 1})
    ask("POST", "/v1/users", {"name": "kim", "password": "rye"})
    ask(
        "POST",
        "/v1/acls",
        {"acls": [{**RULE, "principal": "User:kim", "resource_name": "shown"}]},
    )

    admin = ask("GET", "/v1/whoami").json
    identity = ask.as_user("kim", "rye").get("/v1/whoami?topic=shown").json

    assert admin["principal"] == "User:admin"
    assert "alter" in admin["cluster_operations"]
    assert admin["topic_operations"] is None
    assert (identity["principal"], identity["mechanism"]) == ("User:kim", "BASIC")
    assert identity["cluster_operations"] == []
    assert identity["topic_operations"] == ["read", "describe"]


def test_cursors_of_acls_and_quotas_survive_changes(ask: HttpClient) -> None:
    """What is added before a cursor moves nothing behind it."""
    names = [f"page{at}" for at in range(1, 6)]
    ask("POST", "/v1/acls", {"acls": [{**RULE, "principal": f"User:{each}"} for each in names]})
    for name in names:
        ask("PUT", f"/v1/quotas?user={name}", {"limits": {"producer_byte_rate": 1}})
    acls = ask("GET", "/v1/acls?operation=read&limit=1").json
    while acls["items"][0]["principal"] != "User:page2":
        acls = ask("GET", f"/v1/acls?operation=read&limit=1&after={acls['next']}").json
    quotas = ask("GET", "/v1/quotas?limit=1").json
    while quotas["items"][0]["user"] != "page2":
        quotas = ask("GET", f"/v1/quotas?limit=1&after={quotas['next']}").json

    ask("POST", "/v1/acls", {"acls": [{**RULE, "principal": "User:aaa"}]})
    ask("DELETE", "/v1/acls?principal=User:page2")
    ask("PUT", "/v1/quotas?user=aaa", {"limits": {"producer_byte_rate": 1}})

    following = ask("GET", f"/v1/acls?operation=read&limit=1&after={acls['next']}").json
    assert following["items"][0]["principal"] == "User:page3"
    following = ask("GET", f"/v1/quotas?limit=1&after={quotas['next']}").json
    assert following["items"][0]["user"] == "page3"
