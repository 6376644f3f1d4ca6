"""franz-go logs in at a secured node."""

import pytest

from tests.interop.programs.secured import Secured, secured

__all__ = ["secured"]
pytestmark = pytest.mark.interop


class TestSecured(Secured): ...
