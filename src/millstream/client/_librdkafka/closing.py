"""`with` and `async with` for objects that have to be closed.

Invariant: an error of the block is raised, also when closing fails after it.
"""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from millstream.client.errors import ClientError


class Closing(ABC):
    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except ClientError:
            if problem is None:
                raise


class AsyncClosing(ABC):
    @abstractmethod
    async def close(self) -> None: ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self.close()
        except ClientError:
            if problem is None:
                raise
