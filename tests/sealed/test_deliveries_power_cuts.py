"""The tests of `tests.properties.test_deliveries_power_cuts` over encrypted logs."""

from tests.properties.test_deliveries_power_cuts import *
