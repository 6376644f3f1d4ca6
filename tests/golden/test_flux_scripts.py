"""Conversations over the Flux protocol; a file's name is its claim."""

from pathlib import Path

import pytest

from tests.golden.flux_script import run_script
from tests.support.golden import check_script, scripts


@pytest.mark.parametrize("script", scripts("flux"), ids=lambda script: script.stem)
def test_the_conversation_goes_as_told(script: Path, is_update: bool) -> None:
    check_script(script, run_script, is_update=is_update)
