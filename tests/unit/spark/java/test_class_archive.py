"""An archive of classes is made a few times at most, used when whole, and never in the way."""

import os
from pathlib import Path

import pytest

from millstream.spark.java import class_archive
from millstream.spark.java.class_archive import RICH_BYTES, TRIES_MAX, Java, choose, discard

MAGIC = b"\xa8\xab\x0b\xf0"
MADE, USED = "-XX:ArchiveClassesAtExit=", "-XX:SharedArchiveFile="


class Machine:
    """A Java with a base archive, Spark's jars, and a directory that lasts."""

    def __init__(self, root: Path) -> None:
        self.root = root
        base = root / "java" / "lib" / "server"
        base.mkdir(parents=True)
        (base / "classes.jsa").touch()
        (root / "jars").mkdir()
        self.jar("spark.jar", b"1")
        (root / "cache").mkdir()
        self.java = Java(17, str(root / "java"), "17.0.1")

    def jar(self, name: str, content: bytes) -> None:
        (self.root / "jars" / name).write_bytes(content)

    def options(self, environment: dict[str, str] | None = None, **conf: str) -> str:
        named = {name.replace("_", "."): text for name, text in conf.items()}
        jars, cache = self.root / "jars", self.root / "cache"
        return choose(self.java, jars, cache, environment or {}, named).options

    def dump(self, size: int, magic: bytes = MAGIC) -> None:
        """Do what a JVM does at its end."""
        (name,) = [word for word in self.options().split() if word.startswith(MADE)]
        with Path(name.removeprefix(MADE)).open("wb") as file:
            file.write(magic)
            file.truncate(size)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr(class_archive, "DISK_FREE_BYTES_MIN", 0)
    return Machine(tmp_path)


def test_the_first_session_makes_an_archive_and_the_next_ones_use_it(machine: Machine) -> None:
    assert MADE in machine.options()
    machine.dump(RICH_BYTES)

    assert [USED in machine.options() for _ in range(5)] == [True] * 5


def test_a_session_that_did_little_is_not_the_last_word(machine: Machine) -> None:
    machine.dump(1000)
    assert MADE in machine.options()
    machine.dump(1000)

    assert USED in machine.options()


@pytest.mark.parametrize("size", [0, 1000, RICH_BYTES])
def test_an_archive_that_was_cut_off_is_not_used(machine: Machine, size: int) -> None:
    machine.dump(size, magic=b"")

    assert USED not in machine.options()


def test_an_archive_that_lost_a_part_is_not_used(machine: Machine) -> None:
    machine.dump(RICH_BYTES + 5)
    assert USED in machine.options()

    (archive,) = (machine.root / "cache").glob("*.jsa")
    os.truncate(archive, RICH_BYTES)

    assert USED not in machine.options()


def test_what_a_power_cut_may_have_cut_off_is_made_anew(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.dump(RICH_BYTES)
    monkeypatch.setattr(class_archive, "_boot", lambda: "another")
    assert MADE in machine.options()

    machine.dump(RICH_BYTES)
    assert USED in machine.options()
    monkeypatch.setattr(class_archive, "_boot", lambda: "a third one")
    assert USED in machine.options()


def test_an_archive_that_a_session_did_not_start_with_is_given_up(machine: Machine) -> None:
    machine.dump(RICH_BYTES)
    (archive,) = (machine.root / "cache").glob("*.jsa")

    discard(archive)

    assert machine.options() == ""
    assert not archive.exists()


def test_what_can_not_be_made_is_given_up(machine: Machine) -> None:
    tried = [MADE in machine.options() for _ in range(TRIES_MAX + 2)]

    assert tried == [True] * TRIES_MAX + [False, False]
    assert machine.options() == ""


def test_other_jars_and_another_java_have_another_archive(machine: Machine) -> None:
    machine.dump(RICH_BYTES)
    machine.jar("spark.jar", b"1.1")
    assert USED not in machine.options()

    machine.jar("spark.jar", b"1")
    assert USED in machine.options()
    machine.java = machine.java._replace(version="17.0.2")
    assert USED not in machine.options()


def test_a_class_path_that_can_not_be_archived_is_left_alone(machine: Machine) -> None:
    machine.dump(RICH_BYTES)

    assert machine.options({"SPARK_CONF_DIR": "/etc/spark"}) == ""
    assert machine.options(spark_driver_extraClassPath="/a.jar") == ""
    assert machine.options(spark_driver_extraJavaOptions="-Xint") == ""


def test_a_java_without_a_base_archive_is_left_alone(machine: Machine) -> None:
    (machine.root / "java" / "lib" / "server" / "classes.jsa").unlink()
    assert machine.options() == ""
    machine.java = machine.java._replace(home="")
    assert machine.options() == ""


def test_a_full_disk_and_a_foreign_directory_cost_nothing(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(class_archive, "DISK_FREE_BYTES_MIN", 2**62)
    assert machine.options() == ""
    monkeypatch.setattr(class_archive, "DISK_FREE_BYTES_MIN", 0)
    (machine.root / "cache").rmdir()
    assert machine.options() == ""
