"""A data directory opens only for its owner, one process at a time, and says why it does not."""

import errno
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from millstream.errors import StartupError
from millstream.model import CleanEnd, NodeId
from millstream.ports import Files
from millstream.storage.files.directory import DataDirectory, open_directory
from millstream.storage.files.disk import DiskFiles
from millstream.storage.files.memory import MemoryFiles
from tests.support.crashing_files import CrashingFiles

NODE = NodeId(1)


def opened(files: Files, *, node: NodeId = NODE, seed: int = 0) -> DataDirectory:
    return open_directory(files, "/data", node_id=node, entropy=Random(seed))


def refusal(files: Files, *, node: NodeId = NODE) -> str:
    """The sentence; it is one, and names the path."""
    with pytest.raises(StartupError) as caught:
        opened(files, node=node)
    sentence = str(caught.value)
    assert sentence.startswith(("/data", "another Millstream is running on /data"))
    assert "\n" not in sentence
    assert "data_dir" in sentence
    return sentence


def tree(root: Path) -> dict[str, bytes | None]:
    paths = sorted(root.rglob("*"))
    return {str(p.relative_to(root)): None if p.is_dir() else p.read_bytes() for p in paths}


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    """A directory that node 1 used and closed in order."""
    directory = opened(DiskFiles(tmp_path))
    directory.mark_clean()
    directory.close()
    return tmp_path


# -- opening ---------------------------------------------------------------------------------------


def test_the_ends_of_logs_outlive_the_clean_marker_and_are_given_up_if_damaged() -> None:
    files, ends = MemoryFiles(), {"log-0": CleanEnd(7, 0, 100)}
    directory = opened(files)
    directory.mark_clean(ends)
    directory.close()

    for was_clean in (True, False):
        directory = opened(files)
        assert (directory.was_clean, directory.clean_ends) == (was_clean, ends)
        directory.close()
    files.open("ends").write(12, [b"!"])

    assert opened(files).clean_ends == {}


def test_an_empty_or_missing_directory_becomes_ours(tmp_path: Path) -> None:
    files = DiskFiles(tmp_path / "deep" / "data")

    directory = opened(files)

    assert directory.is_new
    assert not directory.was_clean
    assert directory.node_id == NODE
    assert json.loads((files.root / "millstream.json").read_text())["format"] == 1


def test_it_opens_again_with_the_same_cluster_id(ours: Path) -> None:
    first = opened(DiskFiles(ours), seed=1)
    first.close()
    second = opened(DiskFiles(ours), seed=2)

    assert first.cluster_id == second.cluster_id
    assert not second.is_new


def test_cluster_ids_look_like_kafka_s_and_differ_by_entropy() -> None:
    ids = {opened(MemoryFiles(), seed=seed).cluster_id for seed in range(5)}

    assert len(ids) == 5
    assert all(len(cluster_id) == 22 for cluster_id in ids)


def test_a_fresh_file_system_counts_as_empty(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()

    assert opened(DiskFiles(tmp_path)).is_new


def test_what_a_first_start_left_when_it_was_cut_short_counts_as_empty() -> None:
    files = MemoryFiles()
    files.open("lock", create=True)
    files.open("millstream.json.tmp", create=True).write(0, [b"{" * 1000])

    assert opened(files).is_new


def test_a_directory_on_a_full_disk_opens(ours: Path) -> None:
    files = CrashingFiles()
    opened(files).close()
    files.space_left = 0

    assert not opened(files).is_new


# -- the clean marker ------------------------------------------------------------------------------


def test_a_directory_that_was_marked_clean_says_so_once(ours: Path) -> None:
    first = opened(DiskFiles(ours))
    first.close()
    second = opened(DiskFiles(ours))

    assert first.was_clean
    assert not second.was_clean


def test_the_marker_is_durably_gone_before_opening_returns() -> None:
    files = CrashingFiles()
    directory = opened(files)
    directory.mark_clean()
    directory.close()
    opened(files)

    files.power_cut(worst=True)

    assert not opened(files).was_clean


def test_a_marker_survives_the_power_cut_after_it() -> None:
    files = CrashingFiles()
    opened(files).mark_clean()

    files.power_cut(worst=True)

    assert opened(files).was_clean


def test_a_marker_that_cannot_be_written_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    files = CrashingFiles()
    directory = opened(files)
    files.space_left = 0

    directory.mark_clean()
    directory.close()

    assert "left no clean marker" in caplog.text
    assert not opened(files).was_clean


# -- refusals on a real disk: nothing is touched ---------------------------------------------------


def refused_untouched(root: Path, *, node: NodeId = NODE) -> str:
    before = tree(root)
    sentence = refusal(DiskFiles(root), node=node)
    assert tree(root) == before
    return sentence


def test_another_node_s_directory_is_refused(ours: Path) -> None:
    assert refused_untouched(ours, node=NodeId(2)) == (
        "/data belongs to node 1 and this is node 2: "
        "start with node_id = 1 or choose another data_dir"
    )


@pytest.mark.parametrize(("version", "age"), [(0, "an older"), (2, "a newer"), (99, "a newer")])
def test_another_format_is_refused_whatever_else_it_says(
    ours: Path, version: int, age: str
) -> None:
    (ours / "millstream.json").write_text(json.dumps({"format": version, "other": "fields"}))

    sentence = refused_untouched(ours)

    assert f"format {version}, written by {age} Millstream" in sentence


def test_somebody_s_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / ".bashrc").write_text("alias ll='ls -l'")
    (tmp_path / "thesis.tex").write_text("years of work")

    assert refused_untouched(tmp_path) == (
        "/data holds files that are not Millstream's, such as .bashrc: "
        "choose an empty or new directory as data_dir"
    )


def test_a_directory_with_only_directories_of_others_is_refused(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()

    assert "such as photos" in refused_untouched(tmp_path)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: b"",
        lambda text: text[:-10],
        lambda text: text + b"x",
        lambda text: text.replace(b'"node_id": 1', b'"node_id": 3'),
        lambda text: text.replace(b'"node_id": 1', b'"node_id": null'),
        lambda text: text.replace(b'"format": 1', b'"format": "1"'),
        lambda text: text.replace(b"checksum", b"checkgum"),
        lambda text: b"[1, 2]",
        lambda text: b"null",
        lambda text: b"\xff\xfe\x00",
        lambda text: b"[" * 4000,
        lambda text: b'{"format": 1, "node_id": ' + b"9" * 4000 + b"}",
        lambda text: b"{" + b" " * 10_000 + text[1:],
    ],
)
def test_a_damaged_meta_file_is_refused(ours: Path, damage: Callable[[bytes], bytes]) -> None:
    meta = ours / "millstream.json"
    meta.write_bytes(damage(meta.read_bytes()))

    assert refused_untouched(ours) == (
        "/data/millstream.json is damaged: restore it from a backup or choose another data_dir"
    )


def test_any_flipped_bit_of_the_meta_file_is_noticed(ours: Path) -> None:
    meta = ours / "millstream.json"
    text = meta.read_bytes()

    for position in range(len(text)):
        meta.write_bytes(text[:position] + bytes([text[position] ^ 2]) + text[position + 1 :])
        refusal(DiskFiles(ours))


def test_logs_without_their_journal_are_refused(ours: Path) -> None:
    (ours / "logs" / "some-log").mkdir(parents=True)

    assert refused_untouched(ours).startswith("/data/journal is missing though there are logs")


@pytest.mark.parametrize("below", ["", "data"])
def test_a_file_is_refused_as_a_directory(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("precious")

    sentence = refusal(DiskFiles(tmp_path / "file" / below))

    assert sentence == "/data is a file or lies under one: choose a directory as data_dir"
    assert (tmp_path / "file").read_text() == "precious"


# -- refusals of the operating system --------------------------------------------------------------


@pytest.mark.parametrize("operation", ["create", "write", "sync", "rename", "sync_directory"])
@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EACCES, "is closed to this user"),
        (errno.EPERM, "is closed to this user"),
        (errno.EROFS, "read-only file system"),
        (errno.ENOSPC, "full disk: free some space"),
        (errno.EDQUOT, "full disk: free some space"),
        (errno.EIO, "cannot be used as data_dir"),
    ],
)
def test_what_the_system_refuses_at_a_first_start_is_told_and_the_next_try_works(
    operation: str, number: int, words: str
) -> None:
    files = CrashingFiles()

    def refuse(kind: str, path: str) -> None:
        if kind == operation:
            raise OSError(number, "refused")

    files.on_operation = refuse
    assert words in refusal(files)

    files.on_operation = None
    opened(files)


def test_a_read_only_disk_with_our_directory_is_refused() -> None:
    files = CrashingFiles()
    directory = opened(files)
    directory.mark_clean()
    directory.close()

    def refuse(kind: str, path: str) -> None:
        raise OSError(errno.EROFS, "read-only")

    files.on_operation = refuse

    assert "read-only file system" in refusal(files)


def test_a_directory_that_cannot_be_listed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(self: DiskFiles, directory: str) -> list[str]:
        raise PermissionError(errno.EACCES, "permission denied")

    monkeypatch.setattr(DiskFiles, "list", closed)

    assert "is closed to this user" in refusal(DiskFiles(tmp_path))
    assert tree(tmp_path) == {}


# -- one process at a time -------------------------------------------------------------------------


def test_a_second_opening_in_the_same_process_is_refused_until_the_first_closes(
    tmp_path: Path,
) -> None:
    first = opened(DiskFiles(tmp_path))

    assert refusal(DiskFiles(tmp_path)) == (
        "another Millstream is running on /data: stop it or choose another data_dir"
    )
    first.close()

    opened(DiskFiles(tmp_path)).close()


def test_a_refused_opening_leaves_the_directory_free(ours: Path) -> None:
    files = CrashingFiles()
    files.fail_sync(2)

    refusal(files)

    opened(files)


HOLD = """
import sys
from pathlib import Path
from random import Random
from millstream.model import NodeId
from millstream.storage.files.directory import open_directory
from millstream.storage.files.disk import DiskFiles
path = sys.argv[1]
directory = open_directory(DiskFiles(Path(path)), path, node_id=NodeId(1), entropy=Random(1))
print("open", directory.cluster_id, flush=True)
sys.stdin.read()
"""


def test_two_processes_never_share_a_directory(tmp_path: Path) -> None:
    first = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with first:
        assert first.stdout is not None
        said = first.stdout.readline().split()
        assert said[0] == b"open"

        second = subprocess.run(
            [sys.executable, "-c", HOLD, str(tmp_path)],
            capture_output=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        assert b"another Millstream is running on " + str(tmp_path).encode() in second.stderr
        assert second.stdout == b""

        first.kill()
        first.wait()
        third = opened(DiskFiles(tmp_path))
        assert third.cluster_id.encode() == said[1]
        assert not third.was_clean
