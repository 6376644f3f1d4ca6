"""A file of tests that leaves a socket pair open is named; what is closed or collected is not."""

import asyncio
import gc
import socket

import pytest

from tests.support.open_descriptors import open_descriptors, pairs_left_open


def test_an_event_loop_that_was_not_closed_is_seen() -> None:
    before = open_descriptors()
    loop = asyncio.SelectorEventLoop()

    assert len(pairs_left_open(before)) == 2

    loop.close()
    assert pairs_left_open(before) == []


def test_other_sockets_may_stay_open() -> None:
    before = open_descriptors()

    with socket.create_server(("127.0.0.1", 0)):
        assert pairs_left_open(before) == []


def test_garbage_warns_in_the_file_that_left_it() -> None:
    before = open_descriptors()
    gc.disable()
    try:
        left: list[object] = [*socket.socketpair()]
        left.append(left)  # A cycle, as clients and their threads are.
        del left
        with pytest.warns(ResourceWarning, match="unclosed"):
            assert pairs_left_open(before) == []
    finally:
        gc.enable()
