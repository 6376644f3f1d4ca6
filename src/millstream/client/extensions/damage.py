"""`client.damage`: lists records that the disk changed, and gives some of them up."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.client.extensions.requests import BrokerRequests

# Here and below imported late: the tables take a while, and few programs need them.
if TYPE_CHECKING:
    from millstream.kafka_wire.apis import millstream as own


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedRange:
    """Offsets from `base_offset` to before `end_offset` that are not what was written."""

    topic: str
    partition: int
    base_offset: int
    end_offset: int
    file: str
    position: int
    size: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedRange(DamagedRange):
    """A damaged range that an operator gave up; the file `kept_in` has its bytes."""

    time_ms: int
    kept_in: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedLog:
    topic: str
    partition: int
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrubbing:
    """How far the search for damage is; a time is -1 before its event."""

    bytes_per_second: int  # 0: it is turned off.
    started_ms: int
    last_full_pass_ms: int
    pass_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DamageReport:
    damaged: tuple[DamagedRange, ...]
    skipped: tuple[SkippedRange, ...]
    closed: tuple[ClosedLog, ...]
    scrubbing: Scrubbing


class Damage:
    def __init__(self, requests: BrokerRequests) -> None:
        self._requests = requests

    def list(self) -> DamageReport:
        """The damaged ranges, those that were given up, and how far the broker has searched."""
        from millstream.kafka_wire.apis import millstream as own

        answer = self._requests.call(
            own.ListDamageRequest(),
            own.ListDamageResponse,
            feature="damaged records",
            doing="list damaged records",
        )
        return DamageReport(
            damaged=tuple(
                DamagedRange(
                    topic=damaged.topic,
                    partition=damaged.partition,
                    base_offset=damaged.base_offset,
                    end_offset=damaged.end_offset,
                    file=damaged.file,
                    position=damaged.position,
                    size=damaged.size,
                    reason=damaged.reason,
                )
                for damaged in answer.damaged
            ),
            skipped=tuple(
                _skipped(skipped, skipped.topic, skipped.partition) for skipped in answer.skipped
            ),
            closed=tuple(
                ClosedLog(topic=log.topic, partition=log.partition, problem=log.problem)
                for log in answer.closed
            ),
            scrubbing=Scrubbing(
                bytes_per_second=answer.scrub_bytes_per_second,
                started_ms=answer.scrub_started_ms,
                last_full_pass_ms=answer.scrub_last_full_pass_ms,
                pass_bytes=answer.scrub_bytes,
            ),
        )

    def skip(self, topic: str, partition: int, offset: int) -> SkippedRange:
        """Give up the damaged records at `offset`, so that readers go on behind them."""
        from millstream.kafka_wire.apis import millstream as own

        answer = self._requests.call(
            own.SkipDamageRequest(topic=topic, partition=partition, offset=offset),
            own.SkipDamageResponse,
            feature="repairs",
            doing=f"repair {topic}/{partition} at offset {offset}",
        )
        return _skipped(answer, topic, partition)


def _skipped(
    skipped: "own.ListDamageResponse.Skipped | own.SkipDamageResponse", topic: str, partition: int
) -> SkippedRange:
    return SkippedRange(
        topic=topic,
        partition=partition,
        base_offset=skipped.base_offset,
        end_offset=skipped.end_offset,
        file=skipped.file,
        position=skipped.position,
        size=skipped.size,
        reason=skipped.reason,
        time_ms=skipped.time_ms,
        kept_in=skipped.kept_in,
    )
