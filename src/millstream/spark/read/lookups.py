"""Resolves positions to offsets: `earliest`, a time, or the committed offset of a group.

Owns the requests that the driver sends to a broker before records are read.
"""

import time
from collections.abc import Callable, Container, Mapping
from typing import TypeVar, assert_never

from millstream.kafka_client.cluster import Cluster, cluster_for
from millstream.kafka_client.coordinator import committed
from millstream.kafka_client.errors import UnknownPartition, Unreachable
from millstream.model import TopicPartition
from millstream.spark.errors import InvalidOption
from millstream.spark.options.places import (
    EARLIEST,
    LATEST,
    Assigned,
    AtTime,
    AtTimes,
    Committed,
    Everywhere,
    Pattern,
    Place,
    Specific,
    Topics,
)
from millstream.spark.options.source import SourceOptions
from millstream.spark.options.subjects import Subjects
from millstream.spark.read.offset_ranges import Offsets, TopicIds, to_json
from millstream.spark.read.views import without_views

METADATA_TTL_MS_MIN = 200  # A stream that waits for records asks more often than topics change.

_T = TypeVar("_T")


class Positions:
    """Looks up offsets for one query, on the driver."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._cached: list[TopicPartition] = []
        self._topic_ids: TopicIds = {}
        self._cached_until = 0.0

    @property
    def cluster(self) -> Cluster:
        return cluster_for(self._options.client)

    def partitions(self) -> list[TopicPartition]:
        """The partitions that the query reads, as of now or of the last look within the TTL."""
        if time.monotonic() < self._cached_until:
            return self._cached
        self._cached = self._retrying(self._find_partitions)
        self._topic_ids = self.cluster.last_topic_ids(target.topic for target in self._cached)
        ttl_ms = max(self._options.metadata_ttl_ms, METADATA_TTL_MS_MIN)
        self._cached_until = time.monotonic() + ttl_ms / 1000
        return self._cached

    def topic_ids(self) -> TopicIds:
        """The ids of the topics that the query reads, as of when `partitions` last looked."""
        self.partitions()
        return self._topic_ids

    def look_again(self) -> None:
        """Make `partitions` ask the next time, before its TTL is over."""
        self._cached_until = 0.0

    def is_current(self, topic_ids: TopicIds) -> bool:
        """Whether none of these topics was created anew by now; if so, all is looked at again.

        Asked after offsets were looked up: then they are those of the topics with these ids.
        """
        now = self._retrying(lambda: self.cluster.topic_ids(topic_ids))
        if now != topic_ids:
            self.look_again()
        return now == topic_ids

    def missing(self, targets: list[TopicPartition]) -> list[str]:
        """The topics or partitions that the options name and the cluster does not have."""
        match self._options.subscription:
            case Topics(names):
                return sorted(set(names) - {target.topic for target in targets})
            case Assigned(partitions):
                return [str(target) for target in sorted(set(partitions) - set(targets))]
            case Pattern() | Subjects():
                return []
            case other:
                assert_never(other)

    def require(self) -> list[TopicPartition]:
        """The partitions; raises `UnknownPartition` if one that was named does not exist."""
        targets = self.partitions()
        missing = self.missing(targets)
        if missing:
            raise UnknownPartition(
                f"{', '.join(missing)}; create the topic (millstream topic create NAME), or mend "
                "the option that names it"
            )
        return targets

    def latest(self, targets: list[TopicPartition]) -> Offsets:
        return self._retrying(lambda: self.cluster.offsets(dict.fromkeys(targets, LATEST)))

    def earliest(self, targets: list[TopicPartition]) -> Offsets:
        return self._retrying(lambda: self.cluster.offsets(dict.fromkeys(targets, EARLIEST)))

    def ends(self, starts: Offsets, only: Container[TopicPartition] | None) -> Offsets:
        """The latest offsets of what the query reads, asked for again where they seem to go back.

        A partition that goes while it is asked for is left out. `only` narrows the partitions.
        """
        for attempt in range(self._options.lookup_tries):
            if attempt:
                time.sleep(self._options.lookup_interval_ms / 1000)
            targets = [t for t in self.partitions() if only is None or t in only]
            try:
                ends = self.latest(targets)
            except UnknownPartition:
                self.look_again()
                ends = self.latest([t for t in targets if t in set(self.partitions())])
            if all(ends[target] >= starts.get(target, 0) for target in ends):
                break
        return ends

    def starting(self, targets: list[TopicPartition]) -> Offsets:
        without_match = LATEST if self._options.is_latest_without_match else None
        return self._resolve(self._options.starting, targets, without_match, "starting")

    def ending(self, targets: list[TopicPartition]) -> Offsets:
        return self._resolve(self._options.ending, targets, LATEST, "ending")

    # -- parts -------------------------------------------------------------------------------------

    def _find_partitions(self) -> list[TopicPartition]:
        match self._options.subscription:
            case Topics(names):
                return self.cluster.partitions(names)
            case Pattern() as pattern:
                names = tuple(name for name in self.cluster.topics() if pattern.matches(name))
                return self.cluster.partitions(names)
            case Subjects() as subjects:
                names = tuple(name for name in self.cluster.topics() if subjects.may_be_in(name))
                return self.cluster.partitions(without_views(self.cluster, names))
            case Assigned(partitions):
                known = set(self.cluster.partitions({target.topic for target in partitions}))
                return [target for target in partitions if target in known]
            case other:
                assert_never(other)

    def _resolve(
        self, place: Place, targets: list[TopicPartition], without_match: int | None, which: str
    ) -> Offsets:
        match place:
            case Everywhere(offset):
                offsets_by_target = dict.fromkeys(targets, offset)
            case Specific(offsets):
                _check_complete(offsets, targets, f"{which}Offsets")
                offsets_by_target = {target: offsets[target] for target in targets}
            case Committed(fallback):
                return self._committed(targets, fallback)
            case AtTime(timestamp_ms):
                return self._at(dict.fromkeys(targets, timestamp_ms), without_match)
            case AtTimes(timestamps_ms):
                _check_complete(timestamps_ms, targets, f"{which}OffsetsByTimestamp")
                return self._at(timestamps_ms, without_match)
            case other:
                assert_never(other)
        named = {target: offset for target, offset in offsets_by_target.items() if offset < 0}
        return {**offsets_by_target, **self._retrying(lambda: self.cluster.offsets(named))}

    def _committed(self, targets: list[TopicPartition], fallback: int) -> Offsets:
        known = committed(self.cluster, self._options.group, targets)
        without = {target: fallback for target in targets if target not in known}
        return {**known, **self._retrying(lambda: self.cluster.offsets(without))}

    def _at(self, times: Mapping[TopicPartition, int], without_match: int | None) -> Offsets:
        offsets = self._retrying(lambda: self.cluster.offsets(times))
        late = [target for target, offset in offsets.items() if offset < 0]
        if late and without_match is None:
            raise InvalidOption(
                f"{late[0]} has no record at or after {times[late[0]]} ms; set "
                "startingOffsetsByTimestampStrategy to latest to start at its end then"
            )
        return {**offsets, **self.latest(late)}

    def _retrying(self, ask: Callable[[], _T]) -> _T:
        for _ in range(self._options.lookup_tries - 1):
            try:
                return ask()
            except Unreachable:
                time.sleep(self._options.lookup_interval_ms / 1000)
        return ask()


def _check_complete(
    named: Mapping[TopicPartition, int], targets: list[TopicPartition], option: str
) -> None:
    if set(named) != set(targets):
        raise InvalidOption(
            f"{option} must name all partitions that are read, and no others: it names "
            f"{to_json(named)}, read are {sorted(map(str, targets))}"
        )
