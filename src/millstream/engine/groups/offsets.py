"""Rules of committed offsets: which may be committed, how they are written, which are visible.

Used by `service`, which checks access and writes to the log. Every partition has its own outcome;
only an error of the commit as a whole is raised.
"""

from collections.abc import Iterable, Mapping

from millstream.config import Limits
from millstream.control.catalog import Catalog, Topic
from millstream.engine.gate import Gate, Operation, topic_resource
from millstream.engine.groups.consumer.group import ConsumerGroup
from millstream.engine.groups.entries import offset_entry
from millstream.engine.groups.views import NOT_COMMITTED, Commit, Committed
from millstream.engine.ledgers.ledger import Entry
from millstream.errors import Denied, Overloaded, RequestError, UnknownTopic
from millstream.errors.groups import OffsetMetadataTooLarge, StaleMemberEpoch, UnstableOffset
from millstream.internal_topics.groups import StoredGroup, check_text
from millstream.model import LogId, Session, TopicPartition
from millstream.ports import Clock

Outcomes = Mapping[TopicPartition, RequestError | None]


class OffsetRules:
    def __init__(self, gate: Gate, catalog: Catalog, *, limits: Limits, clock: Clock) -> None:
        self._gate = gate
        self._catalog = catalog
        self._limits = limits
        self._clock = clock

    # -- committing ------------------------------------------------------------------------------

    def check(
        self, session: Session, group_id: str, commits: Mapping[TopicPartition, Commit]
    ) -> Outcomes:
        """The refusal of each partition, or None."""
        if len(commits) > self._limits.commit_offsets_max:
            raise Overloaded(f"more than {self._limits.commit_offsets_max} offsets in a commit")
        check_text(group_id, *(commit.metadata for commit in commits.values()))
        return {target: self._refusal(session, target, commits[target]) for target in commits}

    def check_epochs(
        self, consumers: ConsumerGroup, outcomes: Outcomes, *, member_id: str, epoch: int
    ) -> Outcomes:
        """The same, and whether the member of a consumer group may commit each of them."""
        checked = dict(outcomes)
        for target in (target for target, problem in outcomes.items() if problem is None):
            # Not the topic's `log`: two views of one base are two topics to a group.
            partition = LogId(self._catalog.find(target.topic).topic_id, target.partition)
            try:
                consumers.check_commit(member_id, epoch, partition)
            except StaleMemberEpoch as stale:
                checked[target] = stale
        return checked

    def entries(
        self, group_id: str, commits: Mapping[TopicPartition, Commit], outcomes: Outcomes
    ) -> list[Entry]:
        """Entries for the partitions that were not refused."""
        now_ms = self._clock.now_ms()
        return [
            offset_entry(
                group_id,
                target,
                commit,
                topic_id=self._catalog.find(target.topic).topic_id,
                now_ms=now_ms,
            )
            for target, commit in commits.items()
            if outcomes[target] is None
        ]

    def denied(self, session: Session, operation: Operation, topic: str) -> Denied | None:
        try:
            self._gate.admit(session, operation, topic_resource(topic))
        except Denied as denied:
            return denied
        return None

    def _refusal(
        self, session: Session, target: TopicPartition, commit: Commit
    ) -> RequestError | None:
        denied = self.denied(session, Operation.READ, target.topic)
        if denied is not None:
            return denied
        try:
            self._catalog.find(target.topic).log(target.partition)
        except UnknownTopic as problem:
            return problem
        length_max = self._limits.offset_metadata_length_max
        if len(commit.metadata) > length_max:
            return OffsetMetadataTooLarge(len(commit.metadata), length_max)
        # A negative offset is kept as it is: kafkajs commits -2 for "from the start".
        return None

    # -- telling ---------------------------------------------------------------------------------

    def committed(self, stored: StoredGroup) -> Mapping[TopicPartition, Committed]:
        """Committed offsets, without those of a topic that was deleted and created again."""
        return {
            target: Committed(value.offset, value.metadata, value.leader_epoch, value.committed_ms)
            for target, value in stored.offsets.items()
            if (topic := self._topic(target.topic)) is None or topic.topic_id == value.topic_id
        }

    def visible(
        self,
        session: Session,
        stored: StoredGroup,
        targets: Iterable[TopicPartition] | None,
        *,
        must_be_stable: bool,
    ) -> Mapping[TopicPartition, Committed | RequestError]:
        """Committed offsets of `targets` as the session may see them; None: of all partitions."""
        outcomes: dict[TopicPartition, Committed | RequestError] = {**self.committed(stored)}
        if must_be_stable:
            outcomes |= {target: UnstableOffset(target) for target in stored.pending}
        if targets is None:
            return {
                target: outcome
                for target, outcome in outcomes.items()
                if self._gate.sees(session, topic_resource(target.topic))
            }
        return {
            target: self.denied(session, Operation.DESCRIBE, target.topic)
            or outcomes.get(target, NOT_COMMITTED)
            for target in targets
        }

    def _topic(self, name: str) -> Topic | None:
        try:
            return self._catalog.find(name)
        except UnknownTopic:
            return None
