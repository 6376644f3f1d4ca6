"""The members of a classic group by member id and instance id, their protocols and votes.

Owns the data; `membership` decides when it changes. Pure.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from typing import NewType

from msgspec import Struct

from millstream.errors.groups import FencedInstance, UnknownMember
from millstream.internal_topics.groups import MemberValue, Protocol

Ticket = NewType("Ticket", int)  # A request that waits for its answer.


class Member(Struct, kw_only=True):
    member_id: str
    instance_id: str | None  # Set for a static member: the name that outlives its process.
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[Protocol, ...]  # Best first.
    assignment: bytes = b""
    deadline_ms: int = 0  # When its session ends.
    is_new: bool = True  # It was in no generation yet.
    join: Ticket | None = None
    sync: Ticket | None = None

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    @property
    def expires(self) -> bool:
        """Whether silence counts: not while we owe it an answer.

        A new member does expire then. It may have given up and come back under another id.
        """
        return self.is_new or (self.join is None and self.sync is None)

    def metadata(self, protocol: str) -> bytes:
        return next((p.metadata for p in self.protocols if p.name == protocol), b"")

    def value(self) -> MemberValue:
        return MemberValue(
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            protocols=self.protocols,
            assignment=self.assignment,
        )


def restored(value: MemberValue) -> Member:
    """The member as it was stored."""
    return Member(
        member_id=value.member_id,
        instance_id=value.instance_id,
        client_id=value.client_id,
        client_host=value.client_host,
        session_timeout_ms=value.session_timeout_ms,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        protocols=value.protocols,
        assignment=value.assignment,
        is_new=False,
    )


class Roster:
    """The members in the order in which they joined."""

    def __init__(self) -> None:
        self._members: dict[str, Member] = {}
        self._instances: dict[str, Member] = {}
        self._speakers: Counter[str] = Counter()  # How many members speak a protocol.

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._members

    def add(self, member: Member) -> None:
        assert member.member_id not in self._members
        self._members[member.member_id] = member
        if member.instance_id is not None:
            assert member.instance_id not in self._instances
            self._instances[member.instance_id] = member
        self._speakers.update(_names(member))

    def remove(self, member: Member) -> None:
        del self._members[member.member_id]
        if member.instance_id is not None:
            del self._instances[member.instance_id]
        self._speakers.subtract(_names(member))

    def rename(self, member: Member, member_id: str) -> None:
        """Give a static member the id of its new process."""
        self.remove(member)
        member.member_id = member_id
        self.add(member)

    def teach(self, member: Member, protocols: tuple[Protocol, ...]) -> None:
        """Let the member offer other protocols."""
        self._speakers.subtract(_names(member))
        member.protocols = protocols
        self._speakers.update(_names(member))

    def static(self, instance_id: str | None) -> Member | None:
        return None if instance_id is None else self._instances.get(instance_id)

    def find(self, member_id: str, instance_id: str | None) -> Member:
        """The member with both ids; `FencedInstance` if another member is that instance."""
        if instance_id is not None:
            static = self._instances.get(instance_id)
            if static is None:
                raise UnknownMember(member_id)
            if static.member_id != member_id:
                raise FencedInstance(instance_id)
            return static
        member = self._members.get(member_id)
        if member is None:
            raise UnknownMember(member_id)
        return member

    def shares(self, protocols: Collection[Protocol], *, apart_from: Member | None) -> bool:
        """Whether every member except the asking one supports one of these protocols."""
        own = set() if apart_from is None else _names(apart_from)
        others = len(self._members) - (apart_from is not None)
        return any(
            self._speakers[protocol.name] - (protocol.name in own) == others
            for protocol in protocols
        )

    def vote(self) -> str:
        """The protocol with most votes among those that all members support."""
        assert self._members
        count = len(self._members)
        votes: Counter[str] = Counter()
        for member in self:
            votes[next(p.name for p in member.protocols if self._speakers[p.name] == count)] += 1
        # A tie goes to the first protocol voted for, so the outcome depends on the members alone.
        return max(votes, key=votes.__getitem__)

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of all members."""
        return max((member.rebalance_timeout_ms for member in self), default=0)


def _names(member: Member) -> set[str]:
    return {protocol.name for protocol in member.protocols}
