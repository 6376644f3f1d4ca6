"""The tests of `tests.crash.test_compaction_power_cuts` over encrypted logs."""

from tests.crash.test_compaction_power_cuts import *
