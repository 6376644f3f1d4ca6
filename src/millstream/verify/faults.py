"""Faults during a run: the user's own commands, and draining nodes in turn.

A command is run by the shell; `{node}` and `{address}` stand for a node of the cluster, another one
each time.
"""

import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

COMMAND_S_MAX = 120.0
OUTPUT_LENGTH_MAX = 200


class Node(NamedTuple):
    node_id: int
    address: str


class Fault(NamedTuple):
    """Does something to a node; returns what came of it, raises `RuntimeError` if it failed."""

    name: str
    act: Callable[[Node], str]


class Happened(NamedTuple):
    at_s: float  # Since the begin of the run.
    fault: str
    node_id: int
    outcome: str
    is_done: bool


def command_fault(name: str, command: str) -> Fault:
    def act(node: Node) -> str:
        text = command.replace("{node}", str(node.node_id)).replace("{address}", node.address)
        try:
            done = subprocess.run(
                ["/bin/sh", "-c", text],
                capture_output=True,
                text=True,
                timeout=COMMAND_S_MAX,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"not done in {COMMAND_S_MAX:.0f} s") from None
        output = (done.stderr or done.stdout).strip().rpartition("\n")[2][:OUTPUT_LENGTH_MAX]
        if done.returncode:
            raise RuntimeError(f"exit code {done.returncode}: {output}")
        return output or "done"

    return Fault(name, act)


@dataclass(slots=True)
class Nemesis:
    """Runs one fault every `every_s`, on the nodes in turn, until `stop`."""

    faults: Sequence[Fault]
    nodes: Sequence[Node]
    every_s: float
    happened: list[Happened] = field(default_factory=list)
    _is_over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        if self.faults and self.nodes:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Start no more faults, and wait for the one under way."""
        self._is_over.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        began_s, turn = time.monotonic(), 0
        while not self._is_over.wait(self.every_s):
            fault = self.faults[turn % len(self.faults)]
            node = self.nodes[turn // len(self.faults) % len(self.nodes)]
            at_s = time.monotonic() - began_s
            try:
                outcome, is_done = fault.act(node), True
            except RuntimeError as problem:
                outcome, is_done = str(problem), False
            self.happened.append(Happened(at_s, fault.name, node.node_id, outcome, is_done))
            turn += 1
