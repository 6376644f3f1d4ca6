"""Conversations over the classic protocol: a line of a script is a frame.

`a: 7 PUBLISH topic=orders colour=red | hello` is a frame with the number 7, two properties and a
body; a value with spaces stands in double quotes. `a: bytes 00 ff` sends just those. What every
frame says (when it was made, and the version) is left out of what is told, and so are greetings.
"""

import shlex

from millstream.protocols.classic.wire import Frame, Kind, encode
from millstream.testing.broker import RunningBroker
from tests.golden import conversation
from tests.golden.conversation import Heard
from tests.support.classic import ClassicSocket

SENT_MS = 1_700_000_000_000
MARK = 2**64 - 1  # The number of a heartbeat that no script sends.


def run_script(text: str) -> str:
    return conversation.run_script(text, ClassicClient, {})


class ClassicClient:
    def __init__(self, broker: RunningBroker) -> None:
        self._socket = ClassicSocket((broker.host, broker.classic_port))

    def say(self, lines: list[str]) -> None:
        mark = encode(Frame(Kind.HEARTBEAT, MARK, SENT_MS, {}))
        self._socket.send(b"".join(map(_spelt, lines)) + mark)

    def hear(self) -> Heard | None:
        frame = self._socket.next_but_greetings()
        if (frame.kind, frame.sequence) == (Kind.HEARTBEAT, MARK):
            return None
        return Heard([_shown(frame)], is_message=frame.kind == Kind.DATA)

    def close(self) -> None:
        self._socket.close()


def _spelt(line: str) -> bytes:
    first, _, remainder = line.partition(" ")
    if first == "bytes":
        return bytes.fromhex(remainder)
    head, _, body = remainder.partition(" | ")
    kind, *pairs = shlex.split(head)
    properties = dict(pair.split("=", 1) for pair in pairs)
    value = body.encode().decode("unicode_escape").encode("latin-1")
    number = int(kind) if kind.isdecimal() else Kind[kind]
    return encode(Frame(number, int(first), SENT_MS, properties, value))


def _shown(frame: Frame) -> str:
    assert frame.properties["version"] == "1.0"
    assert float(frame.properties["created_at"]) * 1000 == frame.timestamp_ms
    words = [str(frame.sequence), Kind(frame.kind).name]
    for name, value in frame.properties.items():
        if name not in ("created_at", "version"):
            words.append(f'{name}="{value}"' if " " in value else f"{name}={value}")
    if frame.body:
        words += ["|", frame.body.decode("latin-1").encode("unicode_escape").decode()]
    return " ".join(words)
