"""The rights that each Flux verb asks for, as data: the table of the documents and of the tests.

The engine asks; a test runs every verb and holds what was asked against this table. Rights are in
the abbreviations of `protocols.access_rules`.
"""

from typing import Final

from millstream.protocols.access_rules import NOTHING, Rule, needs
from millstream.protocols.flux.wire import commands
from millstream.protocols.flux.wire.frames import Publications

# The verb of a command, as clients write it.
VERBS: Final[dict[type, str]] = {
    Publications: "PUB",
    commands.Subscribe: "SUB",
    commands.Unsubscribe: "UNSUB",
    commands.Acks: "ACK",
    commands.Nack: "NACK",
    commands.Reject: "REJECT",
    commands.Pull: "PULL",
    commands.FlowControl: "FLOWCTL",
    commands.Statistics: "STATS",
    commands.Headers: "HEADERS",
    commands.ReplayOne: "REPLAY",
    commands.ReplayFrom: "REPLAY",
    commands.ReplayFirst: "REPLAY",
    commands.ReplayLast: "REPLAY",
    commands.ReplayTime: "REPLAY",
    commands.Ping: "PING",
    commands.Pong: "PONG",
    commands.Info: "INFO",
    commands.Connect: "CONNECT",
    commands.Join: "JOIN",
    commands.Leave: "LEAVE",
    commands.Mistake: "",
}

RULES: Final[dict[str, Rule]] = {
    "PUB": needs("W T", also=("Cr T", "De T")),  # Cr: the topic is made.
    "HPUB": needs("W T", also=("Cr T", "De T")),
    "SUB": needs(also=("R T", "R G", "De T", "De G")),  # R G: with a group, or durable.
    "PULL": needs(also=("R T", "De T")),
    "REPLAY": needs(also=("R T", "De T")),
    # Own subscriptions only.
    "UNSUB": NOTHING,
    "ACK": needs(also=("De T",)),  # De: to find the topic of the message's number.
    "NACK": needs(also=("De T",)),
    "REJECT": needs(also=("De T",)),
    "FLOWCTL": NOTHING,
    "STATS": NOTHING,
    "HEADERS": NOTHING,
    "PING": NOTHING,
    "PONG": NOTHING,
    "INFO": NOTHING,
    "CONNECT": NOTHING,
    "AUTH": NOTHING,
    "JOIN": needs("A C"),
    "LEAVE": needs("A C"),
}
