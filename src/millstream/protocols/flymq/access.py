"""The rights that each FlyMQ opcode asks for, as data: the table of the documents and of the tests.

The engine asks; a test runs every opcode and holds what was asked against this table.
"""

from typing import Final

from millstream.protocols.access_rules import NOTHING, Rule, needs
from millstream.protocols.flymq.wire.frames import Opcode

_PRODUCE: Final = needs("W T", also=("Cr T", "De T"))  # Cr: the topic is made.
_READ: Final = needs("R T", also=("De T",))

RULES: Final[dict[Opcode, Rule]] = {
    Opcode.PRODUCE: _PRODUCE,
    Opcode.PRODUCE_DELAYED: _PRODUCE,
    Opcode.PRODUCE_WITH_TTL: _PRODUCE,
    Opcode.PRODUCE_WITH_SCHEMA: _PRODUCE,
    Opcode.CONSUME: _READ,
    Opcode.CONSUME_ZERO_COPY: _READ,
    Opcode.FETCH: _READ,
    Opcode.FETCH_BINARY: _READ,
    Opcode.CREATE_TOPIC: needs("Cr T"),
    Opcode.DELETE_TOPIC: needs("Dl T"),
    Opcode.METADATA: needs("De T"),
    Opcode.SEEK_TO_TIMESTAMP: needs("De T"),
    Opcode.LIST_TOPICS: needs(also=("De T",)),  # Filtered.
    Opcode.SUBSCRIBE: needs("R T", also=("R G", "De G", "De T")),  # R G: with a group.
    Opcode.COMMIT: needs("R G", "R T", also=("De T",)),
    Opcode.RESET_OFFSET: needs("R G", "R T", also=("De T",)),
    Opcode.GET_OFFSET: needs("De G", also=("De T",)),
    Opcode.GET_LAG: needs("De G", "De T"),
    Opcode.LIST_GROUPS: needs(also=("De G", "De T", "De C")),  # Filtered.
    Opcode.DESCRIBE_GROUP: needs("De G", also=("De T",)),
    Opcode.DELETE_GROUP: needs("Dl G", also=("De G", "De T", "R T")),
    # A subject is judged as the topic that it names.
    Opcode.REGISTER_SCHEMA: needs("W T", also=("De T",)),
    Opcode.DELETE_SCHEMA: needs("Dl T", also=("De T",)),
    Opcode.GET_SCHEMA: needs("De T"),
    Opcode.LIST_SCHEMAS: needs(also=("De T",)),
    Opcode.VALIDATE: needs("De T"),
    Opcode.FETCH_DLQ: _READ,
    Opcode.REPLAY_DLQ: needs("R T", also=("W T", "De T")),
    Opcode.PURGE_DLQ: needs("Dl T", also=("De T",)),
    Opcode.CANCEL_DELAYED: needs("Dl T"),
    # Transactions belong to the principal that has begun them.
    Opcode.BEGIN_TX: NOTHING,
    Opcode.COMMIT_TX: NOTHING,
    Opcode.ABORT_TX: NOTHING,
    Opcode.PRODUCE_TX: needs(also=("W T", "Cr T", "De T")),
    Opcode.CLUSTER_JOIN: needs("A C"),
    Opcode.CLUSTER_LEAVE: needs("A C"),
    Opcode.CLUSTER_STATUS: needs("De C", also=("De T",)),  # Counts what may be seen.
    Opcode.CLUSTER_METADATA: needs(also=("De T",)),  # Filtered.
    Opcode.AUTH: NOTHING,
    Opcode.WHOAMI: NOTHING,
    Opcode.USER_CREATE: needs("A C"),
    Opcode.USER_DELETE: needs("A C"),
    Opcode.USER_UPDATE: needs("A C"),
    Opcode.USER_LIST: needs("De C"),
    Opcode.USER_GET: needs(also=("De C",)),  # One's own: nothing.
    Opcode.PASSWORD_CHANGE: needs(also=("A C",)),  # One's own, with the old one: nothing.
    Opcode.ACL_SET: needs(also=("A C",)),  # Or the owner of the topic.
    Opcode.ACL_DELETE: needs(also=("A C",)),
    Opcode.ACL_GET: needs("De T"),
    Opcode.ACL_LIST: needs("De C"),
    Opcode.ROLE_LIST: NOTHING,
    Opcode.AUDIT_QUERY: needs("R T"),  # Of `__audit`.
    Opcode.AUDIT_EXPORT: needs("R T"),
}
