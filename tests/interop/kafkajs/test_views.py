"""kafkajs reads a view like any topic."""

import pytest

from tests.interop.programs.views import Views

pytestmark = pytest.mark.interop


class TestViews(Views): ...
