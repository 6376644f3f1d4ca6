"""Registry clients of npm, Go and Maven, unmodified: register, evolve, refuse, decode."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.interop.programs.building import alone_in, require, run

HERE = Path(__file__).parent
BUILD = HERE / "build"
SECONDS_MAX = 120
QUIETLY = ["--no-package-lock", "--no-audit", "--no-fund"]


def answer_of(command: list[str | Path]) -> Any:  # JSON, as it comes.
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def is_current(stamp: Path, source: Path) -> bool:
    return stamp.exists() and stamp.read_bytes() == source.read_bytes()


def test_node(url: str) -> None:
    node, npm = require("node", "Install Node.js 18 or newer."), require("npm", "See Node.js.")
    build = BUILD / "node"
    with alone_in(BUILD):
        build.mkdir(exist_ok=True)
        stamp, package = build / ".installed", HERE / "node" / "package.json"
        if not is_current(stamp, package):
            shutil.copy(package, build)
            run([npm, "install", *QUIETLY], build, "Installing the registry clients")
            shutil.copy(package, stamp)

    modules = f"NODE_PATH={build / 'node_modules'}"
    answer = answer_of(["env", modules, node, HERE / "node" / "client.js", url])

    confluent, kafkajs = answer["confluent"], answer["kafkajs"]
    assert confluent["decoded"] == kafkajs["decoded"] == {"id": "a"}
    assert confluent["first"] == kafkajs["first"]  # One schema, one id.
    assert confluent["grown"] == kafkajs["grown"] == kafkajs["latest"]
    assert confluent["versions"] == [1, 2]
    assert confluent["refused"] == 409
    assert "incompatible" in str(kafkajs["refused"]) or kafkajs["refused"] == 409
    assert (kafkajs["json"], kafkajs["proto"]) == ({"a": 1}, {"id": "p"})


def test_go(url: str) -> None:
    go = require("go", "Install Go 1.26 or newer.")
    with alone_in(BUILD):
        program = BUILD / "registry-client"
        run([go, "build", "-o", program, "."], HERE / "go", "Building the client of franz-go's sr")

    answer = answer_of([program, url])

    assert answer["grown"] != answer["first"]
    assert (answer["version"], answer["versions"], answer["deleted"]) == (2, [1, 2], [1])
    assert (answer["refused"], answer["compatible"], answer["types"]) == (409, False, 3)
    assert json.loads(answer["schema"])["fields"][1]["name"] == "kg"
    assert (answer["decoded"], answer["proto"]) == ("a", True)


def test_flinks_java_client(url: str) -> None:
    maven, javac = require("mvn", "Install Maven."), require("javac", "Install a JDK 17.")
    java = require("java", "Install a JDK 17.")
    build = BUILD / "java"
    with alone_in(BUILD):
        pom, stamp = HERE / "java" / "pom.xml", build / "pom.xml"
        if not is_current(stamp, pom):
            target = f"-DoutputDirectory={build / 'lib'}"
            goal = "dependency:copy-dependencies"
            run([maven, "-q", "-B", "-f", pom, goal, target], HERE, "Fetching the client")
            shutil.copy(pom, stamp)
        jars = f"{build / 'lib'}/*"
        source = HERE / "java" / "RegistryClient.java"
        run([javac, "-nowarn", "-d", build, "-cp", jars, source], HERE, "Compiling the client")

    answer = answer_of([java, "-cp", f"{build}:{jars}", "RegistryClient", url])

    assert answer["grown"] != answer["first"]
    assert answer["found"] == answer["grown"]
    assert (answer["refused"], answer["passes"]) == (409, False)
    assert answer["verbose"] >= 3
    assert (answer["equal"], answer["same_text"]) == (True, True)
    assert (answer["version"], answer["versions"], answer["level"]) == (1, [1, 2], "FULL")
