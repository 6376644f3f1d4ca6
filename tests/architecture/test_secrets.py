"""Secrets are compared in constant time, and what protects a node costs nothing unused."""

import ast
import subprocess
import sys

from tests.support.source_tree import dotted, modules

SECRET_WORDS = ("password", "stored_key", "server_key", "proof", "signature", "nonce", "token")
WHERE = ("engine/sasl/", "engine/access/", "kafka_client/sasl.py")
NEVER = {"eval", "exec", "pickle.loads", "marshal.loads", "yaml.load", "os.system"}


# Makes the codecs of Kafka's messages from our own tables: no byte of it comes from outside.
COMPILES = {"kafka_wire/source.py"}


def is_secret(node: ast.expr) -> bool:
    name = dotted(node) or ""
    return name.rpartition(".")[2].lstrip("_") in SECRET_WORDS


def test_no_secret_is_compared_with_equals() -> None:
    leaks = [
        f"{path}:{node.lineno}"
        for path, tree in modules().items()
        if path.startswith(WHERE)
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        and any(isinstance(op, ast.Eq | ast.NotEq) for op in node.ops)
        and any(is_secret(side) for side in (node.left, *node.comparators))
    ]

    assert [place for place in leaks if not place.startswith("kafka_client/sasl.py")] == []


def test_no_code_is_made_of_data() -> None:
    leaks = [
        f"{path}:{node.lineno}"
        for path, tree in modules().items()
        if path not in COMPILES
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and (
            dotted(node.func) in NEVER
            or any(
                word.arg == "shell" and getattr(word.value, "value", None) is True
                for word in node.keywords
            )
        )
    ]

    assert leaks == []


def test_without_security_nothing_of_it_is_imported() -> None:
    program = """
import asyncio, sys
from millstream.config import Config
from millstream.server.service import Service
from millstream.server.system.real_ports import real_ports

async def live():
    config = Config(storage="memory", port=0)
    service = Service(config, real_ports(config))
    async def end():
        await service.opened.wait()
        service.stop()
    await asyncio.gather(service.run(), end())

asyncio.run(live())
print(sorted({name.split(".")[0] for name in sys.modules} & {"cryptography", "jwt"}))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )

    assert done.stdout.strip() == "[]", done.stderr
