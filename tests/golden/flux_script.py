"""Conversations over the Flux protocol: a line of a script is a line of the protocol.

Numbers of messages are large, so `#1` is the first that the script ever saw, in both directions.
"""

import re
import socket

from millstream.testing.broker import RunningBroker
from tests.golden import conversation
from tests.golden.conversation import SECONDS_MAX, Heard

# By default nothing is sent again: a slow machine would tell another story.
SETTINGS = {"flux.ack_timeout_ms": "600000"}
# Answered with an error that no script asks for: all before it has been answered then.
MARK = "UNSUB ~mark"
MARKED = "-ERR unknown sid ~mark"

_NUMBER = re.compile(r"#\d+")
_SIZES = {"MSG": 3, "HMSG": 4}  # Where the word is that says how long the message is.


def run_script(text: str) -> str:
    numbers = Numbers()
    return conversation.run_script(text, lambda broker: FluxClient(broker, numbers), SETTINGS)


class Numbers:
    """What the broker calls a message, and our name for it."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._numbers: dict[str, str] = {}

    def name(self, number: str) -> str:
        name = self._names.setdefault(number, f"#{len(self._names) + 1}")
        self._numbers[name] = number
        return name

    def spell(self, words: str) -> str:
        return _NUMBER.sub(lambda name: self._numbers[name[0]], words)


class FluxClient:
    def __init__(self, broker: RunningBroker, numbers: Numbers) -> None:
        address = broker.host, broker.flux_port
        self._socket = socket.create_connection(address, timeout=SECONDS_MAX)
        self._file = self._socket.makefile("rb")
        self._numbers = numbers

    def say(self, lines: list[str]) -> None:
        spelt = [self._numbers.spell(line.encode().decode("unicode_escape")) for line in lines]
        self._socket.sendall("".join(f"{line}\r\n" for line in [*spelt, MARK]).encode())

    def hear(self) -> Heard | None:
        line = self._file.readline().decode()
        if not line:
            raise ConnectionError("the broker closed the connection")
        if line.rstrip("\r\n") == MARKED:
            return None
        words = line.split()
        if words[0] not in _SIZES:
            return Heard([line.rstrip("\r\n")])
        size = int(words[_SIZES[words[0]]])
        body = self._file.read(size + 2).decode().removesuffix("\r\n")
        *head, number = words
        shown = " ".join([*head, self._numbers.name(number)])
        return Heard([shown, *(f"  {part}" for part in body.split("\r\n"))], is_message=True)

    def close(self) -> None:
        self._file.close()
        self._socket.close()
