"""Cuts items into chunks of limited count and bytes, for writes of bounded size.

Pure. An item larger than `bytes_max` makes a chunk of its own, so it is still written.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def chunked(
    items: Iterable[T], size_of: Callable[[T], int], *, count_max: int, bytes_max: int
) -> Iterator[list[T]]:
    """Yield `items` in order, in lists within both limits."""
    chunk: list[T] = []
    size = 0
    for item in items:
        item_size = size_of(item)
        if chunk and (len(chunk) >= count_max or size + item_size > bytes_max):
            yield chunk
            chunk, size = [], 0
        chunk.append(item)
        size += item_size
    if chunk:
        yield chunk
