"""The tests of `tests.crash.test_repair_power_cuts` over encrypted logs."""

from tests.crash.test_repair_power_cuts import *
