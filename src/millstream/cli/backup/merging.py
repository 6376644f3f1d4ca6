"""Makes the data directory of one node out of the backups of a cluster's nodes.

For each log the copy counts that holds the most: the last epoch, then the end. That copy has every
record that was acknowledged before the backup began, if the leader or a majority was copied.

Invariant: `millstream.json` is written last, by the caller.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from millstream.cli.backup.copying import Advance, copy_file, copy_from_backup
from millstream.cli.backup.manifest import FILES, Backup
from millstream.cli.inspection import open_for_reading
from millstream.cli.render import Refused
from millstream.codec.encoding import encode_batch
from millstream.codec.records import decode_all
from millstream.control.alone import rewritten
from millstream.control.commands import encode
from millstream.control.state import State
from millstream.errors import CorruptBatch, DamagedLog, InvalidBatch, StartupError, UnusableCommand
from millstream.model import (
    CONTROL_LOG,
    NO_EPOCH,
    Boundary,
    Epoch,
    HardState,
    LogId,
    NodeId,
    Offset,
    node_of,
    replica_id,
)
from millstream.storage.files.directory import KEYRING, LOGS
from millstream.storage.files.disk import DIRECTORY_MODE, DiskFiles
from millstream.storage.files.skipped_commands import SKIPPED, decode_skipped
from millstream.storage.journal.journal import read_states, write_states
from millstream.storage.journal.log_states import UNKNOWN_LOG, LogState
from millstream.storage.log.segment import LOG, read_headers

ALONE = NodeId(1)


class Copy(NamedTuple):
    """A log as a backup holds it."""

    backup: Backup
    state: LogState  # Of the node's journal.
    epoch: Epoch  # Of the last batch.
    end_offset: Offset
    names: tuple[str, ...]  # Of its files.


class Merged(NamedTuple):
    copies: dict[LogId, Copy]
    control: list[tuple[Offset, bytes]]  # Batches of the control log for a node alone, by offset.
    missing: list[str]  # Partitions that no backup has.


def read_cluster(backup: Backup) -> State | None:
    """What the control log of a backup says; None for a node alone or an encrypted one."""
    if KEYRING in backup.manifest.files:
        return None
    state = State()
    for _ in _batches(backup, _names_of(backup).get(CONTROL_LOG, ()), state):
        pass
    return state if state.nodes.all() else None


def merge(backups: list[Backup]) -> Merged:
    """Choose the copy of each log; `Refused` where they cannot become one node."""
    _check(backups)
    copies: dict[LogId, Copy] = {}
    for backup in backups:
        states, names = read_states(DiskFiles(backup.path / FILES)), _names_of(backup)
        for log_id in states.keys() | names.keys():
            copy = _copy(backup, states.get(log_id, UNKNOWN_LOG), names.get(log_id, ()))
            copies[log_id] = max(copies.get(log_id, copy), copy, key=_rank)
    if CONTROL_LOG not in copies:
        raise Refused(f"{backups[0].path} has no control log: restore from another backup")
    state, control = State(), copies[CONTROL_LOG]
    batches = list(_batches(control.backup, control.names, state))
    return Merged(copies, batches, _missing(state, backups))


def write_merged(merged: Merged, data_dir: Path, advance: Advance) -> None:
    """Copy the chosen logs, and write the control log and the journal of a node alone."""
    states = {}
    for log_id, copy in merged.copies.items():
        states[log_id] = _alone(copy)
        if log_id != CONTROL_LOG:
            for name in copy.names:
                copy_from_backup(copy.backup, name, data_dir, advance)
    directory = data_dir / LOGS / str(CONTROL_LOG)
    directory.mkdir(mode=DIRECTORY_MODE, parents=True)
    first = merged.control[0][0] if merged.control else 0
    data = b"".join(batch for _, batch in merged.control)
    copy_file(iter([data]), directory / f"{first:020d}{LOG}", len(data), advance)
    write_states(DiskFiles(data_dir), states)


def _check(backups: list[Backup]) -> None:
    ids = {backup.manifest.cluster_id for backup in backups}
    if len(ids) > 1:
        raise Refused(f"the backups are of {len(ids)} clusters: {', '.join(sorted(ids))}")
    nodes = [backup.manifest.node_id for backup in backups]
    if len(nodes) > len(set(nodes)):
        raise Refused(f"{backups[0].path.parent} has two backups of one node: keep one of them")
    for backup in backups:
        if KEYRING in backup.manifest.files:
            raise Refused(
                f"{backup.path} is encrypted with keys of node {backup.manifest.node_id} alone: "
                "the logs of several nodes cannot become those of one"
            )


def _names_of(backup: Backup) -> dict[LogId, tuple[str, ...]]:
    names: dict[LogId, tuple[str, ...]] = {}
    for name in sorted(backup.manifest.files):
        parts = name.split("/")
        if parts[0] == LOGS and len(parts) > 2:
            log_id = LogId.parse(parts[1])
            names[log_id] = (*names.get(log_id, ()), name)
    return names


def _copy(backup: Backup, state: LogState, names: tuple[str, ...]) -> Copy:
    """The copy with the place of its last whole batch."""
    epoch, end_offset = NO_EPOCH, state.start_offset
    for name in reversed([name for name in names if name.endswith(LOG)]):
        path = backup.path / FILES / name
        end_offset = max(end_offset, int(path.name.removesuffix(LOG)))
        file = open_for_reading(path)
        try:
            for _, header in read_headers(file, 0, file.size()):
                epoch, end_offset = Epoch(header.epoch), header.last_offset + 1
        except (CorruptBatch, InvalidBatch, DamagedLog):
            pass  # A torn tail, which the first start cuts off.
        finally:
            file.close()
        if epoch != NO_EPOCH:
            break
    return Copy(backup, state, epoch, end_offset, names)


def _rank(copy: Copy) -> tuple[bool, Epoch, Offset]:
    # A copy without files is empty, or was left to the node that led the log.
    return bool(copy.names), copy.epoch, copy.end_offset


def _alone(copy: Copy) -> LogState:
    """The journal's state of a log in which only the restored node votes.

    It opens an epoch of its own: what other nodes voted before is history.
    """
    old, voter = copy.state, replica_id(ALONE)
    boundaries = [each for each in old.boundaries if each.start_offset <= copy.end_offset]
    known = (old.hard_state.epoch, copy.epoch, *(each.epoch for each in old.boundaries))
    epoch = Epoch(max(known) + 1)
    boundaries.append(Boundary(epoch, copy.end_offset, frozenset({voter})))
    return LogState(HardState(epoch, voter), tuple(boundaries), old.start_offset)


def _batches(
    backup: Backup, names: tuple[str, ...], state: State
) -> Iterator[tuple[Offset, bytes]]:
    """The batches of the control log as those of a node alone; folds them into `state`."""
    root = backup.path / FILES
    skipped = _skipped(root)
    for name in names:
        if not name.endswith(LOG):
            continue
        file = open_for_reading(root / name)
        try:
            for position, header in read_headers(file, 0, file.size()):
                data = file.read(position, header.size)
                if header.is_control:
                    yield header.base_offset, data
                    continue
                # The broker writes its own log uncompressed.
                records = list(decode_all(data, 0, decompressed_bytes_max=0))
                commands = [
                    (each.offset, None if each.offset in skipped else each.value or b"")
                    for each in records
                ]
                values = dict(rewritten(commands, state, ALONE))
                records = [each._replace(value=encode(values[each.offset])) for each in records]
                batch = encode_batch(records, base_offset=header.base_offset, epoch=header.epoch)
                yield header.base_offset, batch
        except (CorruptBatch, InvalidBatch, DamagedLog, UnusableCommand) as problem:
            raise Refused(f"{root / name} cannot be read: {problem}") from problem
        finally:
            file.close()


def _skipped(root: Path) -> set[Offset]:
    """Commands that an operator had left out."""
    path = root / SKIPPED
    try:
        entries = decode_skipped(path.read_bytes(), str(root)) if path.exists() else []
    except StartupError as problem:
        raise Refused(str(problem)) from None
    return {entry.offset for entry in entries}


def _missing(state: State, backups: list[Backup]) -> list[str]:
    copied = {backup.manifest.node_id for backup in backups}
    return [
        f"{topic.name}/{partition}"
        for topic in state.catalog.topics()
        for partition in range(topic.partition_count)
        if not copied & set(map(node_of, topic.assignment(partition).all))
    ]
