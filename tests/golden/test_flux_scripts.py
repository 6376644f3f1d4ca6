"""Conversations at the Flux door; a file's name is its claim."""

from pathlib import Path

import pytest

from tests.golden.flux_script import SCRIPTS, run_script


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_the_conversation_goes_as_told(script: Path, is_update: bool) -> None:
    told = script.read_text()

    came_of_it = run_script(told)

    if is_update:
        script.write_text(came_of_it)
    else:
        assert came_of_it == told
