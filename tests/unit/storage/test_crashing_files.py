"""The disk of the crash tests loses what a real one may lose, and nothing that was synced."""

import errno
from random import Random

import pytest

from tests.support.crashing_files import SECTOR_BYTES, CrashingFiles


def durable_file(files: CrashingFiles, path: str, data: bytes = b"") -> None:
    file = files.open(path, create=True)
    file.write(0, [data])
    file.sync()
    files.sync_directory("")


def content(files: CrashingFiles, path: str) -> bytes:
    file = files.open(path)
    return file.read(0, file.size())


# -- power cuts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("reorder", [False, True])
def test_what_was_synced_survives_every_power_cut(reorder: bool) -> None:
    for seed in range(50):
        files = CrashingFiles()
        durable_file(files, "f", b"synced")
        files.open("f").write(6, [b"unsynced"])

        files.power_cut(Random(seed), reorder=reorder)

        assert content(files, "f")[:6] == b"synced"


def test_the_worst_power_cut_keeps_nothing_but_what_was_synced() -> None:
    files = CrashingFiles()
    durable_file(files, "f", b"synced")
    files.open("f").write(2, [b"unsynced"])
    files.open("g", create=True).sync()
    files.make_directory("d")

    files.power_cut(worst=True)

    assert files.list("") == ["f"]
    assert content(files, "f") == b"synced"


def test_unsynced_writes_survive_as_a_prefix_with_the_next_one_torn_anywhere() -> None:
    files = CrashingFiles()
    durable_file(files, "f", b"0")
    file = files.open("f")
    for at in range(1, 9, 2):
        file.write(at, [b"%d%d" % (at, at + 1)])
    before = files.snapshot()
    seen = set()

    for seed in range(300):
        files.restore(before)
        files.power_cut(Random(seed))
        seen.add(content(files, "f"))

    assert seen == {b"012345678"[:size] for size in range(1, 10)}


def test_reordered_sectors_leave_holes_of_zeros_and_sizes_without_data() -> None:
    files = CrashingFiles()
    durable_file(files, "f")
    files.open("f").write(0, [b"x" * 3 * SECTOR_BYTES])
    before = files.snapshot()
    seen = set()

    for seed in range(300):
        files.restore(before)
        files.power_cut(Random(seed), reorder=True)
        data = content(files, "f")
        sectors = [data[at : at + SECTOR_BYTES] for at in range(0, len(data), SECTOR_BYTES)]
        seen.add("".join("x" if b"x" in sector else "0" for sector in sectors))

    assert {"", "x", "xx", "xxx", "0xx", "x0x", "00x", "0x", "000"} <= seen


def test_a_truncation_that_was_not_synced_may_be_undone() -> None:
    files = CrashingFiles()
    durable_file(files, "f", b"whole")
    files.open("f").truncate(1)
    before = files.snapshot()
    seen = set()

    for seed in range(50):
        files.restore(before)
        files.power_cut(Random(seed), reorder=bool(seed % 2))
        seen.add(content(files, "f"))

    assert seen == {b"w", b"whole"}


def test_every_byte_of_a_write_can_be_the_last_that_survives() -> None:
    files = CrashingFiles()
    durable_file(files, "f", b"--")
    files.open("f").write(2, [b"abc"])
    files.open("f").write(5, [b"de"])
    before = files.snapshot()

    images = []
    for kept in range(files.unsynced_bytes("f") + 1):
        files.restore(before)
        files.power_cut(kept_bytes=kept)
        images.append(content(files, "f"))

    assert images == [b"--", b"--a", b"--ab", b"--abc", b"--abcd", b"--abcde"]


def test_names_that_were_not_synced_survive_as_a_prefix() -> None:
    files = CrashingFiles()
    durable_file(files, "a")
    files.open("b", create=True)
    files.rename("b", "c")
    files.remove("a")
    before = files.snapshot()
    seen = set()

    for seed in range(100):
        files.restore(before)
        files.power_cut(Random(seed))
        seen.add(tuple(files.list("")))

    assert seen == {("a",), ("a", "b"), ("a", "c"), ("c",)}


def test_directories_lose_their_names_independently() -> None:
    files = CrashingFiles()
    files.make_directory("d")
    files.make_directory("e")
    files.sync_directory("")
    files.open("d/x", create=True)
    files.open("e/x", create=True)
    before = files.snapshot()
    seen = set()

    for seed in range(100):
        files.restore(before)
        files.power_cut(Random(seed))
        seen.add((files.exists("d/x"), files.exists("e/x")))

    assert len(seen) == 4


def test_a_file_replaced_by_one_whose_content_was_not_synced_may_be_empty() -> None:
    files = CrashingFiles()
    durable_file(files, "f", b"old")
    files.open("new", create=True).write(0, [b"new"])
    files.rename("new", "f")
    files.sync_directory("")

    files.power_cut(worst=True)

    assert content(files, "f") == b""


def test_one_seed_gives_one_outcome() -> None:
    outcomes = []
    for _ in range(2):
        files = CrashingFiles()
        for name in "abc":
            files.open(name, create=True).write(0, [name.encode() * 2000])
        files.power_cut(Random(11), reorder=True)
        outcomes.append([(name, content(files, name)) for name in files.list("")])

    assert outcomes[0] == outcomes[1]


def test_handles_die_with_the_power_and_locks_are_free_again() -> None:
    files = CrashingFiles()
    file = files.open("f", create=True)
    lock = files.lock("lock")

    files.power_cut(worst=True)

    for use in (file.size, file.sync, lambda: file.read(0, 1), lambda: file.write(0, [b"x"])):
        with pytest.raises(OSError, match="dead handle") as caught:
            use()
        assert caught.value.errno == errno.EIO
    files.lock("lock")
    lock.close()
    with pytest.raises(BlockingIOError):
        files.lock("lock")


def test_a_killed_process_leaves_the_page_cache_and_it_is_still_unsynced() -> None:
    files = CrashingFiles()
    durable_file(files, "f")
    file = files.open("f")
    file.write(0, [b"cached"])
    files.lock("lock")

    files.kill()

    with pytest.raises(OSError, match="dead handle"):
        file.size()
    files.lock("lock")
    assert content(files, "f") == b"cached"
    files.power_cut(worst=True)
    assert content(files, "f") == b""


# -- the hook and snapshots ------------------------------------------------------------------------


def test_the_hook_sees_every_operation_before_it_happens() -> None:
    files = CrashingFiles()
    seen: list[tuple[str, str]] = []
    files.on_operation = lambda kind, path: seen.append((kind, path))

    files.make_directory("d/e")
    file = files.open("d/f", create=True)
    file.write(0, [b"x"])
    file.truncate(0)
    file.sync()
    file.read(0, 1)
    files.rename("d/f", "d/g")
    files.sync_directory("d")
    files.remove("d/g")
    files.remove_directory("d")

    assert [f"{kind} {path}" for kind, path in seen] == [
        "make_directory d",
        "make_directory d/e",
        "create d/f",
        "write d/f",
        "truncate d/f",
        "sync d/f",
        "rename d/g",
        "sync_directory d",
        "remove d/g",
        "remove d/e",
        "remove d",
    ]
    assert files.operation_count == len(seen)


@pytest.mark.parametrize("kind", ["write", "sync", "create", "rename", "sync_directory", "remove"])
def test_an_operation_does_not_happen_if_the_power_goes_just_before_it(kind: str) -> None:
    files = CrashingFiles()
    durable_file(files, "f", b"old")
    file = files.open("f")

    def cut(operation: str, path: str) -> None:
        if operation == kind:
            files.power_cut(worst=True)

    files.on_operation = cut
    with pytest.raises(OSError, match=r"dead handle|power was cut"):  # noqa: PT012
        file.write(0, [b"new"])
        file.sync()
        files.open("g", create=True)
        files.rename("g", "h")
        files.sync_directory("")
        files.remove("f")

    files.on_operation = None
    assert files.list("") == (["f", "h"] if kind == "remove" else ["f"])
    assert content(files, "f") == (b"old" if kind in {"write", "sync"} else b"new")


def test_a_snapshot_is_not_changed_by_what_follows_nor_by_its_own_use() -> None:
    files = CrashingFiles()
    durable_file(files, "f", b"one")
    files.open("f").write(3, [b"two"])
    before = files.snapshot()
    files.open("f").write(0, [b"XXX"])
    files.open("f").sync()
    files.remove("f")

    for _ in range(2):
        files.restore(before)
        assert content(files, "f") == b"onetwo"
        files.power_cut(worst=True)
        assert content(files, "f") == b"one"
        files.open("f").write(0, [b"after"])


# -- faults ----------------------------------------------------------------------------------------


def test_the_nth_write_fails_after_a_part_of_it() -> None:
    files = CrashingFiles()
    file = files.open("f", create=True)
    files.fail_write(2, kept=3)

    file.write(0, [b"first"])
    with pytest.raises(OSError, match="write failed") as caught:
        file.write(5, [b"sec", b"ond"])
    file.write(8, [b"third"])

    assert caught.value.errno == errno.ENOSPC
    assert content(files, "f") == b"firstsecthird"


def test_a_write_that_does_not_fit_is_cut_and_fails_until_there_is_space() -> None:
    files = CrashingFiles()
    file = files.open("f", create=True)
    files.space_left = 4

    with pytest.raises(OSError, match="write failed"):
        file.write(0, [b"too long"])
    with pytest.raises(OSError, match="no space"):
        files.open("g", create=True)
    file.write(0, [b"TOO "])
    files.space_left += 10
    file.write(4, [b"long"])

    assert content(files, "f") == b"TOO long"
    assert files.space_left == 6


def test_space_comes_back_from_what_is_cut_removed_replaced_or_lost() -> None:
    files = CrashingFiles()
    files.space_left = 100
    for name in ("cut", "removed", "replaced", "new", "lost"):
        files.open(name, create=True).write(0, [b"x" * 10])
    files.sync_directory("")
    assert files.space_left == 50

    files.open("cut").truncate(4)
    assert files.space_left == 56
    files.remove("removed")
    assert files.space_left == 66
    files.rename("new", "replaced")
    assert files.space_left == 76
    files.open("cut").sync()
    files.power_cut(worst=True)
    assert files.space_left == 96


def test_a_failed_sync_loses_bytes_that_reads_still_show() -> None:
    files = CrashingFiles()
    durable_file(files, "f", b"good")
    file = files.open("f")
    file.write(4, [b"lost"])
    files.fail_sync()

    with pytest.raises(OSError, match="sync failed") as caught:
        file.sync()
    file.write(8, [b"more"])
    file.sync()

    assert caught.value.errno == errno.EIO
    assert file.read(0, 20) == b"goodlostmore"
    file.forget_cached()
    assert file.read(0, 20) == b"good\0\0\0\0more"


def test_a_failed_sync_of_a_directory_leaves_its_changes_unsynced() -> None:
    files = CrashingFiles()
    files.open("f", create=True)
    files.fail_sync()

    with pytest.raises(OSError, match="sync failed"):
        files.sync_directory("")

    before = files.snapshot()
    files.power_cut(worst=True)
    assert not files.exists("f")
    files.restore(before)
    files.sync_directory("")
    files.power_cut(worst=True)
    assert files.exists("f")


def test_failures_can_be_called_off() -> None:
    files = CrashingFiles()
    file = files.open("f", create=True)
    files.fail_write()
    files.fail_sync()

    files.heal()

    file.write(0, [b"x"])
    file.sync()


def test_forgetting_the_cache_keeps_what_is_merely_unsynced() -> None:
    files = CrashingFiles()
    file = files.open("f", create=True)
    file.write(0, [b"dirty"])

    file.forget_cached()

    assert file.read(0, 10) == b"dirty"


def test_a_flipped_bit_is_seen_at_once_and_after_a_power_cut() -> None:
    files = CrashingFiles()
    durable_file(files, "f", b"abc")

    files.flip_bit("f", 1, bit=5)

    assert content(files, "f") == b"aBc"
    files.power_cut(worst=True)
    assert content(files, "f") == b"aBc"
