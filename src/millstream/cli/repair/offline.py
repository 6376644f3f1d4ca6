"""Repairs a log of a node that is stopped: opens its data directory as a start would.

Owns the steps; the rewriting is `storage.repair`'s.
"""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

import msgspec

from millstream.cli.inspection import is_data_directory, topic_ids
from millstream.cli.render import Refused
from millstream.cli.repair.data_keys import open_data_keys
from millstream.config import Limits
from millstream.model import Boundary, LogId, NodeId
from millstream.ports import Files
from millstream.settings import TopicSettings
from millstream.storage.files.directory import LOGS, META, DataDirectory, open_directory
from millstream.storage.files.disk import DiskFiles
from millstream.storage.journal.journal import open_journal
from millstream.storage.log.cache import LogCache
from millstream.storage.log.log import Log
from millstream.storage.log.recovery import open_log
from millstream.storage.log.repair import Repair, damage_at
from millstream.storage.log.verifying import epoch_in_force
from millstream.storage.sealing.batches import Sealer


def skip_offline(
    path: Path, topic: str, partition: int, offset: int, key_reference: str = ""
) -> dict[str, object]:
    """Give up the damaged records at `offset` in the data directory of a stopped node."""
    if not is_data_directory(path):
        raise Refused(f"{path} is not a data directory: pass the data_dir of a node")
    keys = open_data_keys(path, key_reference)
    keys.require()
    topic_id = topic_ids(path, keys).get(topic)
    if topic_id is None:
        raise Refused(f"{path} has no topic {topic!r}; see: millstream inspect {path}")
    log_id = LogId(topic_id, partition)
    if not (path / LOGS / str(log_id)).is_dir():
        raise Refused(f"{path} has no partition {partition} of {topic!r}")
    node_id = NodeId(json.loads((path / META).read_bytes())["node_id"])
    sealer = keys.sealer(log_id)
    return skip_in(
        DiskFiles(path), str(path), log_id, topic, offset, node_id=node_id, sealer=sealer
    )


def skip_in(
    files: Files,
    path: str,
    log_id: LogId,
    topic: str,
    offset: int,
    *,
    node_id: NodeId,
    sealer: Sealer | None = None,
) -> dict[str, object]:
    """Do the same in the data directory that is the root of `files`; messages call it `path`."""
    directory = open_directory(files, path, node_id=node_id, entropy=Random())
    try:
        return _skip(directory, log_id, topic, offset, sealer)
    finally:
        if directory.was_clean:
            directory.mark_clean()  # The log was closed in order, or is as it was.
        directory.close()


def _skip(
    directory: DataDirectory, log_id: LogId, topic: str, offset: int, sealer: Sealer | None
) -> dict[str, object]:
    files, was_clean, limits = directory.files, directory.was_clean, Limits()
    journal = open_journal(files, bytes_max=limits.journal_bytes_max, was_clean=was_clean)
    state = journal.state(log_id)
    log = open_log(
        files,
        f"{LOGS}/{log_id}",
        settings=TopicSettings(),
        cache=LogCache(index_bytes_max=limits.index_cache_bytes_max, open_files_max=100),
        start_offset=state.start_offset,
        boundaries=state.boundaries,
        was_clean=was_clean,
        clean_end=directory.clean_ends.get(str(log_id)),
        decompressed_bytes_max=limits.batch_decompressed_bytes_max,
        sealer=sealer,
    )
    try:
        return _replaced(files, log, log_id, topic, offset, state.boundaries)
    finally:
        log.close()
        journal.close()


def _replaced(
    files: Files,
    log: Log,
    log_id: LogId,
    topic: str,
    offset: int,
    boundaries: Sequence[Boundary],
) -> dict[str, object]:
    if not log.start_offset <= offset < log.end_offset:
        raise Refused(
            f"offset {offset} is not in {topic}/{log_id.partition}, which has "
            f"{log.start_offset} to {log.end_offset - 1}"
        )
    segment = log.segment_at(offset)
    work = log.verification(segment)
    if work is not None:
        work.run()
        work.finish()
    bad = damage_at(segment.damage, offset)
    if bad is None:
        raise Refused(f"the batch at offset {offset} is sound: nothing to repair")
    log.roll()
    _sync(log)
    repair = Repair(
        files,
        segment,
        log.contents(segment),
        bad,
        epoch=epoch_in_force(boundaries, bad.base_offset) or 0,
        now_ms=time.time_ns() // 1_000_000,
        interval_bytes=log.settings.index_interval_bytes,
    )
    new = repair.run()
    log.begin_replace([segment])()
    assert log.replace([segment], new)
    _sync(log)
    return {"topic": topic, "partition": log_id.partition, **msgspec.structs.asdict(repair.skipped)}


def _sync(log: Log) -> None:
    work = log.begin_sync()
    if work is not None:
        work()
        log.end_sync()
