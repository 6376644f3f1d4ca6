"""One node for all tests of a module that change only what they made themselves."""

from collections.abc import Iterator

import pytest

from tests.support.http import HttpClient, HttpNode, http_node


@pytest.fixture(scope="module")
def node() -> Iterator[HttpNode]:
    with http_node() as started:
        yield started


@pytest.fixture
def ask(node: HttpNode) -> HttpClient:
    return node.ask
