"""`consume --stats` says how much of the log a filter took, `inspect` what its index is."""

import re
from pathlib import Path
from time import monotonic

from millstream.cli import inspection
from millstream.settings import TopicSettings
from millstream.storage.files.disk import DiskFiles
from tests.cli.conftest import Cli
from tests.support.logs import DIRECTORY
from tests.unit.storage.secondary_index.test_log_index import (
    append,
    build,
    index_of,
    keyed,
    open_small,
    sync,
)


def test_stats_tell_what_an_index_spared_the_reader(cli: Cli) -> None:
    cli.run("topic", "create", "found", "--set", "index.key=true")
    for batch in range(4):
        numbers = range(batch * 500, batch * 500 + 500)
        lines = "".join(f"k{number}:{'v' * 100}{number}\n" for number in numbers)
        cli.run("produce", "found", "--key-separator", ":", typed=lines)
    find = ("consume", "found", "--filter", "key == 'k700'", "--stats")

    deadline = monotonic() + 30
    while True:
        result = cli.run(*find)
        assert result.stdout.strip() == "v" * 100 + "700"
        read, skipped = map(int, re.findall(r"\d+", result.stderr))
        if skipped > read or monotonic() > deadline:  # The index is built meanwhile.
            break

    assert skipped > read > 0


def test_stats_need_a_filter(cli: Cli) -> None:
    result = cli.run("consume", "found", "--stats", code=2)

    assert "pass --filter as well" in result.stderr


SETTINGS = TopicSettings(segment_bytes=1024, index_key=True)


def test_inspect_tells_the_size_of_an_index_and_what_it_misses(tmp_path: Path) -> None:
    files = DiskFiles(tmp_path)
    log = open_small(files, settings=SETTINGS)
    for number in range(30):
        append(log, keyed(number, b"%d" % number))
    sync(log)
    build(index_of(log, files), log)
    append(log, keyed(30, b"x"))
    log.close()

    rows = inspection.segments(tmp_path / DIRECTORY, is_verified=False, advance=lambda size: None)

    assert all(int(str(row["terms_bytes"])) > 256 for row in rows[:-1])
    assert [row["terms_missing_bytes"] for row in rows[:-1]] == [0] * (len(rows) - 1)
    assert rows[-1]["terms_missing_bytes"] == rows[-1]["bytes"]
    (first, *_) = sorted((tmp_path / DIRECTORY).glob("*.terms"))
    described = inspection.terms_row(first)
    assert described is not None
    assert (described["key"], described["headers"]) == (True, [])
    assert described["entries"] == rows[0]["end_offset"]
