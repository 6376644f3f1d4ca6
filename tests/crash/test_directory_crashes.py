"""The power goes at every operation of opening a data directory, using it and leaving it."""

from random import Random

from millstream.model import NodeId
from millstream.storage.files.directory import DataDirectory, open_directory
from tests.support.crashing_files import CrashingFiles, Snapshot


def opened(files: CrashingFiles, seed: int = 0) -> DataDirectory:
    return open_directory(files, "/data", node_id=NodeId(1), entropy=Random(seed))


class Moment:
    """Just before an operation: the disk, the cluster id if one was told, a possible marker."""

    def __init__(self, disk: Snapshot, cluster_id: str | None, *, may_be_clean: bool) -> None:
        self.disk = disk
        self.cluster_id = cluster_id
        self.may_be_clean = may_be_clean


def watched_lives(files: CrashingFiles, lives: int) -> list[Moment]:
    """Open, write something, mark and close, again and again."""
    moments: list[Moment] = []
    cluster_id: str | None = None
    may_be_clean = False

    def watch(kind: str, path: str) -> None:
        moments.append(Moment(files.snapshot(), cluster_id, may_be_clean=may_be_clean))

    files.on_operation = watch
    for life in range(lives):
        directory = opened(files, seed=life)
        cluster_id = directory.cluster_id
        may_be_clean = False
        file = files.open("data", create=True)
        file.write(0, [b"%d" % life])
        file.sync()
        files.sync_directory("")
        may_be_clean = True
        directory.mark_clean()
        directory.close()
    files.on_operation = None
    return moments


def test_a_directory_opens_after_a_power_cut_at_any_operation_and_keeps_its_cluster_id() -> None:
    files = CrashingFiles()

    for number, moment in enumerate(watched_lives(files, 3) * 10):
        files.restore(moment.disk)
        files.power_cut(Random(number), reorder=bool(number % 2))
        directory = opened(files, seed=100)

        assert moment.cluster_id in {None, directory.cluster_id}


def test_a_directory_that_was_being_used_is_never_taken_for_clean() -> None:
    files = CrashingFiles()

    for number, moment in enumerate(watched_lives(files, 3) * 10):
        for worst in (True, False):
            files.restore(moment.disk)
            files.power_cut(Random(number), worst=worst)

            assert moment.may_be_clean or not opened(files).was_clean


def test_a_killed_process_leaves_a_directory_that_opens_and_survives_the_next_power_cut() -> None:
    files = CrashingFiles()

    for moment in watched_lives(files, 2):
        files.restore(moment.disk)
        files.kill()
        cluster_id = opened(files, seed=100).cluster_id
        files.power_cut(worst=True)

        assert opened(files, seed=200).cluster_id == cluster_id
