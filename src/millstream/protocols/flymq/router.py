"""The table of the handlers that answer FlyMQ opcodes."""

from millstream.protocols.flymq.gateway import Handler
from millstream.protocols.flymq.handlers import (
    acls,
    audit,
    dead_letters,
    groups,
    records,
    schemas,
    topics,
    transactions,
    users,
)
from millstream.protocols.flymq.wire.frames import Opcode

HANDLERS: dict[Opcode, Handler] = {
    **records.HANDLERS,
    **topics.HANDLERS,
    **groups.HANDLERS,
    **dead_letters.HANDLERS,
    **transactions.HANDLERS,
    **schemas.HANDLERS,
    **users.HANDLERS,
    **acls.HANDLERS,
    **audit.HANDLERS,
}
