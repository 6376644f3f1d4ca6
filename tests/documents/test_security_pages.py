"""The pages of security: their commands run in order, their settings are configurations."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from millstream.config_sources import load
from millstream.server.listener_specs import listener_specs
from millstream.testing.process import HeldPorts
from tests.support.documents import blocks
from tests.support.source_tree import ROOT

PAGES = ROOT / "docs" / "security"
BIN = Path(sys.executable).parent
READY = "for i in $(seq 300); do millstream whoami > /dev/null 2>&1 && break; sleep 0.1; done\n"


def page(name: str) -> str:
    return (PAGES / name).read_text(encoding="utf-8")


def test_the_commands_of_all_pages_run(tmp_path: Path) -> None:
    ports = HeldPorts()
    port = str(ports.choose("127.0.0.1"))
    start, connect, *others = blocks(page("five-minutes.md"), "sh")
    script = "set -e\n" + "\n".join(
        [
            start.replace("9092", port).strip(),
            "trap 'kill $!' EXIT",
            "for i in $(seq 300); do test -e data/initial-admin-password && break; sleep 0.1; done",
            connect.replace("9092", port).replace("millstream whoami", READY + "millstream whoami"),
            *others,
            *blocks(page("users.md"), "sh"),
            *blocks(page("tls.md"), "sh"),
            *blocks(page("audit.md"), "sh"),
            *blocks(page("governance.md"), "sh"),
            *blocks(page("encryption-at-rest.md"), "sh"),
        ]
    )
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("MILLSTREAM_")}
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env=inherited
        | {
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "XDG_CONFIG_HOME": str(tmp_path / "config"),
            "MILLSTREAM_FLUX_PORT": "0",
            "MILLSTREAM_CLASSIC_PORT": "0",
            "MILLSTREAM_HTTP_PORT": "0",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=380,
    )

    assert done.returncode == 0, done.stderr + done.stdout
    assert "User:admin" in done.stdout
    assert "a long secret" not in done.stdout + done.stderr
    assert "the chain is whole" in done.stdout
    assert "partitions are being rewritten" in done.stdout
    assert (tmp_path / "trail.csv").read_text().startswith("ID,Timestamp,Type,User,ClientIP")


@pytest.mark.parametrize(
    "name", ["tls.md", "users.md", "audit.md", "governance.md", "encryption-at-rest.md"]
)
def test_the_settings_of_a_page_are_configurations(name: str, tmp_path: Path) -> None:
    for text in blocks(page(name), "toml"):
        file = tmp_path / "node.toml"
        if "[tls]" not in text:
            text += '\n[tls]\ncertificate = "c.pem"\nkey = "k.pem"\n'
        file.write_text(text)

        assert listener_specs(load(path=str(file), environment={}))
