"""`pytest tests/golden --update` rewrites what golden files expect: read the diff then."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="rewrite golden files")


@pytest.fixture
def is_update(request: pytest.FixtureRequest) -> bool:
    # The option exists only when pytest was pointed at this directory.
    return bool(request.config.getoption("--update", default=False))
