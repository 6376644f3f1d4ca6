"""The data directory is its owner's alone."""

from pathlib import Path

from millstream.storage.files.disk import DiskFiles


def test_files_and_directories_are_their_owners_alone(tmp_path: Path) -> None:
    root = tmp_path / "data"
    root.mkdir(mode=0o755)
    files = DiskFiles(root)

    files.make_directory("")
    files.make_directory("logs/a")
    files.open("logs/a/x", create=True).close()

    modes = [path.stat().st_mode & 0o777 for path in (root, root / "logs/a", root / "logs/a/x")]
    assert modes == [0o700, 0o700, 0o600]
