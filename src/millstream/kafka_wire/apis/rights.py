"""Tables of roles, explained decisions and the audit trail, which only Millstream has."""

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


class DescribeRolesRequest(Message, kw_only=True):
    pass


class DescribeRolesResponse(OwnResponse, kw_only=True):
    class Role(Message, kw_only=True):
        name: String
        description: String
        is_built_in: Bool
        created_ms: Int64
        users: list[String]

    roles: list[Role] = empty()


class AlterRolesRequest(Message, kw_only=True):
    class Change(Message, kw_only=True):
        name: String
        action: Int8  # 0 create, 1 create or describe anew, 2 delete.
        description: String = ""

    changes: list[Change]


class AlterRolesResponse(OwnResponse, kw_only=True):
    class Result(Message, kw_only=True):
        name: String
        error_code: Int16 = 0
        error_message: String | None = None

    results: list[Result] = empty()


class DescribeEncryptionRequest(Message, kw_only=True):
    pass


class DescribeEncryptionResponse(OwnResponse, kw_only=True):
    class Key(Message, kw_only=True):
        id: Int64
        topic: String
        made_ms: Int64
        size_bytes: Int64

    mode: String = ""
    key_name: String = ""
    check: String = ""
    is_root_due: Bool = False
    clear_bytes: Int64 = 0
    rewriting_count: Int32 = 0
    keys: list[Key] = empty()
    is_required: Bool = False


class AlterEncryptionRequest(Message, kw_only=True):
    action: Int8  # 0 new data keys, 1 root key, 2 master key, 3 seal old records anew.
    # 4 require encryption of every node, 5 lift that.


class AlterEncryptionResponse(OwnResponse, kw_only=True):
    count: Int32 = 0


class AlterCheckpointRequest(Message, kw_only=True):
    action: Int8  # 0 make one of now, 1 remove it.


class AlterCheckpointResponse(OwnResponse, kw_only=True):
    id: String = ""
    node_id: Int32 = -1
    cluster_id: String = ""
    data_dir: String = ""
    log_count: Int32 = 0
    size_bytes: Int64 = 0


class ReadCheckpointRequest(Message, kw_only=True):
    id: String
    path: String  # Of a file, as `checkpoint.json` names it, or that file itself.
    position: Int64


class ReadCheckpointResponse(OwnResponse, kw_only=True):
    data: Bytes = b""


class ExplainAccessRequest(Message, kw_only=True):
    principal: String
    host: String
    operation: Int8
    resource_type: Int8
    resource_name: String


class ExplainAccessResponse(OwnResponse, kw_only=True):
    is_allowed: Bool = False
    rule: String = ""


class QueryAuditRequest(Message, kw_only=True):
    """Empty and 0 mean all. Newest first, unless `is_forward`."""

    start_ms: Int64 = 0
    end_ms: Int64 = 0
    events: list[String] = empty()
    principal: String = ""
    resource: String = ""
    result: String = ""
    search: String = ""
    limit: Int32 = 0
    cursor: String = ""  # Of the answer before; `end` with `is_forward`: only what comes now.
    is_forward: Bool = False


class QueryAuditResponse(OwnResponse, kw_only=True):
    class StoredEvent(Message, kw_only=True):
        partition: Int32
        offset: Int64
        value: Bytes

    events: list[StoredEvent] = empty()
    cursor: String = ""  # Empty at the end of the trail.
    starts: list[Int64] = empty()  # The first offset of each partition.
