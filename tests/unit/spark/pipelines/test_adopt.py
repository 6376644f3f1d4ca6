"""A checkpoint of Spark's Kafka connector is read, copied whole, and left as it was."""

from pathlib import Path

import pytest

from millstream.spark.pipelines.adopt import adopt, read
from millstream.spark.pipelines.failures import InvalidPipeline

OFFSETS = {"orders": {"0": 23, "1": 42}}


def checkpoint(directory: Path, *sources: str, commits: int = 2, batches: int = 3) -> Path:
    home = directory / "connector"
    for log in ("offsets", "commits", "state"):
        (home / log).mkdir(parents=True)
    (home / "metadata").write_text('{"id":"7e"}', "utf-8")
    for batch in range(batches):
        lines = ["v1", '{"batchWatermarkMs":0}', *(sources or ('{"orders":{"1":42,"0":23}}',))]
        (home / "offsets" / str(batch)).write_text("\n".join(lines), "utf-8")
    for batch in range(commits):
        (home / "commits" / str(batch)).write_text("v1\n{}", "utf-8")
    return home


def test_the_copy_stands_where_the_query_stood(tmp_path: Path) -> None:
    before = checkpoint(tmp_path)

    adopted = adopt(before, tmp_path / "ours")

    assert (adopted.batch, adopted.is_committed, adopted.offsets) == (2, False, [OFFSETS])
    assert read(tmp_path / "ours") == adopted
    assert read(before).offsets == [OFFSETS]
    assert (tmp_path / "ours" / "metadata").read_text("utf-8") == '{"id":"7e"}'


def test_sources_that_are_not_kafkas_are_counted(tmp_path: Path) -> None:
    home = checkpoint(tmp_path, '{"logOffset":3}', '{"a":{"0":1}}', '{"b":{"0":2}}', commits=3)

    adopted = read(home)

    assert adopted.offsets == [{"a": {"0": 1}}, {"b": {"0": 2}}]
    assert (adopted.other_sources, adopted.is_committed) == (1, True)


def test_what_is_no_checkpoint_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(InvalidPipeline, match="no file metadata"):
        read(tmp_path)
    with pytest.raises(InvalidPipeline, match="reads something else"):
        read(checkpoint(tmp_path, '{"logOffset":3}'))
    with pytest.raises(InvalidPipeline, match="holds no batch"):
        read(checkpoint(tmp_path / "new", batches=0, commits=0))


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    with pytest.raises(InvalidPipeline, match="exists already"):
        adopt(checkpoint(tmp_path), tmp_path)
