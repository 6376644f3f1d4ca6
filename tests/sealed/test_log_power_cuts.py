"""The tests of `tests.crash.test_log_power_cuts` over encrypted logs."""

from tests.crash.test_log_power_cuts import *
