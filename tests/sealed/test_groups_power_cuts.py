"""The tests of `tests.properties.test_groups_power_cuts` over encrypted logs."""

from tests.properties.test_groups_power_cuts import *
