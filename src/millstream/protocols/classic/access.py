"""The rights that each classic request asks for, as data: the table of documents and of tests.

The engine asks; a test runs every request and holds what was asked against this table.
"""

from typing import Final

from millstream.protocols.access_rules import NOTHING, Rule, needs
from millstream.protocols.classic.wire import Kind

RULES: Final[dict[Kind, Rule]] = {
    Kind.HEARTBEAT: NOTHING,
    Kind.AUTHENTICATE: NOTHING,
    Kind.CREATE_TOPIC: needs("Cr T"),
    Kind.PUBLISH: needs("W T", also=("De T",)),
    Kind.CREATE_SUBSCRIPTION: needs("R G", "R T", also=("De T",)),
    Kind.DELETE_SUBSCRIPTION: needs("Dl G"),
    Kind.SUBSCRIBE: needs("R G", "R T", also=("De G",)),
    Kind.UNSUBSCRIBE: NOTHING,  # Own subscriptions only.
}
# Sent by the broker alone.
PUSHED: Final = frozenset({Kind.DATA, Kind.ACK})
