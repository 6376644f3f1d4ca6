"""Every test in the documents, marked as one, passes as it stands there."""

import re

import pytest

from tests.support.source_tree import ROOT

pytest_plugins = ("pytester",)
pytestmark = pytest.mark.timeout(300)

FENCE = re.compile(r"^```python test\n(.*?)^```", re.MULTILINE | re.DOTALL)

EXAMPLES = [
    pytest.param(code, id=f"{document.name}-{at}")
    for document in sorted((ROOT / "docs").rglob("*.md"))
    for at, code in enumerate(FENCE.findall(document.read_text(encoding="utf-8")))
]


@pytest.mark.parametrize("code", EXAMPLES)
def test_the_example_passes(code: str, pytester: pytest.Pytester) -> None:
    (pytester.path / "test_example.py").write_text(code, encoding="utf-8")

    result = pytester.runpytest_subprocess("-p", "no:xdist", timeout=280)

    result.assert_outcomes(passed=1)
