"""The tests of `tests.properties.test_compaction_against_a_model` over encrypted logs."""

from tests.properties.test_compaction_against_a_model import *
