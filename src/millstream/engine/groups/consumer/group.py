"""A consumer group (KIP-848): members subscribe by heartbeats, the broker assigns partitions.

Owns the epochs of one group, the target assignment of each member, and the deadlines;
`reconciliation` moves a member to its target. Pure: time and topics are passed in, and what is to
be saved stays in `changes` until `saved` is called.

Invariant: every change of members, subscriptions or topics starts a new group epoch; the next
heartbeat of any member recomputes the target assignment.
"""

from collections import Counter
from hashlib import blake2b

import msgspec

from millstream.engine.groups.consumer.assignors import ASSIGNORS, DEFAULT_ASSIGNOR, Subscriber
from millstream.engine.groups.consumer.members import Consumer, ConsumerRoster
from millstream.engine.groups.consumer.reconciliation import (
    AWAY,
    JOINING,
    LEAVING,
    Holding,
    advanced,
    restored,
)
from millstream.engine.groups.consumer.vocabulary import (
    Beat,
    Beaten,
    ConsumerRules,
    ConsumersState,
    World,
)
from millstream.errors.groups import (
    FencedMember,
    GroupFull,
    StaleMemberEpoch,
    UnreleasedInstance,
    UnsupportedAssignor,
)
from millstream.internal_topics.consumer_groups import (
    ConsumerKey,
    ConsumersKey,
    ConsumersValue,
    ConsumerValue,
    HoldingState,
    StoredConsumers,
    SubscriptionValue,
    unlisted,
)
from millstream.model import LogId

CROWD_MIN = 100  # Members from which on shares are worked out only now and then.

_HASH_BYTES = 16


class ConsumerGroup:
    def __init__(self, group_id: str, rules: ConsumerRules) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.target_epoch = 0
        self.assignor = DEFAULT_ASSIGNOR
        self.members = ConsumerRoster(group_id)
        self.wake_ms: int | None = None  # When time must pass next; never later than needed.
        self.rules = rules
        self._topics_hash = b""
        self._shared_ms: int | None = None  # When shares were last worked out, in this life.
        self._seen_version: int | None = None  # The world that `_topics_hash` is of.
        self._must_save = False

    @classmethod
    def restore(
        cls, group_id: str, stored: StoredConsumers, rules: ConsumerRules, *, now_ms: int
    ) -> "ConsumerGroup":
        """The group as last saved. Every member gets a whole session to send a heartbeat."""
        assert stored.value is not None
        group = cls(group_id, rules)
        group.epoch, group.target_epoch = stored.value.epoch, stored.value.target_epoch
        group.assignor = stored.value.assignor
        group._topics_hash = stored.value.topics_hash
        for member_id, subscription in stored.subscriptions.items():
            target, holding = stored.targets.get(member_id), stored.holdings.get(member_id)
            member = Consumer(
                member_id=member_id,
                subscription=subscription,
                holding=Holding(),
                target=frozenset() if target is None else unlisted(target.shares),
            )
            group.members.add(member)
            if holding is not None:
                group._hold(member, restored(holding), now_ms)
            group._renew(member, now_ms)
        group.saved()
        return group

    @property
    def state(self) -> ConsumersState:
        if not self.members:
            return ConsumersState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumersState.ASSIGNING
        if all(member.holding.is_at(self.target_epoch) for member in self.members):
            return ConsumersState.STABLE
        return ConsumersState.RECONCILING

    @property
    def topics(self) -> frozenset[str]:
        """The topics that any member subscribes to."""
        return frozenset().union(*(member.subscription.topics for member in self.members))

    # -- what members ask ------------------------------------------------------------------------

    def beat(self, request: Beat, world: World, now_ms: int) -> Beaten:
        """Process the heartbeat of a new or known member; return its answer."""
        if request.assignor is not None and request.assignor not in ASSIGNORS:
            raise UnsupportedAssignor(f"{request.assignor!r}, there are {', '.join(ASSIGNORS)}")
        matched = self._matched(request, world)
        member = self._join(request) if request.epoch == JOINING else self._known(request)
        self._subscribe(member, request, matched, world.version)
        if self._is_due(now_ms):
            self._look_around(world)
            if self.epoch > self.target_epoch:
                self._share_out(world, now_ms)
        before = member.holding
        following = advanced(
            before,
            target=member.target,
            target_epoch=self.target_epoch,
            owned=request.owned,
            is_free=lambda partition: self.members.is_free(partition, member.member_id),
        )
        self._hold(member, following, now_ms)
        self._renew(member, now_ms)
        is_news = before.assigned.keys() != following.assigned.keys()
        # A member with other partitions may have missed the answer with its assignment.
        is_astray = request.owned is not None and request.owned != following.assigned.keys()
        is_told = is_news or is_astray or request.is_full or request.epoch != before.epoch
        return Beaten(
            member_id=member.member_id,
            epoch=following.epoch,
            heartbeat_interval_ms=self.rules.heartbeat_interval_ms,
            assignment=frozenset(following.assigned) if is_told else None,
        )

    def leave(self, request: Beat, now_ms: int) -> Beaten:
        """Remove a member; a static one may announce that it will return."""
        assert request.epoch in {LEAVING, AWAY}
        member = self.members.find(request.member_id, request.instance_id)
        if request.epoch == AWAY:
            self._hold(member, member.holding.away(), now_ms)
            self._renew(member, now_ms)
        else:
            self._remove(member)
        return Beaten(member_id=member.member_id, epoch=request.epoch, heartbeat_interval_ms=0)

    def check_member(self, member_id: str, epoch: int) -> None:
        """Raise unless the member exists and is at that epoch."""
        current = self.members.find(member_id).holding.epoch
        if epoch != current:
            raise StaleMemberEpoch(f"the member is at epoch {current}, not {epoch}")

    def check_commit(self, member_id: str, epoch: int, partition: LogId) -> None:
        """Raise unless the member may commit an offset of this partition.

        It may speak of an older epoch, if it has had the partition since then: it moves on while a
        commit of its is under way.
        """
        if epoch < 0 and not self.members:
            return  # A consumer that assigns partitions itself, or an administrator.
        holding = self.members.find(member_id).holding
        since_epoch = holding.assigned.get(partition)
        is_old_holder = since_epoch is not None and since_epoch <= epoch < holding.epoch
        if epoch != holding.epoch and not is_old_holder:
            raise StaleMemberEpoch(f"the member is at epoch {holding.epoch}, not {epoch}")

    # -- calls of the owner ----------------------------------------------------------------------

    def tick(self, now_ms: int) -> list[str]:
        """Remove and return members that were silent, or did not revoke partitions in time.

        The next call is due at `wake_ms`.
        """
        gone = [member for member in self.members if member.wake_ms <= now_ms]
        for member in gone:
            self._remove(member)
        self.wake_ms = min((member.wake_ms for member in self.members), default=None)
        return [member.member_id for member in gone]

    def changes(self, changed_ms: int) -> list[tuple[ConsumerKey, ConsumerValue | None]]:
        """The values to write, by key; None deletes a key."""
        changes = self.members.changes()
        if self._must_save:
            value = ConsumersValue(
                epoch=self.epoch,
                target_epoch=self.target_epoch,
                assignor=self.assignor,
                topics_hash=self._topics_hash,
                changed_ms=changed_ms,
            )
            changes.append((ConsumersKey(self.group_id), value))
        return changes

    def saved(self) -> None:
        self.members.unsaved.clear()
        self._must_save = False

    # -- members come and go ---------------------------------------------------------------------

    def _join(self, request: Beat) -> Consumer:
        known = self.members.get(request.member_id)
        static = self.members.static(request.instance_id)
        if static is not None and static is not known:
            if static.holding.epoch != AWAY:
                raise UnreleasedInstance(f"{request.instance_id!r} is {static.member_id!r}")
            return self._replace(static, request.member_id)
        if known is not None and known.subscription.instance_id == request.instance_id:
            self.members.set_holding(known, known.holding.rejoined())
            return known
        if known is not None:
            self._remove(known)
        if len(self.members) >= self.rules.members_max:
            raise GroupFull(self.rules.members_max)
        member = Consumer(
            member_id=request.member_id, subscription=_newcomer(request), holding=Holding()
        )
        self.members.add(member)
        self._begin_epoch()
        return member

    def _replace(self, away: Consumer, member_id: str) -> Consumer:
        """A static member returns in another process and gets its assignment back."""
        holding = away.holding.rejoined()
        self.members.remove(away)
        member = Consumer(
            member_id=member_id,
            subscription=away.subscription,
            holding=Holding(),
            target=away.target,
        )
        self.members.add(member)
        self.members.set_holding(member, holding)
        return member

    def _known(self, request: Beat) -> Consumer:
        member = self.members.find(request.member_id, request.instance_id)
        holding = member.holding
        if request.epoch == holding.epoch:
            return member
        # The answer with its epoch may have been lost.
        is_late = request.epoch == holding.previous_epoch and request.epoch < holding.epoch
        if not is_late or request.owned is None or not request.owned <= set(holding.partitions):
            raise FencedMember(f"the member is at epoch {holding.epoch}, not {request.epoch}")
        return member

    def _remove(self, member: Consumer) -> None:
        self.members.remove(member)
        self._begin_epoch()

    def _renew(self, member: Consumer, now_ms: int) -> None:
        member.deadline_ms = now_ms + self.rules.session_timeout_ms
        if self.wake_ms is None or member.wake_ms < self.wake_ms:
            self.wake_ms = member.wake_ms

    # -- what they want --------------------------------------------------------------------------

    def _matched(self, request: Beat, world: World) -> tuple[str, ...] | None:
        """The topics that the member's pattern matches; None if that was looked up before.

        Before anything is changed, because a pattern can be refused.
        """
        member = self.members.get(request.member_id)
        was = "" if member is None else member.subscription.pattern
        pattern = was if request.pattern is None else request.pattern
        if request.epoch == JOINING:
            pattern = request.pattern or ""
        if member is not None and pattern == was and member.matched_version == world.version:
            return None
        return world.matching(pattern) if pattern else ()

    def _subscribe(
        self, member: Consumer, request: Beat, matched: tuple[str, ...] | None, version: int
    ) -> None:
        was = member.subscription
        said = {
            "client_id": request.client_id,
            "client_host": request.client_host,
            "rack_id": request.rack_id,
            "rebalance_timeout_ms": request.rebalance_timeout_ms,
            "names": request.names,
            "pattern": request.pattern,
            "matched": matched,
            "assignor": request.assignor,
        }
        if request.epoch == JOINING:  # It begins anew, so what it does not say is not so.
            said |= {"names": request.names or (), "pattern": request.pattern or ""}
        changed = {name: value for name, value in said.items() if value is not None}
        now = msgspec.structs.replace(was, **changed)
        member.matched_version = version
        if now == was:
            return
        self.members.set_subscription(member, now)
        if now.topics != was.topics or now.assignor != was.assignor:
            self._begin_epoch()

    def _look_around(self, world: World) -> None:
        """Start an epoch if the subscribed topics have changed."""
        if self._seen_version == world.version and self.epoch == self.target_epoch:
            return
        digest = blake2b(digest_size=_HASH_BYTES)
        for name in sorted(self.topics):
            digest.update(f"{name} {world.find(name)}\n".encode())
        self._seen_version = world.version
        if digest.digest() != self._topics_hash:
            self._topics_hash = digest.digest()
            self._begin_epoch()

    def _begin_epoch(self) -> None:
        """Start a group epoch, unless the current one has no target assignment yet."""
        if self.epoch == self.target_epoch:
            self.epoch += 1
        self._must_save = True

    # -- what they get ---------------------------------------------------------------------------

    def _is_due(self, now_ms: int) -> bool:
        """Whether targets may be recomputed, which takes longer the more members there are.

        Otherwise members that join within the same second would each cause a recomputation.
        """
        if self._shared_ms is None or len(self.members) < CROWD_MIN:
            return True
        return now_ms - self._shared_ms >= len(self.members)

    def _share_out(self, world: World, now_ms: int) -> None:
        topics_by_name = {name: world.find(name) for name in self.topics}
        counts = dict(topic for topic in topics_by_name.values() if topic is not None)
        subscribers = []
        for member in self.members:
            topics = (topics_by_name[name] for name in member.subscription.topics)
            topic_ids = frozenset(topic[0] for topic in topics if topic is not None)
            instance_id = member.subscription.instance_id
            subscribers.append(Subscriber(member.member_id, topic_ids, member.target, instance_id))
        self.assignor = self._preferred_assignor()
        shares = ASSIGNORS[self.assignor](subscribers, counts)
        for member in self.members:
            self.members.set_target(member, shares[member.member_id])
        self.target_epoch = self.epoch
        self._shared_ms = now_ms
        self._must_save = True

    def _preferred_assignor(self) -> str:
        assignors = [member.subscription.assignor for member in self.members]
        votes = Counter(sorted(assignor for assignor in assignors if assignor is not None))
        return max(votes, key=votes.__getitem__, default=DEFAULT_ASSIGNOR)

    def _hold(self, member: Consumer, holding: Holding, now_ms: int) -> None:
        before = member.holding
        self.members.set_holding(member, holding)
        if holding.state is not HoldingState.UNREVOKED:
            member.revoke_deadline_ms = None
        elif holding.revoking != before.revoking:
            member.revoke_deadline_ms = now_ms + member.subscription.rebalance_timeout_ms


def _newcomer(request: Beat) -> SubscriptionValue:
    """A member of which only its ids are known."""
    return SubscriptionValue(
        instance_id=request.instance_id,
        rack_id=None,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=0,
        names=(),
        pattern="",
        matched=(),
        assignor=None,
    )
