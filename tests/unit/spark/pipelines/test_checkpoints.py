"""Where queries stand is read from the files that Spark writes."""

from pathlib import Path

from millstream.spark.pipelines import checkpoints

METADATA = 'v1\n{"batchWatermarkMs":0}\n'


def begin(directory: Path, batch: int, *sources: str) -> None:
    (directory / "offsets").mkdir(parents=True, exist_ok=True)
    text = METADATA + "\n".join(sources)
    (directory / "offsets" / str(batch)).write_text(text, encoding="utf-8")


def commit(directory: Path, batch: int) -> None:
    (directory / "commits").mkdir(parents=True, exist_ok=True)
    (directory / "commits" / str(batch)).write_text("v1\n{}", encoding="utf-8")
    (directory / "commits" / f".{batch}.crc").write_bytes(b"")


def test_the_last_batch_counts_by_number(tmp_path: Path) -> None:
    for batch in (9, 10):
        begin(tmp_path / "p" / "rows", batch, f'{{"orders": {{"0": {batch}}}}}')
        commit(tmp_path / "p" / "rows", batch)

    (checkpoint,) = checkpoints.find(tmp_path)

    assert (checkpoint.query, checkpoint.batch, checkpoint.is_committed) == ("p/rows", 10, True)
    assert checkpoint.offsets == {"orders": {"0": 10}}


def test_a_batch_that_was_only_begun_is_to_be_done_again(tmp_path: Path) -> None:
    begin(tmp_path / "rows", 0, '{"orders": {"0": 1}}', '{"others": {"0": 2}}', "-")

    (checkpoint,) = checkpoints.find(tmp_path)

    assert not checkpoint.is_committed
    assert checkpoint.offsets == {"orders": {"0": 1}, "others": {"0": 2}}


def test_a_query_that_never_began_stands_nowhere(tmp_path: Path) -> None:
    (tmp_path / "rows" / "offsets").mkdir(parents=True)

    (checkpoint,) = checkpoints.find(tmp_path)

    assert (checkpoint.batch, checkpoint.offsets) == (-1, {})


def test_where_nothing_ran_there_is_nothing(tmp_path: Path) -> None:
    assert checkpoints.find(tmp_path / "not-there") == []
