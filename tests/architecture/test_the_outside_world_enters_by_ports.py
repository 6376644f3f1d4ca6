"""Time, randomness, files, threads and sockets enter through `ports.py` and nowhere else."""

import ast

import pytest

from tests.support.source_tree import dotted, modules

# The modules that make real ports, and those that stand outside of the node.
REAL_PORTS = {
    "config_sources.py",
    "server/system/descriptors.py",
    "server/system/dev_certificates.py",
    "server/system/machine.py",
    "server/system/otlp.py",
    "server/system/process.py",
    "server/system/protoc.py",
    "server/system/real_ports.py",
    "server/system/secrets.py",
    "server/system/tls.py",
    "storage/files/disk.py",
}
OUTSIDE = (
    "benchmark.py",
    "classic.py",
    "cli/",
    "client/",
    "demo/",
    "embedding/",
    "kafka_client/",
    "pytest_plugin.py",
    "spark/",
    "testing/",
    "verify/",
)

FORBIDDEN_MODULES = {
    "datetime",
    "fcntl",
    "io",
    "mmap",
    "os",
    "pathlib",
    "random",
    "resource",
    "secrets",
    "shutil",
    "socket",
    "subprocess",
    "tempfile",
    "threading",
    "time",
}
# `Random` is a type that is passed in, `BytesIO` is memory; others would open the world.
ALLOWED_NAMES = {("random", "Random"), ("io", "BytesIO")}
FORBIDDEN_CALLS = {"open", "asyncio.to_thread", "uuid.uuid4", "uuid4", "asyncio.open_connection"}


def violations(tree: ast.Module) -> list[str]:
    collected = []
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                collected += [n.name for n in names if n.name.split(".")[0] in FORBIDDEN_MODULES]
            case ast.ImportFrom(module=str(module), names=names):
                if module.split(".")[0] in FORBIDDEN_MODULES:
                    pairs = {(module, n.name) for n in names} - ALLOWED_NAMES
                    collected += [f"{m}.{n}" for m, n in pairs]
            case ast.Call(func=func) if dotted(func) in FORBIDDEN_CALLS:
                collected.append(f"{dotted(func)}()")
            case ast.Call(func=ast.Attribute(attr="run_in_executor")):
                collected.append("run_in_executor()")
    return collected


def test_only_real_ports_touch_the_outside_world() -> None:
    inside = [path for path in modules() if path not in REAL_PORTS and not path.startswith(OUTSIDE)]
    touching = {path: violations(modules()[path]) for path in inside}

    assert {path: names for path, names in touching.items() if names} == {}


def test_the_real_ports_exist_and_are_needed() -> None:
    assert [path for path in sorted(REAL_PORTS) if not violations(modules()[path])] == []
    assert [path for path in OUTSIDE if not any(name.startswith(path) for name in modules())] == []


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "import os.path",
        "from random import randint",
        "from pathlib import Path",
        "open('x')",
        "import asyncio\nasyncio.to_thread(print)",
        "self._loop.run_in_executor(None, print)",
    ],
)
def test_the_check_sees_each_way_around_the_ports(source: str) -> None:
    assert violations(ast.parse(source))
