"""kafkajs in groups."""

import pytest

from tests.interop.programs.groups import Groups

pytestmark = pytest.mark.interop


class TestGroups(Groups):
    # It has no callback to commit in before it gives partitions up.
    reads_once = False
