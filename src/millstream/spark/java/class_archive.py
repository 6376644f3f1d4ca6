"""Keeps Java's archive of loaded classes (AppCDS), so that later JVMs start faster.

Decides whether an archive is used, made, or left alone. Reading, checking and linking twenty
thousand classes is a good part of the time of a session's first job. A JVM ignores an archive that
is stale or of other jars, but a truncated archive kills it. So an archive that a crash may have
truncated is not used, and a session that does not start with an archive is started without one.
"""

import hashlib
import os
import re
import shutil
import struct
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

JAVA_SECONDS_MAX = 60
# An archive is made at the end of a JVM's life, of what it had loaded: after one that did little,
# another one is made. Never more often than this.
TRIES_MAX = 3
RICH_BYTES = 165 * 2**20  # Of a session that ran a streaming query; a bare one leaves 145 MiB.
DISK_FREE_BYTES_MIN = 2 * 2**30

# The header is written last: before that, an archive does not begin with it.
_MAGIC = struct.pack("<I", 0xF00BABA8)
_MAJOR = re.compile(r'version "(?P<major>\d+)')
_HOME = re.compile(r"^\s*java\.home = (?P<home>.+)$", re.MULTILINE)
_REPLACED = frozenset({"spark.driver.extraClassPath", "spark.driver.extraJavaOptions"})
# About archives that do not fit, a JVM would complain on the standard output.
_QUIET = "-Xlog:disable -Xlog:all=error:stderr"


class Choice(NamedTuple):
    """The options of a JVM, and the archive that they name, if any."""

    options: str = ""
    used: Path | None = None


class Java(NamedTuple):
    """Version and home of a Java; the home is empty if it is unknown."""

    major: int | None
    home: str
    version: str


@cache
def ask(java: Path) -> Java:
    """Run it and ask. Raises `OSError` or `SubprocessError` if it does not run."""
    result = subprocess.run(
        [java, "-XshowSettings:properties", "-version"],
        capture_output=True,
        text=True,
        timeout=JAVA_SECONDS_MAX,
        check=True,
    )
    output = result.stderr + result.stdout
    major, home = _MAJOR.search(output), _HOME.search(output)
    version = output[major.start() :] if major else ""
    return Java(int(major["major"]) if major else None, home["home"] if home else "", version)


def choose(
    java: Java, jars: Path, directory: Path, environment: Mapping[str, str], conf: Mapping[str, str]
) -> Choice:
    """The options of a JVM that is about to start; none where an archive is of no use.

    `directory` is one that lasts. Called once for each JVM: it counts.
    """
    base = Path(java.home) / "lib" / "server" / "classes.jsa"
    # Classes of directories can't be archived, other jars would not fit, and a session with
    # Java options of its own does not get these.
    is_own = "SPARK_CONF_DIR" in environment or not _REPLACED.isdisjoint(conf)
    if is_own or not java.home or not base.exists() or " " in str(directory):
        return Choice()
    archive = directory / f"classes-{_key(java, jars)}.jsa"
    try:
        return _choose(archive)
    except (OSError, ValueError):
        return Choice()  # A disk that is full, or files that are not ours.


def discard(archive: Path) -> None:
    """Never use it again, nor make another."""
    archive.with_suffix(".tries").write_text(f"{TRIES_MAX} -", encoding="ascii")
    archive.unlink(missing_ok=True)


def _choose(archive: Path) -> Choice:
    notes = archive.with_suffix(".tries")  # How often it was made, and when the machine started.
    count, boot = notes.read_text("ascii").split() if notes.exists() else ("0", "")
    tries = int(count)
    size = _sealed(archive, is_same_boot=boot == _boot())
    if size >= RICH_BYTES or (size and tries >= TRIES_MAX):
        return Choice(f" -XX:SharedArchiveFile={archive} {_QUIET}", archive)
    if tries >= TRIES_MAX or shutil.disk_usage(archive.parent).free < DISK_FREE_BYTES_MIN:
        return Choice()
    for old in (archive, archive.with_suffix(".sealed")):
        old.unlink(missing_ok=True)  # Or it would be taken for the one that is made now.
    notes.write_text(f"{tries + 1} {_boot()}", encoding="ascii")
    return Choice(f" -XX:ArchiveClassesAtExit={archive} {_QUIET}")


def _key(java: Java, jars: Path) -> str:
    """Another Java, or other jars, have another archive."""
    names = sorted(f"{jar.name} {jar.stat().st_size}" for jar in jars.glob("*.jar"))
    return hashlib.sha256("\n".join([java.home, java.version, *names]).encode()).hexdigest()[:12]


def _sealed(archive: Path, *, is_same_boot: bool) -> int:
    """How large it is; 0 if there is none, or none that is known to be whole.

    One that was made since the machine started is whole when it has its header. It is put on the
    disk then, and its size is noted; without that note, a power cut may have taken parts of it.
    """
    if not archive.exists():
        return 0
    size, seal = archive.stat().st_size, archive.with_suffix(".sealed")
    if seal.exists():
        return size if seal.read_text("ascii") == str(size) else 0
    with archive.open("rb") as file:
        if not is_same_boot or file.read(len(_MAGIC)) != _MAGIC:
            return 0
        os.fsync(file.fileno())
    seal.write_text(str(size), encoding="ascii")
    return size


def _boot() -> str:
    """Which start of the machine this is; a dash where it does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return "-"
