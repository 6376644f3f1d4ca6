"""The commands of the page about roles and ACLs run, one after the other, on a secured node."""

import shlex
from pathlib import Path

from click.testing import CliRunner

from millstream.cli.main import commands
from tests.documents.test_cli_pages import document
from tests.support.documents import blocks
from tests.support.secured import ADMIN, PASSWORD, running_secured, secured_config

LOGIN = {
    "security.protocol": "sasl_plaintext",
    "sasl.mechanism": "PLAIN",
    "sasl.username": ADMIN,
    "sasl.password": PASSWORD,
    "broker.address.family": "v4",
}


def test_every_command_of_the_page_runs(tmp_path: Path) -> None:
    lines = [
        line
        for block in blocks(document("security/roles-and-acls.md"), "bash")
        for line in block.split("\n")
    ]
    settings = [part for key, value in LOGIN.items() for part in ("-X", f"{key}={value}")]
    with running_secured(secured_config(tmp_path), tmp_path) as node:
        server = ["--bootstrap", f"localhost:{node.ports['sasl']}", *settings]
        for line in filter(None, lines):
            _, *arguments = shlex.split(line)
            result = CliRunner().invoke(commands, [*arguments, *server])
            assert result.exit_code == 0, (line, result.output)

        assert "ALLOW User:ann from 10.0.0.0/24 to READ on topic orders" in result.output
