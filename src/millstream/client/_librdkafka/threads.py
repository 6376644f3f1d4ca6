"""Runs blocking calls for asyncio in a few threads.

Owns the pool of one client or consumer; its threads bound the calls under way.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
# The opened object is a context manager itself: `async with` leaves it as its own would.
Opened = TypeVar("Opened", bound="AbstractAsyncContextManager[Any]")


class Threads:
    def __init__(self, count: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix=name)

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, lambda: call(*args, **kwargs))

    def close(self) -> None:
        self._pool.shutdown(wait=False)


class Opening(Generic[Opened]):
    """`async with client.consumer(...) as consumer`, or `consumer = await client.consumer(...)`."""

    # Any: PEP 492 leaves the yield type to the loop.
    def __init__(self, opener: Callable[[], Coroutine[Any, Any, Opened]]) -> None:
        self._open = opener
        self._opened: Opened | None = None

    def __await__(self) -> Generator[Any, None, Opened]:
        return self._open().__await__()

    async def __aenter__(self) -> Opened:
        opened = self._opened = await self._open()
        await opened.__aenter__()
        return opened

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._opened is not None
        await self._opened.__aexit__(kind, problem, trace)
