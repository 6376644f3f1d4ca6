"""What every implementation of `ports.Files` keeps: on disk, in RAM, and under crash tests."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.ports import Files
from millstream.storage.files.disk import DiskFiles
from millstream.storage.files.memory import MemoryFiles
from tests.support.crashing_files import CrashingFiles
from tests.support.tiers import sized


@pytest.fixture(params=["disk", "memory", "crashing"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    kinds = {
        "disk": lambda: DiskFiles(tmp_path),
        "memory": MemoryFiles,
        "crashing": CrashingFiles,
    }
    return kinds[request.param]()  # type: ignore[return-value]


def test_what_is_written_is_read(files: Files) -> None:
    file = files.open("a", create=True)

    file.write(0, [b"mill", bytearray(b"str"), memoryview(b"xeamx")[1:4]])

    assert file.read(0, 100) == b"millstream"
    assert file.read(4, 3) == b"str"
    assert file.size() == 10


def test_a_write_of_nothing_changes_nothing(files: Files) -> None:
    file = files.open("a", create=True)

    file.write(0, [])
    file.write(0, [b""])

    assert file.size() == 0


def test_a_write_covers_what_was_there_and_may_pass_the_end(files: Files) -> None:
    file = files.open("a", create=True)
    file.write(0, [b"abcdef"])

    file.write(2, [b"XY"])
    file.write(5, [b"Z!"])

    assert file.read(0, 10) == b"abXYeZ!"


def test_a_gap_reads_as_zeros(files: Files) -> None:
    file = files.open("a", create=True)

    file.write(3, [b"x"])

    assert file.read(0, 10) == b"\0\0\0x"


def test_reading_behind_the_end_returns_what_there_is(files: Files) -> None:
    file = files.open("a", create=True)
    file.write(0, [b"abc"])

    assert file.read(1, 100) == b"bc"
    assert file.read(3, 1) == b""
    assert file.read(50, 1) == b""
    assert file.read(0, 0) == b""


def test_truncating_cuts_and_fills_with_zeros(files: Files) -> None:
    file = files.open("a", create=True)
    file.write(0, [b"abcdef"])

    file.truncate(2)
    file.truncate(4)

    assert file.read(0, 10) == b"ab\0\0"


def test_all_handles_of_a_file_see_the_same_bytes(files: Files) -> None:
    first = files.open("a", create=True)
    second = files.open("a")

    first.write(0, [b"seen"])
    first.close()

    assert second.read(0, 4) == b"seen"


def test_syncing_and_forgetting_keep_the_content(files: Files) -> None:
    file = files.open("a", create=True)
    file.write(0, [b"kept"])

    file.sync()
    file.forget_cached()

    assert file.read(0, 10) == b"kept"


def test_only_create_makes_a_file(files: Files) -> None:
    with pytest.raises(FileNotFoundError):
        files.open("a")

    files.open("a", create=True).write(0, [b"once"])

    assert files.open("a", create=True).read(0, 4) == b"once"


def test_a_file_needs_its_directory(files: Files) -> None:
    with pytest.raises(FileNotFoundError):
        files.open("missing/a", create=True)


def test_a_directory_is_not_a_file(files: Files) -> None:
    files.make_directory("d")
    files.open("f", create=True)

    with pytest.raises(IsADirectoryError):
        files.open("d")
    with pytest.raises(NotADirectoryError):
        files.list("f")
    with pytest.raises(OSError, match="f"):
        files.make_directory("f")


def test_directories_are_made_with_their_parents_and_twice(files: Files) -> None:
    files.make_directory("a/b/c")
    files.make_directory("a/b/c")
    files.make_directory("")

    assert files.list("") == ["a"]
    assert files.list("a/b") == ["c"]


def test_names_are_listed_in_order(files: Files) -> None:
    for name in ("b", "a", "c"):
        files.open(name, create=True)

    assert files.list("") == ["a", "b", "c"]
    assert files.list("missing") == []


def test_existence_is_told_for_files_and_directories(files: Files) -> None:
    files.make_directory("d")
    files.open("d/f", create=True)

    assert files.exists("d")
    assert files.exists("d/f")
    assert not files.exists("d/g")
    assert not files.exists("d/f/g")


def test_a_removed_file_stays_readable_for_those_who_have_it(files: Files) -> None:
    file = files.open("a", create=True)
    file.write(0, [b"still here"])

    files.remove("a")
    files.remove("a")

    assert not files.exists("a")
    assert file.read(0, 100) == b"still here"


def test_a_removed_directory_goes_with_all_it_holds(files: Files) -> None:
    files.make_directory("d/e")
    files.open("d/e/f", create=True)

    files.remove_directory("d")
    files.remove_directory("d")

    assert files.list("") == []


def test_a_rename_takes_the_place_of_the_target(files: Files) -> None:
    files.open("old", create=True).write(0, [b"old"])
    files.open("new", create=True).write(0, [b"new"])

    files.rename("new", "old")

    assert files.list("") == ["old"]
    assert files.open("old").read(0, 10) == b"new"


def test_a_handle_follows_its_file_through_a_rename(files: Files) -> None:
    file = files.open("a", create=True)

    files.rename("a", "b")
    file.write(0, [b"moved"])

    assert files.open("b").read(0, 10) == b"moved"


def test_a_directory_can_be_renamed(files: Files) -> None:
    files.make_directory("d")
    files.open("d/f", create=True).write(0, [b"x"])

    files.rename("d", "e")

    assert files.open("e/f").read(0, 1) == b"x"
    assert files.list("") == ["e"]


def test_renaming_nothing_is_an_error(files: Files) -> None:
    with pytest.raises(FileNotFoundError):
        files.rename("a", "b")


def test_a_directory_can_be_synced_if_it_is_there(files: Files) -> None:
    files.make_directory("d")

    files.sync_directory("")
    files.sync_directory("d")

    with pytest.raises(FileNotFoundError):
        files.sync_directory("missing")


def test_a_lock_has_one_holder_until_it_is_closed(files: Files) -> None:
    held = files.lock("lock")

    with pytest.raises(BlockingIOError):
        files.lock("lock")
    held.close()

    files.lock("lock").close()


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../x", "a/../b", "a//b", "a/", ".", "a\\b", "a\0b"]
)
def test_no_path_leaves_the_root(files: Files, path: str) -> None:
    for use in (files.open, files.exists, files.list, files.make_directory, files.remove):
        with pytest.raises(AssertionError, match="under the root"):
            use(path)


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 40), st.lists(st.binary(max_size=9))),
        st.tuples(st.just("truncate"), st.integers(0, 40)),
        st.tuples(st.just("read"), st.integers(0, 50), st.integers(0, 50)),
        st.tuples(st.just("sync")),
        st.tuples(st.just("forget_cached")),
        st.tuples(st.just("size")),
    )
)


@settings(deadline=None, max_examples=sized(60))
@given(OPERATIONS)
def test_all_implementations_give_the_same_answers(operations: list[tuple]) -> None:
    with tempfile.TemporaryDirectory() as root:
        trees: list[Files] = [DiskFiles(Path(root)), MemoryFiles(), CrashingFiles()]
        opened = [tree.open("f", create=True) for tree in trees]

        for name, *arguments in operations:
            answers = [getattr(file, name)(*arguments) for file in opened]

            assert answers[0] == answers[1] == answers[2]
