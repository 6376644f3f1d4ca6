"""Looks up the topics of a pipeline on the brokers, before Spark starts and without it.

Waits shortly: a wrong address or name is reported at once, not after a minute.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Self

from millstream.kafka_client import coordinator
from millstream.kafka_client.cluster import Cluster
from millstream.kafka_client.errors import Unreachable
from millstream.model import TopicPartition
from millstream.spark.options.kafka import client_settings, nearest
from millstream.spark.options.places import LATEST
from millstream.spark.pipelines.failures import InvalidPipeline

PATIENCE_MS = 5_000


class Topics:
    """The topics at this address. A context manager: it closes its connections."""

    def __init__(self, bootstrap: str, client_options: Mapping[str, str]) -> None:
        options = {name.lower(): text for name, text in client_options.items()}
        options["kafka.bootstrap.servers"] = bootstrap
        options.setdefault("kafka.default.api.timeout.ms", str(PATIENCE_MS))
        self._bootstrap = bootstrap
        self._cluster = Cluster(client_settings(options, client_id="millstream-pipeline"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.forget()

    def names(self) -> list[str]:
        try:
            return self._cluster.topics()
        except Unreachable as problem:
            raise InvalidPipeline(
                f"no broker answers at {self._bootstrap}: start one with `millstream serve`, or "
                f"say where it is with --bootstrap ({problem.__cause__})"
            ) from None

    def require(self, flows: Iterable[tuple[Sequence[str], Sequence[str]]]) -> None:
        """Raise unless each flow's topics are there, or written by some flow of the pipeline."""
        flows = list(flows)
        known = set(self.names())
        written = {topic for _, writes in flows for topic in writes}
        for reads, _ in flows:
            for topic in reads:
                if topic not in known | written:
                    meant = nearest(topic, sorted(known)) if known else "there are no topics at all"
                    raise InvalidPipeline(
                        f"there is no topic {topic} at {self._bootstrap}; {meant}"
                    )

    def create(self, topics: Iterable[str]) -> None:
        """Let brokers create what is missing, so that a flow can read what another writes."""
        for topic in sorted(set(topics) - set(self.names())):
            self._cluster.partition_count(topic)

    def ends(self, topics: Iterable[str]) -> dict[str, dict[str, int]]:
        """The end offsets of those topics that exist."""
        targets = self._cluster.partitions(set(topics) & set(self.names()))
        return _by_topic(self._cluster.offsets(dict.fromkeys(targets, LATEST)))

    def committed(self, group: str, topics: Iterable[str]) -> dict[str, dict[str, int]]:
        targets = self._cluster.partitions(set(topics) & set(self.names()))
        return _by_topic(coordinator.committed(self._cluster, group, targets))


def _by_topic(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    by_topic: dict[str, dict[str, int]] = {}
    for target, offset in sorted(offsets.items()):
        by_topic.setdefault(target.topic, {})[str(target.partition)] = offset
    return by_topic
