"""Tables of users, for clients that know Millstream: describe, alter, and who the client is."""

from millstream.kafka_wire.apis.millstream import OwnResponse
from millstream.kafka_wire.schema import (
    Bool,
    Bytes,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    String,
    empty,
)

ANY, NEW, EXISTING = 0, 1, 2  # Whether the user must be there.
KEEP, DISABLE, ENABLE = -1, 0, 1


class DescribeUsersRequest(Message, kw_only=True):
    names: list[String] | None = None  # None: all.


class DescribeUsersResponse(OwnResponse, kw_only=True):
    class User(Message, kw_only=True):
        name: String
        error_code: Int16 = 0
        error_message: String | None = None
        roles: list[String] = empty()
        is_enabled: Bool = False
        mechanisms: list[String] = empty()
        created_ms: Int64 = -1
        updated_ms: Int64 = -1

    users: list[User] = empty()


class AlterUsersRequest(Message, kw_only=True):
    """Passwords come salted, as in KIP-554; only the old one of a user that changes its own does
    not."""

    class Change(Message, kw_only=True):
        class Credential(Message, kw_only=True):
            mechanism: Int8
            iterations: Int32
            salt: Bytes
            salted_password: Bytes

            def __repr__(self) -> str:
                return "Credential([hidden])"

        name: String
        existence: Int8 = ANY
        is_deleted: Bool = False
        roles: list[String] | None = None
        enabled: Int8 = KEEP
        removes_credentials: Bool = False
        disconnects: Bool = False
        credentials: list[Credential] = empty()
        old_password: String | None = None

        def __repr__(self) -> str:
            return f"Change({self.name!r}, [hidden])"

    changes: list[Change]


class AlterUsersResponse(OwnResponse, kw_only=True):
    class Result(Message, kw_only=True):
        name: String
        error_code: Int16 = 0
        error_message: String | None = None

    results: list[Result] = empty()


class WhoAmIRequest(Message, kw_only=True):
    pass


class WhoAmIResponse(OwnResponse, kw_only=True):
    principal: String = ""
    roles: list[String] = empty()
    mechanism: String = ""
    listener: String = ""
    is_tls: Bool = False
    address: String = ""
    session_lifetime_ms: Int64 = -1  # -1: without end.
