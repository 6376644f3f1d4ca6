"""Reads a data directory offline, in whatever state it is, without changing it.

Returns rows for `millstream inspect`: logs, segments, batches, records, index entries, producers.
Files are opened for reading only, so a running node is not disturbed; what it is writing at that
moment may show as a torn tail. Damage is a finding here, not an error.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias
from uuid import UUID

import msgspec

from millstream.cli.repair.data_keys import NO_KEYS, DataKeys, KeyRequired
from millstream.codec.batch import SEALED, Header, verify_batch
from millstream.codec.records import Record, decode_all
from millstream.control.state import State
from millstream.errors import (
    CorruptBatch,
    DamagedLog,
    InvalidBatch,
    RequestError,
    StartupError,
    UnusableCommand,
)
from millstream.model import CONTROL_LOG, LogId
from millstream.names import CONTROL_LOG_NAME
from millstream.replication import scrubbing
from millstream.storage.files.directory import LOGS, META
from millstream.storage.files.disk import DiskFile
from millstream.storage.files.skipped_commands import SKIPPED, decode_skipped
from millstream.storage.log.index import PROOF_BYTES, Proof, Table, decode_proof
from millstream.storage.log.producers import Producers
from millstream.storage.log.repair import SKIPPED as SKIPPED_RANGES
from millstream.storage.log.repair import decode_skipped as decode_ranges
from millstream.storage.log.segment import INDEX, LOG, TERMS, read_headers, verify_range
from millstream.storage.sealing.batches import BadSeal, Sealer
from millstream.storage.secondary_index.format import HEAD_BYTES, decode_directory, decode_head

Row: TypeAlias = dict[str, object]

SCRUB = scrubbing.STATE
_DAMAGE = (DamagedLog, CorruptBatch, InvalidBatch)


def is_data_directory(path: Path) -> bool:
    return (path / META).exists() or (path / LOGS).is_dir()


def directory_of(path: Path) -> Path | None:
    """The data directory that `path` is, or lies in."""
    parents = (path, *path.absolute().parents[:3])
    return next((parent for parent in parents if is_data_directory(parent)), None)


def logs(
    path: Path,
    *,
    is_verified: bool,
    advance: Callable[[int], object],
    keys: DataKeys = NO_KEYS,
) -> list[Row]:
    """Every log of a data directory, with the topic it belongs to where that is known."""
    names, problems = _fold_control_log(path, keys)
    rows: list[Row] = []
    for directory in sorted((path / LOGS).iterdir()):
        if not directory.is_dir():
            continue
        of_log = segments(directory, is_verified=is_verified, advance=advance, keys=keys)
        log_id = _log_id(directory.name)
        rows.append(
            {
                "topic": names.get(log_id.topic_id.hex) if log_id else None,
                "partition": log_id.partition if log_id else None,
                "segments": len(of_log),
                "bytes": sum(int(str(segment["bytes"])) for segment in of_log),
                "first_offset": of_log[0]["base_offset"] if of_log else 0,
                "end_offset": of_log[-1]["end_offset"] if of_log else 0,
                **_terms_of(of_log),
                "problems": [s["problem"] for s in of_log if s["problem"]]
                + (problems if log_id == CONTROL_LOG else []),
                "skipped": [
                    f"{skipped['base_offset']} to {int(str(skipped['end_offset'])) - 1}"
                    for skipped in skipped_rows(directory)
                ],
                "directory": directory.name,
            }
        )
    return rows


def scrub_row(path: Path, keys: DataKeys = NO_KEYS) -> Row | None:
    """How far the scrubber of the data directory `path` is; None where it has saved nothing yet.

    A running node saves its place about once a minute.
    """
    file = path / SCRUB
    if not file.exists():
        return None
    try:
        state = scrubbing.decode_state(file.read_bytes())
    except (ValueError, msgspec.DecodeError) as problem:
        return {"problem": f"{problem}; the next pass starts over"}
    is_complete = state.last_full_pass_ms >= state.pass_started_ms
    log_id = _log_id(state.log)
    names, _ = _fold_control_log(path, keys)
    at = f"{names.get(log_id.topic_id.hex, state.log)}/{log_id.partition}" if log_id else None
    return {
        "last_full_pass_ms": state.last_full_pass_ms if state.last_full_pass_ms >= 0 else None,
        "pass_started_ms": state.pass_started_ms if state.pass_started_ms >= 0 else None,
        "is_complete": is_complete,
        "pass_bytes": state.pass_bytes,
        "sealed_bytes": _sealed_bytes(path),
        "at": None if is_complete or at is None else f"{at}@{state.base_offset}",
        "saved_ms": int(file.stat().st_mtime * 1000),
    }


def _sealed_bytes(path: Path) -> int:
    """The bytes of a full pass: segments with an index, which is written when they are sealed."""
    files = (path / LOGS).rglob(f"*{LOG}")
    return sum(file.stat().st_size for file in files if file.with_suffix(INDEX).exists())


def segments(
    directory: Path,
    *,
    is_verified: bool,
    advance: Callable[[int], object],
    keys: DataKeys = NO_KEYS,
) -> list[Row]:
    """Every segment of a log. Without `is_verified` an index is believed, as a node does."""
    sealer = keys.sealer(_log_id(directory.name))
    rows: list[Row] = []
    for path in sorted(directory.glob(f"*{LOG}")):
        size = path.stat().st_size
        proof = _proof(path.with_suffix(INDEX))
        is_believed = proof is not None and not is_verified and proof.size == size
        end_offset, batch_count, problem = (
            (proof.end_offset, None, None)
            if is_believed and proof
            else _walked(path, is_verified, sealer)
        )
        terms = terms_row(path.with_suffix(TERMS))
        rows.append(
            {
                "base_offset": int(path.stem),
                "end_offset": end_offset,
                "bytes": size,
                "batches": batch_count,
                "index_entries": proof.entry_count if proof else None,
                "terms_bytes": terms["bytes"] if terms else None,
                "terms_missing_bytes": size - int(str(terms["covers_bytes"])) if terms else size,
                "problem": problem,
                "file": path.name,
            }
        )
        advance(size)
    return rows


def batches(path: Path, keys: DataKeys = NO_KEYS) -> Iterator[tuple[int, Header, str | None]]:
    """Each batch's position, header and what is wrong with it; stops where no batch can be."""
    file, sealer = open_for_reading(path), keys.sealer(_log_id(path.parent.name))
    size = file.size()
    position = 0
    try:
        for position, header in read_headers(file, 0, size):
            yield position, header, _problem_of(file, position, header, sealer)
            position += header.size
    except DamagedLog as problem:
        raise DamagedLog(f"{path.name}, behind position {position}: {problem}") from problem


def batch_row(position: int, header: Header, problem: str | None) -> Row:
    kinds = {
        "control": header.is_control,
        "transactional": header.is_transactional,
        "encrypted": bool(header.attributes & SEALED),
    }
    return {
        "position": position,
        "bytes": header.size,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.count,
        "epoch": header.epoch,
        "codec": header.codec.name.lower(),
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "max_timestamp": header.max_timestamp,
        "kind": "+".join(name for name, holds in kinds.items() if holds),
        "problem": problem,
    }


def record_rows(
    path: Path, *, decompressed_bytes_max: int, keys: DataKeys = NO_KEYS
) -> Iterator[Row]:
    """Every record of a segment, its key and value as text where they are text.

    A batch that cannot be unpacked or decoded is one row that says why. Raises `KeyRequired`.
    """
    file, sealer = open_for_reading(path), keys.sealer(_log_id(path.parent.name))
    for position, header, problem in batches(path, keys):
        if problem:
            raise DamagedLog(f"{path.name}, batch at offset {header.base_offset}: {problem}")
        data = keys.opened(sealer, header, file.read(position, header.size))
        problem = None
        try:
            decoded = decode_all(data, 0, decompressed_bytes_max=decompressed_bytes_max)
        except RequestError as refusal:  # The checksum is right: its producer wrote this.
            problem = f"{header.count} records that cannot be read: {refusal}"
            decoded = [Record(header.base_offset, header.max_timestamp, None, None)]
        for record in decoded:
            yield {
                "offset": record.offset,
                "timestamp": record.timestamp,
                "key": as_text(record.key),
                "value": as_text(record.value),
                "headers": [[name, as_text(value)] for name, value in record.headers],
                "is_control": header.is_control,
                "problem": problem,
            }


def index_rows(path: Path) -> tuple[Row, list[Row]]:
    """The proof in an index, and its entries."""
    data = path.read_bytes()
    proof = decode_proof(data[:PROOF_BYTES])
    table = Table.decode(data[PROOF_BYTES:], proof)
    entries: list[Row] = [
        {
            "offset": table.offset(at),
            "position": table.positions[at],
            "max_timestamp_before": table.times[at],
        }
        for at in range(len(table))
    ]
    return proof._asdict(), entries


def terms_row(path: Path) -> Row | None:
    """A secondary index; None if there is none, or if a node would build it again."""
    try:
        with path.open("rb") as file:
            head = decode_head(file.read(HEAD_BYTES))
            file.seek(head.directory_at)
            directory = decode_directory(file.read(head.directory_bytes), head)
        proof = decode_proof(head.proof)
        if path.with_suffix(INDEX).read_bytes()[:PROOF_BYTES] != head.proof:
            return None
    except (FileNotFoundError, DamagedLog):
        return None
    return {
        "key": directory.fields.key,
        "headers": list(directory.fields.headers),
        "bytes": path.stat().st_size,
        "entries": head.entry_count,
        "runs": head.run_count,
        "pages": head.page_count,
        "covers_bytes": proof.size,
        "end_offset": proof.end_offset,
    }


def _terms_of(rows: list[Row]) -> Row:
    """The size of a log's secondary index, and what of the log it misses; nothing without one."""
    indexed = [int(str(row["terms_bytes"])) for row in rows if row["terms_bytes"] is not None]
    missing = sum(int(str(row["terms_missing_bytes"])) for row in rows)
    return {
        "terms_bytes": sum(indexed) if indexed else None,
        "terms_missing_bytes": missing if indexed else None,
    }


def producer_rows(path: Path) -> list[Row]:
    return [producer._asdict() for producer in Producers.decode(path.read_bytes()).describe()]


def open_for_reading(path: Path) -> DiskFile:
    return DiskFile(os.open(path, os.O_RDONLY), path)


def as_text(data: bytes | None) -> str | None:
    """Text as it is; anything else as hexadecimal digits behind 0x."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return f"0x{data.hex()}"


def _walked(path: Path, is_verified: bool, sealer: Sealer | None) -> tuple[int, int, str | None]:
    """The end offset, the number of batches and the first problem, from the bytes themselves."""
    file = open_for_reading(path)
    size = file.size()
    end_offset, count, position = int(path.stem), 0, 0
    try:
        for position, header in (verify_range if is_verified else read_headers)(file, 0, size):
            if is_verified and sealer is not None:
                sealer.check(header, file.read(position, header.size))
            end_offset, count = header.end_offset, count + 1
            position += header.size
    except (*_DAMAGE, BadSeal) as problem:
        return end_offset, count, f"{size - position} bytes behind offset {end_offset}: {problem}"
    return end_offset, count, None


def _problem_of(file: DiskFile, position: int, header: Header, sealer: Sealer | None) -> str | None:
    data = file.read(position, header.size)
    try:
        verify_batch(data)
        if sealer is not None:
            sealer.check(header, data)
    except (*_DAMAGE, BadSeal) as problem:
        return str(problem)
    return None


def _proof(path: Path) -> Proof | None:
    try:
        with path.open("rb") as file:
            return decode_proof(file.read(PROOF_BYTES))
    except (FileNotFoundError, DamagedLog):
        return None


def _log_id(name: str) -> LogId | None:
    try:
        return LogId.parse(name)
    except ValueError:
        return None


def unusable_commands(path: Path, keys: DataKeys) -> list[UnusableCommand]:
    """The commands of the control log that a node cannot apply, skipped ones left out."""
    state, unusable = State(), list[UnusableCommand]()
    _fold_into(state, path, unusable, keys)
    return unusable


def _fold_control_log(path: Path, keys: DataKeys) -> tuple[dict[str, str], list[str]]:
    """The names of topics, and what is wrong with commands, as far as the log can be read."""
    state, unusable, problems = State(), list[UnusableCommand](), list[str]()
    try:
        _fold_into(state, path, unusable, keys)
    except KeyRequired:
        pass  # No damage: the logs are shown without the names of their topics.
    except (*_DAMAGE, StartupError) as problem:
        # The rest of the names is lost; the logs are shown all the same.
        problems.append(str(problem))
    names = {topic.topic_id.hex: topic.name for topic in state.catalog.topics()}
    names[CONTROL_LOG.topic_id.hex] = CONTROL_LOG_NAME
    return names, [*map(str, unusable), *problems]


def topic_ids(path: Path, keys: DataKeys) -> dict[str, UUID]:
    """The ids of topics by name, as far as the control log can be read."""
    names, _ = _fold_control_log(path, keys)
    return {name: UUID(hex=topic_id) for topic_id, name in names.items()}


def skipped_rows(directory: Path) -> list[Row]:
    """The ranges of a log that an operator gave up, see `millstream repair`."""
    path = directory / SKIPPED_RANGES
    ranges = decode_ranges(path.read_bytes()) if path.exists() else []
    return [msgspec.structs.asdict(offsets) for offsets in ranges]


def _fold_into(state: State, path: Path, unusable: list[UnusableCommand], keys: DataKeys) -> None:
    sealer = keys.sealer(CONTROL_LOG)
    file_of_skipped = path / SKIPPED
    text = file_of_skipped.read_bytes() if file_of_skipped.exists() else None
    skipped = {command.offset for command in decode_skipped(text, str(path))} if text else set()
    for segment in sorted((path / LOGS / str(CONTROL_LOG)).glob(f"*{LOG}")):
        file = open_for_reading(segment)
        for position, header in read_headers(file, 0, file.size()):
            if header.is_control:
                continue
            data = keys.opened(sealer, header, file.read(position, header.size))
            # The broker writes its own log uncompressed.
            for record in decode_all(data, 0, decompressed_bytes_max=0):
                if record.offset in skipped:
                    continue
                try:
                    state.fold(record.offset, record.value)
                except RequestError:
                    continue  # A command that was refused, on every node alike.
                except UnusableCommand as problem:
                    unusable.append(problem)
