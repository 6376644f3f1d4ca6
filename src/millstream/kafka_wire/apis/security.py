"""Tables of security: SASL, ACLs, SCRAM credentials."""

from typing import Annotated

from millstream.kafka_wire.schema import Bytes, Int8, Int16, Int32, Int64, Message, Since, String

LITERAL = 3  # The pattern type of an ACL that names its resource in full.


class SaslHandshakeRequest(Message, kw_only=True):
    mechanism: String


class SaslHandshakeResponse(Message, kw_only=True):
    error_code: Int16 = 0
    mechanisms: list[String]


class SaslAuthenticateRequest(Message, kw_only=True):
    auth_bytes: Bytes

    def __repr__(self) -> str:
        return "SaslAuthenticateRequest([hidden])"


class SaslAuthenticateResponse(Message, kw_only=True):
    error_code: Int16 = 0
    error_message: String | None = None
    auth_bytes: Bytes = b""
    session_lifetime_ms: Annotated[Int64, Since(1)] = 0


class DescribeAclsRequest(Message, kw_only=True):
    resource_type_filter: Int8
    resource_name_filter: String | None
    pattern_type_filter: Annotated[Int8, Since(1)] = LITERAL
    principal_filter: String | None
    host_filter: String | None
    operation: Int8
    permission_type: Int8


class DescribeAclsResponse(Message, kw_only=True):
    class Resource(Message, kw_only=True):
        class Acl(Message, kw_only=True):
            principal: String
            host: String
            operation: Int8
            permission_type: Int8

        resource_type: Int8
        resource_name: String
        pattern_type: Annotated[Int8, Since(1)] = LITERAL
        acls: list[Acl]

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    resources: list[Resource]


class CreateAclsRequest(Message, kw_only=True):
    class Creation(Message, kw_only=True):
        resource_type: Int8
        resource_name: String
        resource_pattern_type: Annotated[Int8, Since(1)] = LITERAL
        principal: String
        host: String
        operation: Int8
        permission_type: Int8

    creations: list[Creation]


class CreateAclsResponse(Message, kw_only=True):
    class Result(Message, kw_only=True):
        error_code: Int16 = 0
        error_message: String | None = None

    throttle_time_ms: Int32 = 0
    results: list[Result]


class DeleteAclsRequest(Message, kw_only=True):
    class Filter(Message, kw_only=True):
        resource_type_filter: Int8
        resource_name_filter: String | None
        pattern_type_filter: Annotated[Int8, Since(1)] = LITERAL
        principal_filter: String | None
        host_filter: String | None
        operation: Int8
        permission_type: Int8

    filters: list[Filter]


class DeleteAclsResponse(Message, kw_only=True):
    class FilterResult(Message, kw_only=True):
        class MatchingAcl(Message, kw_only=True):
            error_code: Int16 = 0
            error_message: String | None = None
            resource_type: Int8
            resource_name: String
            pattern_type: Annotated[Int8, Since(1)] = LITERAL
            principal: String
            host: String
            operation: Int8
            permission_type: Int8

        error_code: Int16 = 0
        error_message: String | None = None
        matching_acls: list[MatchingAcl]

    throttle_time_ms: Int32 = 0
    filter_results: list[FilterResult]


class DescribeUserScramCredentialsRequest(Message, kw_only=True):
    class User(Message, kw_only=True):
        name: String

    users: list[User] | None


class DescribeUserScramCredentialsResponse(Message, kw_only=True):
    class Result(Message, kw_only=True):
        class CredentialInfo(Message, kw_only=True):
            mechanism: Int8
            iterations: Int32

        user: String
        error_code: Int16 = 0
        error_message: String | None = None
        credential_infos: list[CredentialInfo]

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    results: list[Result]


class AlterUserScramCredentialsRequest(Message, kw_only=True):
    class Deletion(Message, kw_only=True):
        name: String
        mechanism: Int8

    class Upsertion(Message, kw_only=True):
        name: String
        mechanism: Int8
        iterations: Int32
        salt: Bytes
        salted_password: Bytes

        def __repr__(self) -> str:
            return f"Upsertion({self.name!r}, [hidden])"

    deletions: list[Deletion]
    upsertions: list[Upsertion]


class AlterUserScramCredentialsResponse(Message, kw_only=True):
    class Result(Message, kw_only=True):
        user: String
        error_code: Int16 = 0
        error_message: String | None = None

    throttle_time_ms: Int32 = 0
    results: list[Result]
