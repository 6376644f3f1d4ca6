"""Rights with librdkafka's admin client, the SDK and the command line, on a secured node."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from millstream.cli.main import commands
from millstream.client import Denied, connect
from millstream.control.commands import UserChange
from millstream.model import SYSTEM_SESSION
from tests.support.secured import ADMIN, PASSWORD, SecuredNode


def address_of(node: SecuredNode) -> str:
    return f"localhost:{node.ports['sasl']}"


def login(user: str = ADMIN, password: str = PASSWORD) -> dict[str, Any]:
    return {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": password,
        "broker.address.family": "v4",
    }


def command(node: SecuredNode, *arguments: str) -> Any:
    """Run a command as the administrator; return its JSON."""
    settings = [part for key, value in login().items() for part in ("-X", f"{key}={value}")]
    common = ["--bootstrap", address_of(node), *settings, "--output", "json"]
    result = CliRunner().invoke(commands, [*arguments, *common])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_acls_are_made_listed_and_deleted_by_librdkafka(secured: SecuredNode) -> None:
    admin = AdminClient(secured.librdkafka("sasl"))
    rule = AclBinding(
        ResourceType.TOPIC,
        "carols",
        ResourcePatternType.LITERAL,
        "User:carol",
        "*",
        AclOperation.WRITE,
        AclPermissionType.ALLOW,
    )
    acl_filter = AclBindingFilter(
        ResourceType.ANY,
        None,  # type: ignore[arg-type]  # Any, as the documentation has it.
        ResourcePatternType.ANY,
        "User:carol",
        None,  # type: ignore[arg-type]  # Any, as the documentation has it.
        AclOperation.ANY,
        AclPermissionType.ANY,
    )

    admin.create_acls([rule])[rule].result(10)

    assert admin.describe_acls(acl_filter).result(10) == [rule]
    assert admin.delete_acls([acl_filter])[acl_filter].result(10) == [rule]
    assert admin.describe_acls(acl_filter).result(10) == []


def test_roles_and_acls_by_the_command_line(secured: SecuredNode, tmp_path: Path) -> None:
    secured.run(secured.node.users.alter(SYSTEM_SESSION, [UserChange(name="dora", credentials={})]))
    secured.run(secured.node.users.set_password(SYSTEM_SESSION, "dora", "doras"))
    secured.run(secured.node.topics.create(SYSTEM_SESSION, "dora-1"))
    rule = ("--principal", "Role:ops", "--operation", "write", "--topic", "dora", "--prefixed")
    asked = ("--principal", "User:dora", "--operation", "write", "--topic", "dora-1")

    command(secured, "role", "create", "ops", "--description", "On call")
    command(secured, "role", "grant", "ops", "dora")
    (before,) = command(secured, "acl", "test", *asked)
    command(secured, "acl", "create", *rule)
    (after,) = command(secured, "acl", "test", *asked)
    listed = command(secured, "acl", "list", "--principal", "Role:ops")
    exported = tmp_path / "acls.jsonl"
    exported.write_text("\n".join(json.dumps(entry) for entry in listed), encoding="utf-8")
    removed = command(secured, "acl", "delete", *rule)
    command(secured, "acl", "import", str(exported))

    assert (before["allowed"], after["allowed"]) == (False, True)
    assert after["rule"] == "ALLOW Role:ops from * to WRITE on topic with prefix dora"
    assert removed == {"deleted": 1}
    assert command(secured, "acl", "list", "--principal", "Role:ops") == listed
    assert {"name": "ops", "description": "On call", "is_built_in": False, "users": ["dora"]} in (
        command(secured, "role", "list")
    )
    settings = {key.replace(".", "_"): text for key, text in login("dora", "doras").items()}
    with connect(address_of(secured), **settings) as client:
        client.produce("dora-1", b"a")
        with pytest.raises(Denied):
            client.acls.list()
        assert client.acls.explain("User:dora", "write", "topic", "dora-1").is_allowed
    command(secured, "role", "revoke", "ops", "dora")
    command(secured, "role", "delete", "ops", "--yes")
    assert command(secured, "acl", "list", "--principal", "Role:ops") == []
