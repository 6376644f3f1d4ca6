"""`millstream cluster demo` as a user runs it: nothing is lost, and nothing is left behind."""

import json

from click.testing import CliRunner

from millstream.cli.main import commands


def test_the_demo_loses_nothing() -> None:
    result = CliRunner().invoke(commands, ["cluster", "demo", "--output", "json"])

    assert result.exit_code == 0, result.output
    figures = json.loads(result.stdout)
    assert figures["read"] == {"records": 600, "lost": 0, "twice": 0}
    assert figures["killed"]["seconds_without_acknowledgement"] >= 0
