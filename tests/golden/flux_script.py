"""Conversations with a real broker at its Flux door, told as scripts.

A script is blocks of what clients do and, behind `----`, what they are told. `a: words` is a line
that client `a` sends; its lines of one block leave in one write. `a< 2` waits until two messages
have come to it. `broker key=value` at the top sets the configuration, `restart` and `kill` end the
broker and start it again where it was, `advance 500` moves its clock, `leave a` ends a connection.
Numbers of messages are large, so `#1` is the first that the script ever saw, in both directions.
"""

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from millstream.config import Config
from millstream.config_sources import load
from millstream.testing.broker import DEFAULTS, RunningBroker, run_broker

SECONDS_MAX = 20
# Answered with an error that no script asks for: all before it has been answered then.
MARK = b"UNSUB ~mark\r\n"
MARKED = "-ERR unknown sid ~mark"

_SENDS = re.compile(r"(\w+): ?(.*)")
_WAITS = re.compile(r"(\w+)< (\d+)")
_NUMBER = re.compile(r"#\d+")


def run_script(text: str) -> str:
    """Carry a script out, and return it with what came of it."""
    blocks = [block.partition("\n----")[0].strip("\n") for block in text.split("\n\n")]
    first = blocks[0].splitlines()
    settings = [line.split()[1:] for line in first if line.startswith("broker ")]
    with _conversation(dict(word.split("=", 1) for line in settings for word in line)) as talk:
        told = []
        for block in blocks:
            lines = [line for line in block.splitlines() if not line.startswith(("#", "broker "))]
            told.append("\n".join([block, "----", *talk.carry_out(lines)]))
    return "\n\n".join(told) + "\n"


class FluxClient:
    """A socket that knows where replies and messages end."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, timeout=SECONDS_MAX)
        self._file = self._socket.makefile("rb")

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def frame(self) -> list[str]:
        """The next reply, or a message with its payload."""
        line = self._file.readline()
        if not line:
            raise ConnectionError("the broker closed the connection")
        words = line.decode().split()
        sizes = {"MSG": 3, "HMSG": 4}
        if words[0] not in sizes:
            return [line.decode().rstrip("\r\n")]
        body = self._file.read(int(words[sizes[words[0]]]) + 2).decode().removesuffix("\r\n")
        return [" ".join(words), *(f"  {part}" for part in body.split("\r\n"))]

    def close(self) -> None:
        self._file.close()
        self._socket.close()


class Conversation:
    def __init__(self, broker: RunningBroker) -> None:
        self._broker = broker
        self._clients: dict[str, FluxClient] = {}
        self._numbers: dict[str, str] = {}  # What the broker calls a message, by our name for it.

    def carry_out(self, lines: list[str]) -> list[str]:
        told: dict[str, list[str]] = {}
        sent: dict[str, bytes] = {}
        awaited: dict[str, int] = {}
        for line in lines:
            if sends := _SENDS.fullmatch(line):
                name, words = sends.groups()
                sent[name] = sent.get(name, b"") + self._spelled(words) + b"\r\n"
            elif waits := _WAITS.fullmatch(line):
                awaited[waits[1]] = int(waits[2])
                sent.setdefault(waits[1], b"")
            else:
                self._talk_all(sent, told)
                sent = {}
                self._turn(*line.split())
        self._talk_all(sent, told)
        for name, count in awaited.items():
            self._listen(name, count, told[name])
        return [f"{name}: {line}".rstrip() for name in told for line in told[name]]

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    def _turn(self, knob: str, *words: str) -> None:
        match knob:
            case "restart":
                self.close()
                self._broker.restart()
            case "kill":
                self.close()
                self._broker.kill()
                self._broker.restart()
            case "advance":
                self._broker.advance_clock(int(words[0]))
            case "leave":
                self._clients.pop(words[0]).close()
            case "topic":
                self._broker.create_topic(words[0], partitions=int(words[1]))
            case _:
                raise ValueError(f"a script cannot say {knob!r}")

    def _talk_all(self, sent: dict[str, bytes], told: dict[str, list[str]]) -> None:
        """Let them talk one after the other, each until all it said has been answered."""
        for name, data in sent.items():
            client = self._clients.get(name)
            if client is None:
                address = self._broker.host, self._broker.flux_port
                client = self._clients[name] = FluxClient(address)
            client.send(data + MARK)
            while (frame := client.frame()) != [MARKED]:
                told.setdefault(name, []).extend(self._named(frame))
            told.setdefault(name, [])

    def _listen(self, name: str, count: int, told: list[str]) -> None:
        """Listen until so many messages have come in all."""
        while sum(line.startswith(("MSG ", "HMSG ")) for line in told) < count:
            told += self._named(self._clients[name].frame())

    def _spelled(self, words: str) -> bytes:
        words = words.encode().decode("unicode_escape")
        return _NUMBER.sub(lambda name: self._numbers[name[0]], words).encode()

    def _named(self, frame: list[str]) -> list[str]:
        """The same with our name for the message, if it is one."""
        head, *body = frame
        if not body:
            return frame
        *words, number = head.split()
        names = {known: name for name, known in self._numbers.items()}
        name = names.get(number, f"#{len(names) + 1}")
        self._numbers[name] = number
        return [" ".join([*words, name]), *body]


@contextmanager
def _conversation(settings: dict[str, str]) -> Iterator[Conversation]:
    variables = {f"MILLSTREAM_{key.replace('.', '__').upper()}": v for key, v in settings.items()}
    # By default nothing is sent again: a slow machine would tell another story.
    told = load(environment={"MILLSTREAM_FLUX__ACK_TIMEOUT_MS": "600000"} | variables)
    config: Config = replace(told, timing=DEFAULTS.timing, limits=DEFAULTS.limits)
    with run_broker(config=config) as broker:
        talk = Conversation(broker)
        try:
            yield talk
        finally:
            talk.close()


SCRIPTS = sorted((Path(__file__).parent / "flux").glob("*.txt"))
