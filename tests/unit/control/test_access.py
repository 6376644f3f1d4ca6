"""Users and roles: what commands make of them, alike on every node."""

import pytest

from millstream.control.access import Access
from millstream.control.commands import (
    Actor,
    AlterUsers,
    CreateTopic,
    Credential,
    DeleteRole,
    PutRole,
    UserChange,
    decode,
    encode,
)
from millstream.errors import InvalidRequest, RequestError
from millstream.errors.access import DuplicateUser, UnknownRole, UnknownUser, UserExists
from millstream.model import ANONYMOUS, SYSTEM, Principal, Session, user_principal

CREDENTIAL = Credential(salt=b"s", stored_key=b"k" * 32, server_key=b"v" * 32, iterations=4096)


def at(ms: int) -> Actor:
    return Actor(principal="User:root", at_ms=ms)


def altered(access: Access, *changes: UserChange, offset: int = 0) -> dict[int, RequestError]:
    command = AlterUsers(changes=changes, by=at(offset), salt_key=b"salt")
    access.check(command)
    return dict(access.apply(decoded(command), offset).refusals)


def decoded(command: AlterUsers) -> AlterUsers:
    copy = decode(encode(command))
    assert isinstance(copy, AlterUsers)
    return copy


def test_a_user_is_made_changed_and_deleted() -> None:
    access = Access()

    altered(access, UserChange(name="ann", credentials={"SCRAM-SHA-256": CREDENTIAL}), offset=7)
    altered(access, UserChange(name="ann", roles=("consumer",), is_enabled=False), offset=8)
    ann = access.users["ann"]
    altered(access, UserChange(name="ann", is_deleted=True), offset=9)

    assert (ann.roles, ann.is_enabled, ann.created_at) == (("consumer",), False, 7)
    assert (ann.created_ms, ann.updated_ms) == (7, 8)
    assert ann.credentials == {"SCRAM-SHA-256": CREDENTIAL}
    assert access.users == {}
    assert access.version == 3


def test_a_refused_change_does_not_keep_others_from_it() -> None:
    access = Access()
    altered(access, UserChange(name="ann"))

    refusals = altered(
        access,
        UserChange(name="ann", existence="new"),
        UserChange(name="bob", existence="new"),
        UserChange(name="eve", existence="existing"),
        UserChange(name="carl", roles=("nothing",)),
    )

    assert {place: type(refusal) for place, refusal in refusals.items()} == {
        0: UserExists,
        2: UnknownUser,
        3: UnknownRole,
    }
    assert sorted(access.users) == ["ann", "bob"]


@pytest.mark.parametrize("name", ["", "x" * 257, "a\nb", "ANONYMOUS", "\x85"])
def test_a_name_that_no_principal_may_have_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest):
        Access().check(AlterUsers(changes=(UserChange(name=name),)))


def test_a_user_stands_once_in_a_command() -> None:
    with pytest.raises(DuplicateUser):
        Access().check(AlterUsers(changes=(UserChange(name="ann"), UserChange(name="ann"))))


def test_a_deleted_role_leaves_its_users() -> None:
    access = Access()
    access.apply(PutRole(name="ops", description="operators", by=at(1)), 0)
    altered(access, UserChange(name="ann", roles=("ops", "guest")))

    access.apply(DeleteRole(name="ops", by=at(2)), 1)

    assert access.users["ann"].roles == ("guest",)
    with pytest.raises(UnknownRole):
        access.apply(DeleteRole(name="ops", by=at(3)), 2)


@pytest.mark.parametrize("command", [PutRole(name="admin"), DeleteRole(name="guest")])
def test_roles_that_are_built_in_cannot_be_changed(command: PutRole | DeleteRole) -> None:
    with pytest.raises(InvalidRequest, match="is built in"):
        Access().check(command)


def test_the_first_salt_key_counts_for_ever() -> None:
    access = Access()

    access.apply(AlterUsers(changes=(UserChange(name="ann"),), salt_key=b"first"), 0)
    access.apply(AlterUsers(changes=(UserChange(name="bob"),), salt_key=b"second"), 1)

    assert access.salt_key == b"first"


def test_disabled_and_deleted_users_are_barred_but_not_principals_of_certificates() -> None:
    access = Access()
    altered(access, UserChange(name="ann"), UserChange(name="bob", is_enabled=False))

    def barred(name: str, mechanism: str) -> bool:
        return access.is_barred(Session(principal=user_principal(name), mechanism=mechanism))

    assert not barred("ann", "PLAIN")
    assert barred("bob", "TLS")
    assert barred("gone", "SCRAM-SHA-512")
    assert not barred("CN=svc", "TLS")
    assert not access.is_barred(Session())
    assert not access.is_barred(Session(principal=SYSTEM))


def test_commands_of_earlier_versions_say_not_who_asked() -> None:
    old = b"""{"command":"CreateTopic","name":"t","topic_id":
        "00000000-0000-0000-0000-000000000001","placement":[[1]],"overrides":{},"created_ms":5}"""

    command = decode(old)

    assert isinstance(command, CreateTopic)
    assert command.by is None
    assert b'"by"' not in encode(command)


def test_principals_are_spelled_as_kafka_does() -> None:
    assert str(ANONYMOUS) == "User:ANONYMOUS"
    assert Principal.parse("User:CN=a:b") == user_principal("CN=a:b")
    for text in ("", "ann", "User:", ":ann"):
        with pytest.raises(ValueError, match="is not KIND:NAME"):
            Principal.parse(text)
