"""A query has one name, however the location of its checkpoint is spelt."""

import hashlib
from pathlib import Path

import pytest

from millstream.spark.errors import InvalidOption
from millstream.spark.write.query_identity import checkpoint_identity

QUERY = "09747023-b1ec-4a3f-ae65-42eaecec4b00"


@pytest.fixture
def checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As Spark leaves it before the first batch; in the working directory."""
    folder = tmp_path / "a" / "ck"
    folder.mkdir(parents=True)
    (folder / "metadata").write_text(f'{{"id":"{QUERY}"}}', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return folder


def spellings(checkpoint: Path) -> list[str]:
    path = str(checkpoint)
    parent = str(checkpoint.parent)
    return [
        *(path, f"{path}/", f"{parent}//ck", f"{parent}/./ck", f"{parent}/../a/ck", f"//{path}"),
        *(f"file:{path}", f"file://{path}", f"FILE:{path}", f"file:{parent}//ck/"),
        *("a/ck", "./a/ck", "a//ck/"),
    ]


def former_name(text: str) -> str:
    """The name that versions before this made of the text of checkpointLocation."""
    return hashlib.sha256(text.rstrip("/").encode()).hexdigest()[:24]


def test_every_spelling_names_the_query_itself(checkpoint: Path) -> None:
    collected = [checkpoint_identity(spelling) for spelling in spellings(checkpoint)]

    assert {(sink_options.name, sink_options.query_id) for sink_options in collected} == {
        (QUERY, QUERY)
    }


def test_names_of_earlier_versions_are_known_in_all_usual_spellings(checkpoint: Path) -> None:
    usual = [str(checkpoint), f"file:{checkpoint}", f"file://{checkpoint}"]
    for spelling in spellings(checkpoint):
        former = checkpoint_identity(spelling).former_names
        assert set(former) >= {former_name(text) for text in (spelling, *usual)}


def test_a_checkpoint_that_is_moved_is_the_same_query(checkpoint: Path) -> None:
    moved = checkpoint.rename(checkpoint.parent / "elsewhere")

    assert checkpoint_identity(str(moved)).name == QUERY


@pytest.mark.parametrize(
    ("location", "same"),
    [
        ("hdfs://Names:8020/a/ck", "HDFS://names:8020/a//ck/"),
        ("s3a://bucket/a/ck", "s3a://bucket/a/./ck"),
        ("dbfs:/a/ck", "dbfs:///a/ck"),
        ("/not/on/this/disk", "/not//on/this/disk/"),
    ],
)
def test_a_checkpoint_out_of_reach_is_named_by_its_location_in_one_spelling(
    location: str, same: str
) -> None:
    first, second = checkpoint_identity(location), checkpoint_identity(same)

    assert (first.name, first.query_id) == (second.name, None)
    assert first.name != checkpoint_identity(location + "2").name
    assert former_name(same) in {second.name, *second.former_names}


def test_a_plain_path_out_of_reach_keeps_the_name_that_it_had() -> None:
    assert checkpoint_identity("/not/here").name == former_name("/not/here")


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '"x"', "{"])
def test_metadata_that_is_not_understood_is_refused(checkpoint: Path, text: str) -> None:
    (checkpoint / "metadata").write_text(text, encoding="utf-8")

    with pytest.raises(InvalidOption, match="set transactionalIdPrefix"):
        checkpoint_identity(str(checkpoint))


def test_a_local_checkpoint_without_metadata_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="has no file metadata"):
        checkpoint_identity(f"file:{tmp_path}/nothing")
