"""Things that are written together: no more than so many, and no more than so many bytes.

Pure. One thing goes by itself however large it is, or it could never be written.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def chunked(
    items: Iterable[T], size_of: Callable[[T], int], *, count_max: int, bytes_max: int
) -> Iterator[list[T]]:
    """Cut `items` into lists that keep within both bounds, in their order."""
    some: list[T] = []
    size = 0
    for item in items:
        item_size = size_of(item)
        if some and (len(some) >= count_max or size + item_size > bytes_max):
            yield some
            some, size = [], 0
        some.append(item)
        size += item_size
    if some:
        yield some
