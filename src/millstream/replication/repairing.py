"""Replaces damaged records of one replica by those of another one, or gives them up on request.

Owns the order of steps: find the damage, seal its segment, rewrite it on a thread, put it in place,
wait until that is durable. The rewriting is `storage.repair`'s.
"""

import logging
import shlex
from collections.abc import Sequence
from functools import partial

from millstream.codec.batch import Header, verify_batches
from millstream.errors import (
    CorruptBatch,
    InvalidBatch,
    InvalidRequest,
    Overloaded,
    StorageError,
    StorageUnavailable,
)
from millstream.model import CONTROL_LOG, LogId, Offset
from millstream.names import CONTROL_LOG_NAME
from millstream.ports import Files, Ports
from millstream.replication.group_commit import GroupCommit
from millstream.replication.opening import log_directory
from millstream.replication.replica import Replica
from millstream.storage.log.repair import Repair, Skipped, Sound, damage_at, read_skipped
from millstream.storage.log.segment import Segment
from millstream.storage.log.verifying import BadRange

_log = logging.getLogger(__name__)


def log_name(log_id: LogId) -> str:
    """What an operator calls the log before the names of topics are known."""
    return CONTROL_LOG_NAME if log_id == CONTROL_LOG else str(log_id)


def report_damage(topic: str, partition: int, bad: BadRange) -> None:
    """Name damage in the node's log, with what an operator can do."""
    _log.error(
        "damaged records topic=%s partition=%s offsets=%d..%d file=%s position=%d bytes=%d "
        "reason=%r: restore the file from a backup, or give these records up with: "
        "millstream repair --skip %s",
        topic,
        partition,
        bad.base_offset,
        bad.end_offset - 1,
        bad.path,
        bad.position,
        bad.size,
        bad.reason,
        shlex.quote(f"{topic}/{partition}@{bad.base_offset}"),
    )


def read_all_skipped(files: Files, logs: Sequence[LogId]) -> list[tuple[LogId, Skipped]]:
    """Blocks. All damaged records of these logs that were given up."""
    return [
        (log_id, skipped)
        for log_id in logs
        for skipped in read_skipped(files, log_directory(log_id))
    ]


async def skip_damage(
    replica: Replica, offset: Offset, *, commits: GroupCommit, ports: Ports
) -> Skipped:
    """Give up the damage at `offset`, so that readers go on behind it; `InvalidRequest` if there is
    none."""
    log = replica.log
    if not log.start_offset <= offset < log.end_offset:
        raise InvalidRequest(
            f"offset {offset} is not in the log, which has {log.start_offset} to "
            f"{log.end_offset - 1}"
        )
    skipped = await _rewrite(replica, offset, None, commits, ports)
    _log.warning(
        "gave up damaged records log=%s offsets=%d..%d file=%s position=%d bytes=%d kept_in=%s",
        replica.id,
        skipped.base_offset,
        skipped.end_offset - 1,
        skipped.file,
        skipped.position,
        skipped.size,
        skipped.kept_in,
    )
    return skipped


async def replace_damage(
    replica: Replica, bad: BadRange, data: bytes, *, commits: GroupCommit, ports: Ports
) -> None:
    """Put sound batches of another replica in the place of damage; `InvalidRequest` if they are
    not those that were there."""
    headers = await ports.threads.run(partial(_verified, data, bad))
    for header in headers:
        epoch = replica.consensus_log.epoch_at(header.base_offset)
        if header.epoch != epoch:
            raise InvalidRequest(
                f"the batch at offset {header.base_offset} is of epoch {header.epoch}, and here "
                f"of epoch {epoch}"
            )
    sealer = replica.log.sealer
    sound: Sound = ([data], headers)
    await _rewrite(
        replica,
        bad.base_offset,
        sound if sealer is None else sealer.seal(*sound),
        commits,
        ports,
    )


def _verified(data: bytes, bad: BadRange) -> list[Header]:
    """The headers of batches that fill the place of the damage. Blocks."""
    try:
        headers = verify_batches(data)
    except (CorruptBatch, InvalidBatch) as problem:
        raise InvalidRequest(f"another replica sent a damaged batch: {problem}") from None
    offset = bad.base_offset
    for header in headers:
        if header.base_offset < offset:
            break
        offset = header.end_offset
    if not headers or offset != bad.end_offset or headers[-1].end_offset != offset:
        raise InvalidRequest(
            f"the other replica has other batches from {bad.base_offset} to {bad.end_offset - 1}"
        )
    return headers


async def _rewrite(
    replica: Replica, offset: Offset, sound: Sound | None, commits: GroupCommit, ports: Ports
) -> Skipped:
    """Replace the segment that has the damage at `offset`; return when that is durable."""
    log = replica.log
    try:
        segment = await _sealed_segment(replica, offset, commits, ports)
        bad = damage_at(segment.damage, offset)
        assert bad is not None
        repair = Repair(
            ports.files,
            segment,
            log.contents(segment),
            bad,
            epoch=replica.consensus_log.epoch_at(bad.base_offset) or 0,
            now_ms=ports.clock.now_ms(),
            interval_bytes=log.settings.index_interval_bytes,
            sound=sound,
        )
        new = await ports.threads.run(repair.run)
        await ports.threads.run(log.begin_replace([segment]))
        if not log.replace([segment], new):
            raise Overloaded(f"{segment.path} was compacted meanwhile: repair again")
        await commits.synced(replica)
    except (OSError, StorageError) as problem:
        raise StorageUnavailable(str(problem)) from problem
    return repair.skipped


async def _sealed_segment(
    replica: Replica, offset: Offset, commits: GroupCommit, ports: Ports
) -> Segment:
    """The segment that holds `offset`, verified there and sealed."""
    log = replica.log
    segment = log.segment_at(offset)
    work = log.verification(segment)
    if work is not None:
        await ports.threads.run(work.run)
        work.finish()
    if damage_at(segment.damage, offset) is None:
        raise InvalidRequest(f"the batch at offset {offset} is sound: nothing to repair")
    if segment is log.active:
        log.roll()
        commits.include(replica)
        await commits.synced(replica)
    if segment not in log.sealed():
        raise Overloaded(f"{segment.path} is being sealed: repair again in a moment")
    return segment
