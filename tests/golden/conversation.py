"""Runs conversations with a real broker from scripts: what all protocols share.

A script is blocks of what clients do and, behind `----`, what they are told. `a: words` is what
client `a` sends, in the words of its protocol; all it sends in one block leaves in one write. `a<
2` waits until two messages have come to it. `broker key=value` at the top sets the configuration,
`restart` and `kill` end the broker and start it again where it was, `advance 500` moves its clock,
`leave a` ends a connection, `topic t 3` makes a topic. `closed` is what a client is told by a
broker that ends its connection.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple, Protocol

from millstream.config_sources import load
from millstream.testing.broker import DEFAULTS, RunningBroker, run_broker

SECONDS_MAX = 60

_SENDS = re.compile(r"(\w+): ?(.*)")
_WAITS = re.compile(r"(\w+)< (\d+)")


class Heard(NamedTuple):
    """A reply or a message, in lines for people."""

    lines: list[str]
    is_message: bool = False


class Client(Protocol):
    """A connection over one protocol that knows where replies and messages end."""

    def say(self, lines: list[str]) -> None:
        """Send it all in one write, with something behind it that is answered in any case."""

    def hear(self) -> Heard | None:
        """What comes next; None for the answer to that something: all before it is answered.

        Raises `ConnectionError` at the end.
        """

    def close(self) -> None: ...


Connect = Callable[[RunningBroker], Client]


def run_script(text: str, connect: Connect, settings: Mapping[str, str]) -> str:
    """Carry a script out, and return it with what came of it."""
    blocks = [block.partition("\n----")[0].strip("\n") for block in text.split("\n\n")]
    words = [
        word
        for line in blocks[0].splitlines()
        if line.startswith("broker ")
        for word in line.split()[1:]
    ]
    with _conversation(connect, {**settings, **dict(word.split("=", 1) for word in words)}) as talk:
        heard = []
        for block in blocks:
            lines = [line for line in block.splitlines() if not line.startswith(("#", "broker "))]
            heard.append("\n".join([block, "----", *talk.carry_out(lines)]))
    return "\n\n".join(heard) + "\n"


class _Transcript:
    """What one client was told in one block."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.messages = 0

    def add(self, heard: Heard) -> None:
        self.lines += heard.lines
        self.messages += heard.is_message


class Conversation:
    def __init__(self, broker: RunningBroker, connect: Connect) -> None:
        self._broker = broker
        self._connect = connect
        self._clients: dict[str, Client] = {}

    def carry_out(self, lines: list[str]) -> list[str]:
        transcripts: dict[str, _Transcript] = {}
        sent: dict[str, list[str]] = {}
        awaited: dict[str, int] = {}
        for line in lines:
            if sends := _SENDS.fullmatch(line):
                sent.setdefault(sends[1], []).append(sends[2])
            elif waits := _WAITS.fullmatch(line):
                awaited[waits[1]] = int(waits[2])
                sent.setdefault(waits[1], [])
            else:
                self._talk_all(sent, transcripts)
                sent = {}
                self._turn(*line.split())
        self._talk_all(sent, transcripts)
        for name, count in awaited.items():
            while transcripts[name].messages < count:
                heard = self._clients[name].hear()
                assert heard is not None
                transcripts[name].add(heard)
        heard_lines = [(name, line) for name in transcripts for line in transcripts[name].lines]
        return [f"{name}: {line}".rstrip() for name, line in heard_lines]

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

    def _talk_all(self, sent: dict[str, list[str]], transcripts: dict[str, _Transcript]) -> None:
        """Let them talk one after the other, each until all it said has been answered."""
        for name, lines in sent.items():
            here = transcripts.setdefault(name, _Transcript())
            if name not in self._clients:
                self._clients[name] = self._connect(self._broker)
            client = self._clients[name]
            try:
                client.say(lines)
                while (heard := client.hear()) is not None:
                    here.add(heard)
            except ConnectionError:
                here.lines.append("closed")
                self._clients.pop(name).close()


@contextmanager
def _conversation(connect: Connect, settings: Mapping[str, str]) -> Iterator[Conversation]:
    variables = {f"MILLSTREAM_{key.replace('.', '__').upper()}": v for key, v in settings.items()}
    config = replace(load(environment=variables), timing=DEFAULTS.timing, limits=DEFAULTS.limits)
    with run_broker(config=config) as broker:
        talk = Conversation(broker, connect)
        try:
            yield talk
        finally:
            talk.close()
