"""Users, roles, ACLs and quotas by REST."""

import base64
from collections.abc import Iterator

import pytest

from millstream.security.secrets import Secret
from millstream.security.settings import Security
from tests.support.http import Answer, HttpClient, HttpNode, http_node

ADMIN = {"Authorization": "Basic " + base64.b64encode(b"admin:of the mill").decode()}


class Admin:
    """Asks as the first user of a broker that wants logins."""

    def __init__(self, ask: HttpClient) -> None:
        self._ask = ask

    def __call__(self, method: str, path: str, body: object = None) -> Answer:
        return self._ask(method, path, body, headers=ADMIN)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpNode]:
    secret = tmp_path_factory.mktemp("secrets") / "admin"
    secret.write_text("of the mill")
    secret.chmod(0o600)
    security = Security(
        protocol="sasl_plaintext", admin_password=Secret(f"file:{secret}"), scram_iterations=4096
    )
    with http_node(security=security) as node:
        yield node


@pytest.fixture
def ask(secured: HttpNode) -> Admin:
    return Admin(secured.ask)


def test_a_user_is_created_changed_and_deleted(ask: Admin) -> None:
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


def test_a_user_is_made_once(ask: Admin) -> None:
    ask("POST", "/v1/users", {"name": "bob", "password": "rye"})

    answer = ask("POST", "/v1/users", {"name": "bob", "password": "rye"})

    assert answer.status == 409


def test_a_password_counts_from_the_answer_on(secured: HttpNode, ask: Admin) -> None:
    ask("POST", "/v1/users", {"name": "eve", "password": "before"})

    assert ask("POST", "/v1/users/eve/password", {"password": "after"}).status == 204

    def login(password: str) -> int:
        pair = base64.b64encode(f"eve:{password}".encode()).decode()
        return secured.ask.get("/v1/users/eve", Authorization=f"Basic {pair}").status

    assert (login("before"), login("after")) == (401, 200)


def test_a_role_is_created_described_and_deleted(ask: Admin) -> None:
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


def test_an_acl_decides_and_says_so(ask: Admin) -> None:
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


def test_acls_are_listed_in_pages(ask: Admin) -> None:
    rules = [{**RULE, "principal": f"User:p{i}"} for i in range(5)]
    ask("POST", "/v1/acls", {"acls": rules})

    first = ask("GET", "/v1/acls?limit=3").json
    second = ask("GET", f"/v1/acls?limit=3&after={first['next']}").json

    assert [len(first["items"]), len(second["items"]), second["next"]] == [3, 2, None]


def test_a_wrong_principal_is_refused_by_name(ask: Admin) -> None:
    answer = ask("POST", "/v1/acls:check", {**RULE, "principal": "dan"})

    assert answer.status == 422
    assert "'dan'" in answer.json["message"]


def test_a_user_without_rights_sees_and_changes_nothing(secured: HttpNode, ask: Admin) -> None:
    ask("POST", "/v1/users", {"name": "mel", "password": "rye"})
    mel = {"Authorization": "Basic " + base64.b64encode(b"mel:rye").decode()}
    refused = [
        secured.ask(method, path, body, headers=mel).status
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
    assert secured.ask.get("/v1/users/mel", **mel).status == 200
    assert secured.ask.get("/v1/users").status == 401


def test_quotas_are_set_listed_and_taken_away(ask: Admin) -> None:
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


def test_a_quota_that_is_none_is_refused(ask: Admin) -> None:
    answer = ask("PUT", "/v1/quotas?user=ann", {"limits": {"colour": 1}})

    assert answer.status == 422
    assert "colour" in answer.json["message"]


def test_a_client_is_told_its_principal_and_what_it_may_do(secured: HttpNode, ask: Admin) -> None:
    ask("POST", "/v1/topics", {"name": "shown", "partitions": 1})
    ask("POST", "/v1/users", {"name": "kim", "password": "rye"})
    ask(
        "POST",
        "/v1/acls",
        {"acls": [{**RULE, "principal": "User:kim", "resource_name": "shown"}]},
    )
    kim = {"Authorization": "Basic " + base64.b64encode(b"kim:rye").decode()}

    admin = ask("GET", "/v1/whoami").json
    identity = secured.ask.get("/v1/whoami?topic=shown", **kim).json

    assert admin["principal"] == "User:admin"
    assert "alter" in admin["cluster_operations"]
    assert admin["topic_operations"] is None
    assert (identity["principal"], identity["mechanism"]) == ("User:kim", "BASIC")
    assert identity["cluster_operations"] == []
    assert identity["topic_operations"] == ["read", "describe"]
