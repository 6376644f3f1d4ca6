"""`millstream inspect`: shows a data directory offline; `cli.inspection` reads it."""

from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import click

from millstream.cli.options import key_option
from millstream.cli.render import Answer, Refused, answered, card, instant, progress, rows, table

if TYPE_CHECKING:
    from millstream.cli.inspection import Row
    from millstream.cli.repair.data_keys import DataKeys


@click.command()
@click.argument("path", type=click.Path(path_type=Path), default="data", metavar="[PATH]")
@click.option("--records", "has_records", is_flag=True, help="Of a .log file: every record.")
@click.option("--verify", "is_verified", is_flag=True, help="Check every batch; believe no index.")
@click.option("--count", type=click.IntRange(1), metavar="N", help="Show the first N only.")
@key_option
@answered
def inspect(
    path: Path, has_records: bool, is_verified: bool, count: int | None, key_reference: str
) -> Answer:
    """Show what is on disk, offline: logs, segments, batches, records, indexes. Changes nothing.

    PATH is a data directory, the directory of a log in it, or a file of a log: .log, .index, .terms
    or .producers. Below the logs of a data directory stands how far the scrubber is; the file
    `scrub` in it shows that alone. The exit code is 1 if something is damaged.

    Encrypted batches are opened with the node's root key; without it no names of topics and no
    records are shown.
    """
    from millstream.cli import inspection
    from millstream.cli.repair.data_keys import NO_KEYS, open_data_keys
    from millstream.config_sources import load

    if not path.exists():
        raise Refused(f"there is no {path}: pass the data_dir of a node, or a file below it")
    if has_records and path.suffix != ".log":
        raise click.UsageError("--records needs a .log file.")
    home = inspection.directory_of(path)
    keys = NO_KEYS if home is None else open_data_keys(home, key_reference)
    match path.suffix:
        case ".log" if has_records:
            limits = load().limits
            records = inspection.record_rows(
                path, decompressed_bytes_max=limits.batch_decompressed_bytes_max, keys=keys
            )
            return _shown(islice(records, count))
        case ".log":
            batches = islice(inspection.batches(path, keys), count)
            return _shown(inspection.batch_row(*batch) for batch in batches)
        case ".index":
            proof, entries = inspection.index_rows(path)
            entries = entries[:count]
            text = f"{card(proof)}\n\n{table(entries)}"
            return Answer({"proof": proof, "entries": entries}, text)
        case ".terms":
            terms = inspection.terms_row(path)
            return Answer(
                terms, "stale or damaged: a node builds it again" if terms is None else card(terms)
            )
        case ".producers":
            return rows(inspection.producer_rows(path)[:count], nothing="no producers")
    if path.name == inspection.SCRUB and inspection.is_data_directory(path.parent):
        scrubbing = inspection.scrub_row(path.parent, keys)
        return Answer(scrubbing, _scrubbing(scrubbing), "problem" not in (scrubbing or {}))
    if not path.is_dir():
        raise Refused(
            f"{path} is none of a data directory, a log, .log, .index, .terms, .producers or scrub"
        )
    return _directory(path, keys, is_verified, count)


def _directory(path: Path, keys: "DataKeys", is_verified: bool, count: int | None) -> Answer:
    """The logs of a data directory, or the segments of a log."""
    from millstream.cli import inspection

    is_whole = inspection.is_data_directory(path)
    read = inspection.logs if is_whole else inspection.segments
    total = sum(file.stat().st_size for file in path.rglob("*.log"))
    with progress("reading", total) as advance:
        answer = _shown(read(path, is_verified=is_verified, advance=advance, keys=keys)[:count])
    if not is_whole:
        return answer
    notes = [answer.text, _scrubbing(inspection.scrub_row(path, keys))]
    if keys.reason:
        notes.append(f"topics have no names here: {keys.reason}")
    return answer._replace(text="\n\n".join(notes))


def _scrubbing(row: "Row | None") -> str:
    """The scrubber's progress, for people."""
    if row is None:
        return "scrubber: nothing is saved yet; the first pass begins a minute after a start"
    if "problem" in row:
        return f"scrubber: {row['problem']}"
    last = row["last_full_pass_ms"]
    lines = {"last_full_scrub": "none yet" if last is None else _instant(last)}
    if not row["is_complete"]:
        place = f", now at {row['at']}" if row["at"] else ""
        lines["this_scrub"] = (
            f"{row['pass_bytes']} of {row['sealed_bytes']} bytes since "
            f"{_instant(row['pass_started_ms'])}{place}"
        )
    return card({**lines, "as_of": _instant(row["saved_ms"])})


def _instant(milliseconds: object) -> str:
    return instant(datetime.fromtimestamp(int(str(milliseconds)) / 1000, UTC))


def _shown(described: Iterable["Row"]) -> Answer:
    shown = list(described)
    is_fine = not any(row.get("problem") or row.get("problems") for row in shown)
    return rows(shown, nothing="nothing is there")._replace(is_fine=is_fine)
