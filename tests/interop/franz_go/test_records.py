"""franz-go writes records and reads the same ones back."""

import pytest

from tests.interop.programs.records import Records

pytestmark = pytest.mark.interop


class TestRecords(Records): ...
