"""Keeps garbage collection cheap in a process that runs thousands of tests.

Some two hundred tests call `gc.collect()`, to meet a coroutine that was never awaited or a socket
left open. It walks all that is alive: a second of CPU for each million objects.
"""

import gc

OBJECTS_MAX = 100_000  # A tenth of a second.


def leave_out_what_stays(objects_max: int = OBJECTS_MAX) -> None:
    """Take what is alive out of garbage collection if it is much: modules and caches stay."""
    if len(gc.get_objects()) > objects_max:
        gc.collect()  # What is garbage warns of what it left open.
        gc.freeze()
