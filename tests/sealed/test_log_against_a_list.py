"""The tests of `tests.properties.test_log_against_a_list` over encrypted logs."""

from tests.properties.test_log_against_a_list import *
