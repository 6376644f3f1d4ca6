"""The tests of `tests.properties.test_rot` over encrypted logs."""

from tests.properties.test_rot import *
