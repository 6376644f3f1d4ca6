"""Limits that fit the machine: defaults are lowered, what was set and does not fit is refused."""

import pytest

from millstream.config import Config, Limits
from millstream.errors import StartupError
from millstream.server.system.machine import DESCRIPTORS_RESERVED, Machine, fit

GIB = 2**30
LARGE = Machine(descriptors_max=1_000_000, memory_bytes=64 * GIB)


def fitted(machine: Machine, **limits: int) -> Limits:
    return fit(Config(limits=Limits(**limits)), machine).limits


def test_a_large_machine_changes_nothing() -> None:
    config = Config()

    assert fit(config, LARGE) is config
    assert fit(config, Machine(None, None)) is config


@pytest.mark.parametrize("allowed", [128, 256, 1024, 4096, 14_063])
def test_defaults_are_lowered_to_what_the_process_may_open(allowed: int) -> None:
    limits = fitted(Machine(allowed, None))

    assert limits.connections_max + limits.open_files_max + DESCRIPTORS_RESERVED <= allowed
    assert limits.connections_max >= limits.open_files_max >= 16


def test_a_limit_that_was_set_is_kept_and_the_other_gets_the_rest() -> None:
    assert fitted(Machine(1024, None), connections_max=900).open_files_max == 60
    assert fitted(Machine(1024, None), open_files_max=900).connections_max == 60


@pytest.mark.parametrize(
    "chosen",
    [
        {"connections_max": 950},
        {"open_files_max": 960},
        {"connections_max": 500, "open_files_max": 500},
    ],
    ids=str,
)
def test_limits_that_were_set_and_do_not_fit_are_one_sentence(chosen: dict[str, int]) -> None:
    with pytest.raises(StartupError, match=r"limits.connections_max = .* may open 1024 files"):
        fitted(Machine(1024, None), **chosen)


def test_a_default_that_was_spelled_out_counts_as_set() -> None:
    with pytest.raises(StartupError, match="connections_max = 10000"):
        fit(Config(), Machine(1024, None), explicit={"connections_max"})


def test_a_process_that_may_open_hardly_anything_does_not_start() -> None:
    with pytest.raises(StartupError, match="may open 100 files and a node needs at least 128"):
        fitted(Machine(100, None))


def test_requests_take_a_quarter_of_a_small_memory_by_default_and_never_more_than_all() -> None:
    small = Machine(None, GIB)

    assert fitted(small).request_bytes_max == GIB // 4
    assert fitted(small, request_bytes_max=GIB - 1).request_bytes_max == GIB - 1
    with pytest.raises(StartupError, match="request_bytes_max = 2147483648 does not fit"):
        fitted(small, request_bytes_max=2 * GIB)
