"""The tests of `tests.properties.test_delayed_power_cuts` over encrypted logs."""

from tests.properties.test_delayed_power_cuts import *
