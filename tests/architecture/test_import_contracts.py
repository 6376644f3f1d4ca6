"""Every import contract says why it is there, beside it."""

import re

from tests.support.source_tree import ROOT

CONTRACT = "[[tool.importlinter.contracts]]"


def test_every_contract_has_its_reason_beside_it() -> None:
    _, *contracts = (ROOT / "pyproject.toml").read_text(encoding="utf-8").split(CONTRACT)
    names = [re.search(r'^id = "(.*)"$', text, re.MULTILINE) for text in contracts]

    without = [
        name[1]
        for name, text in zip(names, contracts, strict=True)
        if name is not None and "\n# Why: " not in text
    ]

    assert len(contracts) == len([name for name in names if name is not None])
    assert without == []
