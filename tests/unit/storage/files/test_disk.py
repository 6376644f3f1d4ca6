"""What only real files have to keep: short writes and reads, descriptors, locks, a root to make."""

import errno
import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

from millstream.storage.files import disk
from millstream.storage.files.disk import DiskFile, DiskFiles


@pytest.fixture
def file(tmp_path: Path) -> DiskFile:
    return DiskFiles(tmp_path).open("f", create=True)


def test_more_chunks_than_the_kernel_takes_at_once_are_all_written(file: DiskFile) -> None:
    chunks = [b"%05d" % number for number in range(3 * os.sysconf("SC_IOV_MAX") + 7)]

    file.write(3, chunks)

    assert file.read(3, file.size()) == b"".join(chunks)


@pytest.mark.parametrize("taken", [0, 1, 4, 5, 6, 11])
def test_a_short_write_is_continued(
    file: DiskFile, monkeypatch: pytest.MonkeyPatch, taken: int
) -> None:
    real = os.pwritev
    monkeypatch.setattr(
        os, "pwritev", lambda fd, chunks, at: taken and real(fd, [b"".join(chunks)[:taken]], at)
    )

    file.write(2, [b"short", b"", b"write!"])

    assert file.read(0, 100) == b"\0\0shortwrite!"


def test_a_write_without_pwritev_is_whole(file: DiskFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pwritev")

    file.write(0, [b"one", b"two"])

    assert file.read(0, 100) == b"onetwo"


def test_a_disk_that_fills_up_inside_a_write_is_an_error(
    file: DiskFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(os, "pwritev", lambda fd, chunks, at: 2)
    monkeypatch.setattr(os, "pwrite", full)

    with pytest.raises(OSError, match="no space"):
        file.write(0, [b"does not fit"])


def test_a_disk_that_takes_nothing_is_an_error_and_no_endless_loop(
    file: DiskFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "pwritev", lambda fd, chunks, at: 0)
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: 0)

    with pytest.raises(OSError, match="takes no more"):
        file.write(0, [b"x"])


def test_a_short_read_is_continued_to_the_end_of_the_file(
    file: DiskFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write(0, [b"a longer text"])
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, at: real(fd, min(size, 3), at))

    assert file.read(2, 100) == b"longer text"
    assert file.read(2, 6) == b"longer"


def test_a_descriptor_closes_with_the_last_reference(tmp_path: Path) -> None:
    file = DiskFiles(tmp_path).open("f", create=True)
    descriptor = file.fileno()

    del file
    gc.collect()

    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_a_closed_file_refuses_and_may_be_closed_again(file: DiskFile) -> None:
    file.close()
    file.close()

    assert file.fileno() == -1
    for use in (file.size, file.sync, lambda: file.read(0, 1), lambda: file.write(0, [b"x"])):
        with pytest.raises(OSError, match="Bad file descriptor"):
            use()


def test_a_sync_reaches_the_kernel(file: DiskFile, monkeypatch: pytest.MonkeyPatch) -> None:
    if sys.platform != "linux":
        pytest.skip("fdatasync is Linux's")
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", synced.append)

    file.sync()

    assert synced == [file.fileno()]


def test_the_root_is_made_with_its_parents(tmp_path: Path) -> None:
    files = DiskFiles(tmp_path / "a" / "b")
    assert files.list("") == []

    files.make_directory("")
    files.make_directory("")

    assert (tmp_path / "a" / "b").is_dir()


def test_the_root_is_made_durable_from_the_first_parent_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(disk, "_sync_directory", synced.append)

    DiskFiles(tmp_path / "a" / "b").make_directory("")

    assert synced == [tmp_path, tmp_path / "a"]


@pytest.mark.parametrize("below", ["", "data"])
def test_a_file_cannot_be_the_root_nor_hold_it(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("not a directory")

    with pytest.raises(NotADirectoryError):
        DiskFiles(tmp_path / "file" / below).make_directory("")


def test_a_lock_keeps_out_another_process_until_its_holder_dies(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD_LOCK, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        with pytest.raises(BlockingIOError):
            DiskFiles(tmp_path).lock("lock")

        holder.kill()
        holder.wait()

        DiskFiles(tmp_path).lock("lock").close()


HOLD_LOCK = """
import sys
from pathlib import Path
from millstream.storage.files.disk import DiskFiles
lock = DiskFiles(Path(sys.argv[1])).lock("lock")
print("locked", flush=True)
sys.stdin.read()
"""


def test_the_module_can_be_imported_where_there_is_no_fcntl() -> None:
    program = (
        "import sys, os, shutil, pathlib\n"
        "sys.platform = 'win32'\n"
        "sys.modules['fcntl'] = None\n"
        "del os.sysconf, os.sysconf_names, os.O_CLOEXEC\n"
        "from millstream.storage.files.disk import DiskFiles\n"
    )

    subprocess.run([sys.executable, "-c", program], check=True)
