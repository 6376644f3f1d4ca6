"""Scripted lives of a group: every message, sync and power cut is said, nothing is left to chance.

A script is a text of blocks. A block is commands, a line `----`, and what came of them; a blank
line ends it. `#` begins a comment. The commands are the methods of `Script` that start with
`do_`; their arguments are node numbers, `name=value` and words. Disks are at their worst: a crash
loses all that was not synced. A state line reads

    n2 leads@3 hw=1 [1] a [3] b ~ c

node, role and epoch, high watermark, then the log: boundaries in brackets (with their voters where
they change), records, and `~` where durability ends.
"""

import shlex
from collections import deque
from collections.abc import Callable, Iterable
from random import Random

from millstream.errors import ChangeRefused
from millstream.model import Boundary, Position, ReplicaId
from millstream.raft import Core, Effects, Message, Role, Timing
from millstream.raft.messages import (
    Diverged,
    FetchReply,
    Hint,
    Lead,
    Reset,
    TakeOver,
    Vote,
    VoteGranted,
)
from tests.simulation.core_group import Group, Node
from tests.simulation.core_invariants import Violation
from tests.simulation.core_log import FakeLog, Mark

DELIVERIES_MAX = 10_000
VOTING = (Vote, VoteGranted, Hint)


def run_script(text: str) -> str:
    """Play a script and return it with what really came of each block."""
    script: Script | None = None
    out: list[str] = []
    lines = iter(text.splitlines())
    for line in lines:
        out.append(line)
        if line == "----":
            assert script is not None, "a script begins with `group`"
            out.extend(script.report())
            for skipped in lines:
                if not skipped:
                    break
            out.append("")
        elif line and not line.startswith("#"):
            name, *words = shlex.split(line)
            if name == "group":
                script = Script(**dict(word.split("=") for word in words))
            else:
                assert script is not None, "a script begins with `group`"
                script.do(name, words)
    return "\n".join(out).rstrip("\n") + "\n"


class Script(Group):
    def __init__(self, nodes: str, voters: str = "", items: str = "8") -> None:
        everyone = range(1, int(nodes) + 1)
        super().__init__(
            everyone,
            map(int, voters.split(",")) if voters else everyone,
            random=Random(0),
            timing=Timing(election_ticks=10, heartbeat_ticks=2),
            read_items_max=int(items),
        )
        self._inbox: deque[tuple[ReplicaId, ReplicaId, Message]] = deque()
        self._cut: set[frozenset[ReplicaId]] = set()
        self._replies_left: dict[ReplicaId, int] = {}
        self._marks: dict[ReplicaId, tuple[int, Mark]] = {}
        self._lines: list[str] = []
        self._shown: dict[ReplicaId, str] = {}
        for me in self.nodes:
            self.start(me)
            self._shown[me] = self._state(self.nodes[me])

    def do(self, name: str, words: list[str]) -> None:
        getattr(self, f"do_{name}")(*words)

    def report(self) -> list[str]:
        """What happened since the last report, and the state of the nodes that changed."""
        lines, self._lines = self._lines, []
        for me, node in self.nodes.items():
            state = self._state(node)
            if self._shown[me] != state:
                self._shown[me] = state
                lines.append(state)
        return lines or ["nothing"]

    # -- commands ----------------------------------------------------------------------------------

    def do_campaign(self, word: str) -> bool:
        """Let a node campaign once, up to the moment it wins, before anybody hears that it did."""
        me = ReplicaId(int(word))
        core = self.nodes[me].core
        assert core is not None
        assert core.role is not Role.LEADER, f"n{me} leads already"
        while core.role is Role.CANDIDATE:
            self.tick(me)  # Until it gives up the last campaign.
        self._inbox.clear()
        self.deliver(me, me, TakeOver(core.epoch))
        epoch = core.epoch
        while not self.nodes[me].is_leader and (self._inbox or self._sync_votes()):
            if self._inbox and isinstance(self._inbox[0][2], VOTING):
                self.deliver(*self._inbox.popleft())
            elif self._inbox:
                self._inbox.popleft()
        if not self.nodes[me].is_leader:
            self._lines.append(f"n{me} is not elected in epoch {epoch}")
        self._inbox.clear()
        return self.nodes[me].is_leader

    def do_elect(self, word: str) -> None:
        """Let a node campaign until it wins; a few times, it may be epochs behind."""
        for _ in range(5):
            before = len(self._lines)
            if self.do_campaign(word):
                return
            del self._lines[before:]
        self._lines.append(f"n{word} cannot be elected")

    def do_append(self, word: str, payload: str, records: str = "records=1") -> None:
        count = int(records.partition("=")[2])
        batch = self.propose(ReplicaId(int(word)), records=count, payload=payload)
        self._lines.append(f"n{word} appends {payload} at {batch.base_offset}")
        self._exchange()

    def do_sync(self, *words: str) -> None:
        for me in self._named(words):
            self._sync(me)
        self._exchange()

    def do_hear(self, word: str, leader: str, replies: str = "replies=1000") -> None:
        """Tell a node who leads, and let both talk until the node has heard so many replies; what
        is said after that is lost. No disk gets done."""
        me, sender = ReplicaId(int(word)), ReplicaId(int(leader))
        core = self.nodes[sender].core
        assert core is not None
        self._replies_left = {me: int(replies.partition("=")[2])}
        self.deliver(sender, me, Lead(core.epoch))
        self._exchange()
        self._replies_left = {}

    def do_replicate(self, *words: str) -> None:
        """Let the named nodes, all if none, talk and sync until there is nothing left to say."""
        together = self._named(words)
        kept, self._cut = self._cut, self._cut | self._apart(together)
        quiet = 0
        # A leader repeats itself every few ticks; when it has had time to, and nothing came of
        # it, nothing will.
        while quiet <= self.timing.retry_ticks:
            before = [self._state(self.nodes[me]) for me in together]
            for me in together:
                node = self.nodes[me]
                if node.is_leader or (node.core is not None and me not in node.log.voters):
                    self.tick(me)
            self._exchange()
            for me in together:
                self._sync(me)
            self._exchange()
            after = [self._state(self.nodes[me]) for me in together]
            quiet = quiet + 1 if after == before else 0
        self._cut = kept

    def do_tick(self, word: str, count: str = "1") -> None:
        for _ in range(int(count)):
            self.tick(ReplicaId(int(word)))
            self._exchange()

    def do_together(self, *words: str) -> None:
        """Only these nodes hear each other; everybody else is alone."""
        self._cut = self._apart(self._named(words))

    def do_heal(self) -> None:
        self._cut = set()

    def do_crash(self, *words: str) -> None:
        for me in self._named(words):
            if self.nodes[me].core is not None:
                self.crash(me, random=None)
                self._marks.pop(me, None)
        self._inbox.clear()

    def do_restart(self, *words: str) -> None:
        for me in self._named(words):
            if self.nodes[me].core is not None:
                self.do_crash(str(me))
            self.start(me)

    def do_retain(self, word: str, start_offset: str) -> None:
        self.retain(ReplicaId(int(word)), int(start_offset))

    def do_voters(self, word: str, *voters: str) -> None:
        """Ask a leader for these voters, and let the old ones vote."""
        topics = frozenset(ReplicaId(int(voter)) for voter in voters)
        self._ask(word, lambda core: core.change_voters(topics))

    def do_transfer(self, word: str, to: str) -> None:
        self._ask(word, lambda core: core.transfer(ReplicaId(int(to))))

    def do_show(self) -> None:
        """Report every node, changed or not."""
        self._shown = dict.fromkeys(self.nodes, "")

    # -- how it happens ----------------------------------------------------------------------------

    def transmit(self, sender: ReplicaId, to: ReplicaId, message: Message) -> None:
        if frozenset((sender, to)) in self._cut:
            return
        if to in self._replies_left and isinstance(message, FetchReply | Diverged | Reset):
            self._replies_left[to] -= 1
            if self._replies_left[to] < 0:
                return
        self._inbox.append((sender, to, message))

    def sync_wanted(self, node: Node, mark: Mark) -> None:
        self._marks[node.me] = (node.life, mark)

    def _ask(self, word: str, act: Callable[[Core], Effects]) -> None:
        try:
            self.request(ReplicaId(int(word)), act)
        except ChangeRefused as refused:
            self._lines.append(str(refused))
        self._exchange()

    def _exchange(self) -> None:
        """Deliver until no message is left. Disks get done only where mail waits for a
        vote to be durable."""
        for _ in range(DELIVERIES_MAX):
            if self._inbox:
                self.deliver(*self._inbox.popleft())
            elif not self._sync_votes():
                return
        raise Violation("they never stop talking")

    def _sync(self, me: ReplicaId) -> None:
        """Sync until nothing is left unsynced: a sync under way, and the one behind it."""
        while me in self._marks:
            life, mark = self._marks.pop(me)
            self.sync_ended(self.nodes[me], life, mark)

    def _sync_votes(self) -> bool:
        """Let a sync end on each node whose mail waits for one; False if there is none."""
        waiting = [me for me, node in self.nodes.items() if node.push_channel]
        for me in waiting:
            life, mark = self._marks.pop(me)
            self.sync_ended(self.nodes[me], life, mark)
        return bool(waiting)

    def _named(self, words: Iterable[str]) -> list[ReplicaId]:
        return [ReplicaId(int(word)) for word in words] or list(self.nodes)

    def _apart(self, together: list[ReplicaId]) -> set[frozenset[ReplicaId]]:
        return {
            frozenset((a, b))
            for a in self.nodes
            for b in self.nodes
            if a != b and not (a in together and b in together)
        }

    def _input(self, me: ReplicaId, act: Callable[[Core], Effects]) -> bool:
        node = self.nodes[me]
        led, cuts, last = node.is_leader, node.log.cuts, node.log.last
        refused = super()._input(me, act)
        if node.log.cuts > cuts:
            is_reset = node.log.last > last
            does = "starts over at" if is_reset else "cuts its log back to"
            self._lines.append(f"n{me} {does} {_at(node.log.last)}, from {_at(last)}")
        if node.is_leader and not led:
            self._lines.append(f"n{me} opens epoch {node.log.last.epoch}")
        if led and not node.is_leader:
            self._lines.append(f"n{me} leads no more")
        return refused

    # -- words -------------------------------------------------------------------------------------

    def _state(self, node: Node) -> str:
        core = node.core
        if core is None:
            return f"n{node.me} down {_story(node.log)}".rstrip()
        role = {Role.LEADER: "leads", Role.FOLLOWER: "follows"}.get(core.role, core.role.value)
        role = "observes" if role == "follows" and node.me not in core.voters else role
        return (
            f"n{node.me} {role}@{core.epoch} hw={core.high_watermark} {_story(node.log)}".rstrip()
        )


def _at(position: Position) -> str:
    return f"({position.epoch}, {position.end_offset})"


def _story(log: FakeLog) -> str:
    """Boundaries and records in order, `~` where a power cut would end them."""
    items: list[tuple[Position, str]] = []
    voters: frozenset[ReplicaId] = frozenset()
    opened: list[Boundary] = list(log.boundaries)
    for batch in [*log.records.batches, None]:
        while opened and (batch is None or opened[0].start_offset <= batch.base_offset):
            boundary = opened.pop(0)
            named = ",".join(map(str, sorted(boundary.voters)))
            text = f"[{boundary.epoch}: {named}]" if boundary.voters != voters else ""
            voters = boundary.voters
            where = Position(boundary.epoch, boundary.start_offset)
            items.append((where, text or f"[{boundary.epoch}]"))
        if batch is not None:
            items.append((Position(batch.epoch, batch.end_offset), batch.payload))
    words = [f"from {log.start_offset}:"] if log.start_offset else []
    words += [text for position, text in items if position <= log.synced]
    if len(words) - bool(log.start_offset) < len(items):
        words += ["~", *(text for position, text in items if position > log.synced)]
    return " ".join(words)
