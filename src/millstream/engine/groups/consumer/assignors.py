"""Server-side assignors of consumer groups (KIP-848): `uniform` and `range`.

`uniform` is even and moves as few partitions as possible; `range` assigns neighbouring partitions,
the same of every topic to the same member. Pure: the result depends on the subscriptions alone.

Invariant: every partition of a subscribed topic goes to exactly one member that subscribes to it.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from heapq import heapify, heapreplace
from typing import NamedTuple
from uuid import UUID

from millstream.model import LogId

# Each pass moves partitions from members that have too many; few are needed. It limits cost, not
# correctness: after the last pass all partitions are assigned, if less evenly.
EVENING_PASSES_MAX = 20


class Subscriber(NamedTuple):
    """A member's subscribed topics, and its target assignment so far."""

    member_id: str
    topics: frozenset[UUID]
    held: frozenset[LogId] = frozenset()
    instance_id: str | None = None


Shares = dict[str, frozenset[LogId]]  # By member id; every member has one, if only an empty one.
Assignor = Callable[[Collection[Subscriber], Mapping[UUID, int]], Shares]


def uniform(subscribers: Collection[Subscriber], counts: Mapping[UUID, int]) -> Shares:
    """Assign evenly, within one partition, and move few.

    With different subscriptions that may be impossible; then no member has two more than another
    that could take one over. `counts` are the partitions of each topic.
    """
    topics = {frozenset(subscriber.topics & counts.keys()) for subscriber in subscribers}
    if len(topics) == 1:
        return _uniform_for_equals(subscribers, _partitions(next(iter(topics)), counts))
    return _uniform_for_all(subscribers, counts)


def range_(subscribers: Collection[Subscriber], counts: Mapping[UUID, int]) -> Shares:
    """Assign a run of neighbouring partitions of each topic to each of its subscribers."""
    shares: dict[str, set[LogId]] = {subscriber.member_id: set() for subscriber in subscribers}
    # Static members keep their place in this order from process to process.
    ordered = sorted(
        subscribers, key=lambda w: (w.instance_id is None, w.instance_id or w.member_id)
    )
    for topic_id, count in counts.items():
        takers = [subscriber.member_id for subscriber in ordered if topic_id in subscriber.topics]
        for at, member_id in enumerate(takers):
            first, end = at * count // len(takers), (at + 1) * count // len(takers)
            shares[member_id].update(LogId(topic_id, index) for index in range(first, end))
    return {member_id: frozenset(share) for member_id, share in shares.items()}


ASSIGNORS: dict[str, Assignor] = {"uniform": uniform, "range": range_}
DEFAULT_ASSIGNOR = "uniform"


def _uniform_for_equals(subscribers: Collection[Subscriber], partitions: list[LogId]) -> Shares:
    """All subscribe to the same topics: each has a quota, and keeps what it has within it."""
    least, extras = divmod(len(partitions), len(subscribers))
    free = set(partitions)
    shares: dict[str, list[LogId]] = {}
    # Members that hold most come first: they keep one partition more than the least.
    for subscriber in sorted(subscribers, key=lambda w: (-len(w.held & free), w.member_id)):
        kept = sorted(subscriber.held & free)
        quota = least + 1 if extras > 0 and len(kept) > least else least
        shares[subscriber.member_id] = kept[:quota]
        extras -= quota > least
        free.difference_update(kept[:quota])
    left = sorted(free, reverse=True)
    for share in shares.values():
        while len(share) < least:
            share.append(left.pop())
    for share in shares.values():
        if left and len(share) == least:
            share.append(left.pop())
    assert not left
    return {member_id: frozenset(share) for member_id, share in shares.items()}


def _uniform_for_all(subscribers: Collection[Subscriber], counts: Mapping[UUID, int]) -> Shares:
    takers: dict[UUID, list[str]] = defaultdict(list)
    for subscriber in sorted(subscribers):
        for topic_id in subscriber.topics & counts.keys():
            takers[topic_id].append(subscriber.member_id)
    owners = _kept(subscribers, counts)
    loads = dict.fromkeys((subscriber.member_id for subscriber in subscribers), 0)
    for owner in owners.values():
        loads[owner] += 1
    # Topics with few subscribers come first: their members get less of the others.
    rarest = sorted(takers, key=lambda topic_id: (len(takers[topic_id]), topic_id))
    for topic_id in rarest:
        homeless = [p for p in _partitions([topic_id], counts) if p not in owners]
        _give(homeless, takers[topic_id], owners, loads)
    for _ in range(EVENING_PASSES_MAX):
        moved = [
            _even_out(topic_id, counts, takers[topic_id], owners, loads) for topic_id in rarest
        ]
        if not any(moved):
            break
    shares: dict[str, set[LogId]] = {member_id: set() for member_id in loads}
    for partition, owner in owners.items():
        shares[owner].add(partition)
    return {member_id: frozenset(share) for member_id, share in shares.items()}


def _kept(subscribers: Iterable[Subscriber], counts: Mapping[UUID, int]) -> dict[LogId, str]:
    """The partitions that can stay with their members."""
    owners: dict[LogId, str] = {}
    for subscriber in sorted(subscribers):
        for partition in subscriber.held:
            topic_id, index = partition
            if topic_id in subscriber.topics and index < counts.get(topic_id, 0):
                owners.setdefault(partition, subscriber.member_id)
    return owners


def _give(
    partitions: Iterable[LogId],
    takers: Iterable[str],
    owners: dict[LogId, str],
    loads: dict[str, int],
) -> None:
    """Assign each partition to the subscriber with the fewest at that moment."""
    least = [(loads[member_id], member_id) for member_id in takers]
    heapify(least)
    for partition in partitions:
        load, member_id = least[0]
        owners[partition] = member_id
        loads[member_id] = load + 1
        heapreplace(least, (load + 1, member_id))


def _even_out(
    topic_id: UUID,
    counts: Mapping[UUID, int],
    takers: Iterable[str],
    owners: dict[LogId, str],
    loads: dict[str, int],
) -> bool:
    """Move partitions of a topic to members with at least two fewer; return whether any
    moved."""
    least = [(loads[member_id], member_id) for member_id in takers]
    heapify(least)
    has_moved = False
    for partition in _partitions([topic_id], counts):
        while least[0][0] != loads[least[0][1]]:  # It gave something away in the meantime.
            heapreplace(least, (loads[least[0][1]], least[0][1]))
        load, member_id = least[0]
        owner = owners[partition]
        if loads[owner] < load + 2:
            continue
        owners[partition] = member_id
        loads[owner] -= 1
        loads[member_id] += 1
        heapreplace(least, (load + 1, member_id))
        has_moved = True
    return has_moved


def _partitions(topics: Iterable[UUID], counts: Mapping[UUID, int]) -> list[LogId]:
    return [LogId(topic, index) for topic in sorted(topics) for index in range(counts[topic])]
