"""librdkafka's own tests of ACLs, logins and TLS, built from source, against a secured broker."""

import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.kafka.install import NODE_RDKAFKA_VERSION, cache_directory

from millstream.server.system.dev_certificates import make_dev_certificates
from tests.interop.programs.building import alone_in, require, run
from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.interop

BUILD_SECONDS_MAX = 1_800
SUITE_SECONDS_MAX = 300
KAFKA_VERSION = "3.4.0"  # What its tests take the broker for.
USER, PASSWORD = "admin", "admin-secret"
SESSION_MS = 10_000
# What the system may not have, and what no test here needs.
WITHOUT = ("gssapi", "curl", "zstd", "lz4-ext")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
# Of its tests, by number: parts of 0081 by name, others whole.
ACLS, PRODUCE_AND_CONSUME, LOGIN_CHANGES, LOGIN_AGAIN = "0081", "0012", "0135", "0142"


@pytest.fixture(scope="module")
def runner() -> Path:
    """`test-runner`, made once for all runs: its sources are part of the package for Node."""
    for tool in ("npm", "cc", "c++", "make"):
        require(tool, "librdkafka's tests are built from source.")
    home = cache_directory() / f"librdkafka-tests-{NODE_RDKAFKA_VERSION}"
    home.parent.mkdir(parents=True, exist_ok=True)
    folder = home / "package" / "deps" / "librdkafka"
    with alone_in(home):
        if not (home / "complete").exists():
            shutil.rmtree(home / "package", ignore_errors=True)
            step(["npm", "pack", "--silent", f"node-rdkafka@{NODE_RDKAFKA_VERSION}"], home)
            with tarfile.open(home / f"node-rdkafka-{NODE_RDKAFKA_VERSION}.tgz") as archive:
                archive.extractall(home, filter="data")
            step(["./configure", *(f"--disable-{part}" for part in WITHOUT)], folder)
            for part, target in (("src", "all"), ("src-cpp", "all"), ("tests", "test-runner")):
                step(["make", "-j2", "-C", part, target], folder)
            (home / "complete").touch()
    return folder / "tests"


def step(command: list[str], folder: Path) -> None:
    run(command, folder, " ".join(command), seconds_max=BUILD_SECONDS_MAX)


class Secured:
    def __init__(self, process: BrokerProcess, files: Path) -> None:
        self.process = process
        self.files = files

    def configuration(self, mechanism: str) -> str:
        settings = {
            "metadata.broker.list": f"localhost:{self.process.port}",
            "broker.address.family": "v4",
            "security.protocol": "SASL_SSL",
            "sasl.mechanisms": mechanism,
            "sasl.username": USER,
            "sasl.password": PASSWORD,
            "ssl.ca.location": self.files / "ca.pem",
            "test.timeout.multiplier": 3,
        }
        return "".join(f"{name}={value}\n" for name, value in settings.items())


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    home = tmp_path_factory.mktemp("secured")
    make_dev_certificates(home / "tls")
    password = home / "password"
    password.touch(mode=0o600)
    password.write_text(PASSWORD, encoding="utf-8")
    process = BrokerProcess(
        home,
        DEFAULT_PARTITIONS=4,
        TIMING__GROUP_INITIAL_REBALANCE_DELAY_MS=100,
        SECURITY__PROTOCOL="sasl_tls",
        SECURITY__ADMIN_USER=USER,
        SECURITY__ADMIN_PASSWORD=f"file:{password}",
        SECURITY__SESSION_MS_MAX=SESSION_MS,
        TLS__CERTIFICATE=home / "tls" / "server.pem",
        TLS__KEY=home / "tls" / "server.key",
    )
    process.start()
    yield Secured(process, home / "tls")
    process.kill()


@pytest.mark.timeout(BUILD_SECONDS_MAX + SUITE_SECONDS_MAX)
@pytest.mark.parametrize(
    ("number", "part", "mechanism"),
    [
        (ACLS, "Acls", "SCRAM-SHA-512"),
        *((PRODUCE_AND_CONSUME, "", mechanism) for mechanism in MECHANISMS),
        *((LOGIN_AGAIN, "", mechanism) for mechanism in MECHANISMS),
        (LOGIN_CHANGES, "", "SCRAM-SHA-256"),
    ],
)
def test_its_own_tests_pass(
    runner: Path, secured: Secured, tmp_path: Path, number: str, part: str, mechanism: str
) -> None:
    configuration = tmp_path / "test.conf"
    configuration.write_text(secured.configuration(mechanism), encoding="utf-8")
    libraries = f"{runner.parent / 'src'}:{runner.parent / 'src-cpp'}"
    done = subprocess.run(
        ["./test-runner", "-Q", "-p1"],
        cwd=runner,
        env={
            **os.environ,
            "LD_LIBRARY_PATH": libraries,
            "RDKAFKA_TEST_CONF": str(configuration),
            "TESTS": number,
            "TEST_KAFKA_VERSION": KAFKA_VERSION,
            "KAFKA_VERSION": KAFKA_VERSION,
            **({"SUBTESTS": part} if part else {}),
        },
        capture_output=True,
        text=True,
        errors="replace",
        timeout=SUITE_SECONDS_MAX,
        check=False,
    )

    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-8_000:]
    assert re.search(rf"Test {number}_\w+ PASSED", said), "skipped: " + said[-3_000:]
