"""Tests of power cuts, rot and models, run a second time over encrypted logs."""

from collections.abc import Iterator

import pytest

from tests.support.sealed import sealing


@pytest.fixture(autouse=True)
def sealed() -> Iterator[None]:
    with sealing():
        yield
