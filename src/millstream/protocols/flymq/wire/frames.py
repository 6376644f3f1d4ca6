"""FlyMQ's frames and opcodes: bytes to requests, replies to bytes.

Owns the head of a frame and the table of the bodies of each opcode. Both client libraries take an
error only in the layout with a code before its text, read a reply only under its request's opcode
(but for AUTH), and never expect a frame they did not ask for.
"""

from enum import IntEnum
from struct import Struct
from typing import Any, NamedTuple, TypeAlias

from millstream.errors import InvalidRequest, ProtocolError
from millstream.model import Buffer
from millstream.protocols.flymq.wire import bodies, user_bodies
from millstream.protocols.flymq.wire.shapes import fields_of, read_body

MAGIC = 0xAF
VERSION = 0x01
PAYLOAD_BYTES_MAX = 32 * 2**20

HEAD = Struct(">BBBBI")

BINARY = 0x01  # Set by all clients, and of no consequence.
COMPRESSION_BITS = 0x0E
UNCOMPRESSED = 0x00
GZIP = 0x02

_ERROR_CODE = 1  # The only one there is.
_TEXT_BYTES_MAX = 4_096  # Of an error: enough for a sentence, whatever a client made us quote.

# A NamedTuple of `bodies` or `user_bodies`, whatever its fields.
Body: TypeAlias = tuple[Any, ...]


class Opcode(IntEnum):
    PRODUCE = 0x01
    CONSUME = 0x02
    CREATE_TOPIC = 0x03
    METADATA = 0x04
    SUBSCRIBE = 0x05
    COMMIT = 0x06
    FETCH = 0x07
    LIST_TOPICS = 0x08
    DELETE_TOPIC = 0x09
    CONSUME_ZERO_COPY = 0x0A
    FETCH_BINARY = 0x0B
    REGISTER_SCHEMA = 0x10
    GET_SCHEMA = 0x11
    LIST_SCHEMAS = 0x12
    VALIDATE = 0x13
    PRODUCE_WITH_SCHEMA = 0x14
    DELETE_SCHEMA = 0x15
    FETCH_DLQ = 0x20
    REPLAY_DLQ = 0x21
    PURGE_DLQ = 0x22
    PRODUCE_DELAYED = 0x30
    CANCEL_DELAYED = 0x31
    PRODUCE_WITH_TTL = 0x35
    BEGIN_TX = 0x40
    COMMIT_TX = 0x41
    ABORT_TX = 0x42
    PRODUCE_TX = 0x43
    CLUSTER_JOIN = 0x50
    CLUSTER_LEAVE = 0x51
    CLUSTER_STATUS = 0x52
    CLUSTER_METADATA = 0x53
    GET_OFFSET = 0x60
    RESET_OFFSET = 0x61
    LIST_GROUPS = 0x62
    DESCRIBE_GROUP = 0x63
    GET_LAG = 0x64
    DELETE_GROUP = 0x65
    SEEK_TO_TIMESTAMP = 0x66
    AUTH = 0x70
    AUTH_RESPONSE = 0x71
    WHOAMI = 0x72
    USER_CREATE = 0x73
    USER_DELETE = 0x74
    USER_UPDATE = 0x75
    USER_LIST = 0x76
    USER_GET = 0x77
    ACL_SET = 0x78
    ACL_GET = 0x79
    ACL_DELETE = 0x7A
    ACL_LIST = 0x7B
    PASSWORD_CHANGE = 0x7C
    ROLE_LIST = 0x7D
    AUDIT_QUERY = 0x80
    AUDIT_EXPORT = 0x81
    ERROR = 0xFF


class Operation(NamedTuple):
    """The request and reply bodies of an opcode.

    Where clients disagree on the request, it is the first form that fills the payload exactly.
    """

    requests: tuple[type[Body], ...]
    reply: type[Body]


def _operation(request: type[Body], reply: type[Body]) -> Operation:
    return Operation((request,), reply)


OPERATIONS: dict[Opcode, Operation] = {
    Opcode.PRODUCE: _operation(bodies.Produce, bodies.RecordMetadata),
    Opcode.CONSUME: _operation(bodies.Consume, bodies.Consumed),
    Opcode.CREATE_TOPIC: _operation(bodies.CreateTopic, bodies.Done),
    Opcode.METADATA: _operation(bodies.TopicOnly, bodies.TopicMetadata),
    Opcode.SUBSCRIBE: _operation(bodies.Subscribe, bodies.Place),
    Opcode.COMMIT: _operation(bodies.Commit, bodies.Done),
    Opcode.FETCH: _operation(bodies.Fetch, bodies.Fetched),
    Opcode.LIST_TOPICS: _operation(bodies.Nothing, bodies.Topics),
    Opcode.DELETE_TOPIC: _operation(bodies.TopicOnly, bodies.Done),
    Opcode.CONSUME_ZERO_COPY: _operation(bodies.Consume, bodies.Consumed),
    Opcode.FETCH_BINARY: _operation(bodies.Fetch, bodies.Fetched),
    Opcode.REGISTER_SCHEMA: _operation(bodies.RegisterSchema, bodies.Schema),
    Opcode.GET_SCHEMA: _operation(bodies.SchemaVersion, bodies.Schemas),
    Opcode.LIST_SCHEMAS: _operation(bodies.SchemaNameOrAll, bodies.Schemas),
    Opcode.VALIDATE: _operation(bodies.Validate, bodies.Validated),
    Opcode.PRODUCE_WITH_SCHEMA: Operation(
        (bodies.ProduceWithSchema, bodies.ProduceWithSchemaLast), bodies.RecordMetadata
    ),
    Opcode.DELETE_SCHEMA: _operation(bodies.SchemaVersion, bodies.Message),
    Opcode.FETCH_DLQ: _operation(bodies.FetchDeadLetters, bodies.DeadLetters),
    Opcode.REPLAY_DLQ: Operation((bodies.ReplayById, bodies.ReplayByOffset), bodies.Replayed),
    Opcode.PURGE_DLQ: _operation(bodies.TopicOnly, bodies.Message),
    Opcode.PRODUCE_DELAYED: _operation(bodies.ProduceDelayed, bodies.DelayedMetadata),
    Opcode.CANCEL_DELAYED: _operation(bodies.CancelDelayed, bodies.Message),
    Opcode.PRODUCE_WITH_TTL: _operation(bodies.ProduceWithTtl, bodies.RecordMetadata),
    Opcode.BEGIN_TX: _operation(bodies.Nothing, bodies.TransactionOutcome),
    Opcode.COMMIT_TX: _operation(bodies.TransactionId, bodies.TransactionOutcome),
    Opcode.ABORT_TX: _operation(bodies.TransactionId, bodies.TransactionOutcome),
    Opcode.PRODUCE_TX: _operation(bodies.ProduceInTransaction, bodies.RecordMetadata),
    Opcode.CLUSTER_JOIN: _operation(bodies.JoinCluster, bodies.Message),
    Opcode.CLUSTER_LEAVE: _operation(bodies.Nothing, bodies.Message),
    Opcode.CLUSTER_STATUS: _operation(bodies.Nothing, bodies.ClusterStatus),
    Opcode.CLUSTER_METADATA: _operation(bodies.TopicOrAll, bodies.ClusterMetadata),
    Opcode.GET_OFFSET: _operation(bodies.GroupPartition, bodies.Place),
    Opcode.RESET_OFFSET: _operation(bodies.ResetOffset, bodies.Done),
    Opcode.LIST_GROUPS: _operation(bodies.Nothing, bodies.Groups),
    Opcode.DESCRIBE_GROUP: _operation(bodies.GroupOfTopic, bodies.Group),
    Opcode.GET_LAG: _operation(bodies.GroupPartition, bodies.Lag),
    Opcode.DELETE_GROUP: _operation(bodies.GroupOfTopic, bodies.Done),
    Opcode.SEEK_TO_TIMESTAMP: _operation(bodies.SeekToTimestamp, bodies.Place),
    Opcode.AUTH: _operation(user_bodies.Authenticate, user_bodies.Authenticated),
    Opcode.WHOAMI: _operation(bodies.Nothing, user_bodies.Identity),
    Opcode.USER_CREATE: _operation(user_bodies.UserRequest, user_bodies.User),
    Opcode.USER_DELETE: _operation(user_bodies.UserOnly, bodies.Message),
    Opcode.USER_UPDATE: _operation(user_bodies.UserRequest, bodies.Message),
    Opcode.USER_LIST: _operation(bodies.Nothing, user_bodies.Users),
    Opcode.USER_GET: _operation(user_bodies.UserOnly, user_bodies.User),
    Opcode.ACL_SET: _operation(user_bodies.SetAcl, user_bodies.AclChanged),
    Opcode.ACL_GET: _operation(bodies.TopicOnly, user_bodies.Acl),
    Opcode.ACL_DELETE: _operation(bodies.TopicOnly, user_bodies.AclChanged),
    Opcode.ACL_LIST: _operation(bodies.Nothing, user_bodies.Acls),
    Opcode.PASSWORD_CHANGE: _operation(user_bodies.UserRequest, bodies.Message),
    Opcode.ROLE_LIST: _operation(bodies.Nothing, user_bodies.Roles),
    Opcode.AUDIT_QUERY: _operation(user_bodies.AuditQuery, user_bodies.AuditEvents),
    Opcode.AUDIT_EXPORT: _operation(user_bodies.ExportAudit, user_bodies.AuditExport),
}

_ONLY_FORMS = {
    opcode: fields_of(operation.requests[0])
    for opcode, operation in OPERATIONS.items()
    if len(operation.requests) == 1
}
_REQUEST_OPCODES = {opcode.value: opcode for opcode in OPERATIONS}
_REPLY_OPCODES = {Opcode.AUTH: Opcode.AUTH_RESPONSE}


def measure(head: Buffer, *, payload_bytes_max: int = PAYLOAD_BYTES_MAX) -> int:
    """How long a frame is, by its head. A head that is not FlyMQ's ends the conversation."""
    magic, version, _, _, size = HEAD.unpack(head)
    if magic != MAGIC or version != VERSION:
        raise ProtocolError(f"magic {magic:#04x}, version {version}: not FlyMQ's")
    if size > payload_bytes_max:
        raise ProtocolError(f"payload of {size} bytes, at most {payload_bytes_max}")
    return HEAD.size + int(size)


def opcode_of(frame: Buffer) -> Opcode:
    """The opcode of a request; `InvalidRequest` for one that is not a request's."""
    opcode = _REQUEST_OPCODES.get(frame[2])
    if opcode is None:
        raise InvalidRequest(f"unknown opcode: {frame[2]}")
    return opcode


def decode_request(opcode: Opcode, payload: Buffer) -> Body:
    """Read a request; `ProtocolError` if the payload is none of its forms."""
    only = _ONLY_FORMS.get(opcode)
    if only is not None:
        request: Body = only.read(payload, 0)[0]  # Bytes behind it are ignored.
        return request
    *first, last = OPERATIONS[opcode].requests
    for form in first:
        try:
            return read_body(form, payload, is_exact=True)
        except ProtocolError:
            continue  # Then it is the next form, which raises the error.
    return read_body(last, payload, is_exact=True)


def encode_reply(opcode: Opcode, reply: Body) -> bytearray:
    """Encode a reply to a request with that opcode."""
    return _frame(_REPLY_OPCODES.get(opcode, opcode), reply)


def encode_error(text: str) -> bytearray:
    """Encode an error, cut to the length of a sentence."""
    cut = text.encode()[:_TEXT_BYTES_MAX].decode(errors="ignore")
    return _frame(Opcode.ERROR, bodies.Failure(_ERROR_CODE, cut))


def encode_request(opcode: int, payload: Buffer, *, flags: int = BINARY) -> bytes:
    """Encode a request as a client does."""
    return HEAD.pack(MAGIC, VERSION, opcode, flags, len(payload)) + payload


def _frame(opcode: Opcode, body: Body) -> bytearray:
    out = bytearray(HEAD.size)
    fields_of(type(body)).write(out, body)
    size = len(out) - HEAD.size
    if size > PAYLOAD_BYTES_MAX:
        raise InvalidRequest(f"the reply has {size} bytes, a frame at most {PAYLOAD_BYTES_MAX}")
    HEAD.pack_into(out, 0, MAGIC, VERSION, opcode, BINARY, size)
    return out
