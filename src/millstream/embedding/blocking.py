"""A broker for programs without an event loop: the same `Broker`, with a loop in a thread.

Owns the thread and its loop. Every call to the broker runs there; the caller waits for its result.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from inspect import isawaitable
from types import TracebackType
from typing import Any, Self, TypeVar, overload

from millstream.config import Config
from millstream.embedding.broker import Broker

T = TypeVar("T")


class BlockingBroker:
    """`with BlockingBroker(BrokerConfig(...)) as broker:` serves clients inside the block.

    Entering raises `StartupError` with one sentence if it cannot. Threads may share it.
    """

    def __init__(self, config: Config | None = None) -> None:
        self._config = config
        self._thread = threading.Thread(target=self._live, name="millstream-broker", daemon=True)
        self._started: Future[Broker] = Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Event | None = None
        self._problem: BaseException | None = None  # That ended it after its start.

    @property
    def bootstrap(self) -> str:
        """The address, as clients take it in `bootstrap.servers`."""
        return self._broker.bootstrap

    @property
    def host(self) -> str:
        return self._broker.host

    @property
    def port(self) -> int:
        return self._broker.port

    # Any: PEP 492 leaves the yield type to the loop.
    @overload
    def call(self, work: Callable[[Broker], Coroutine[Any, Any, T]]) -> T: ...
    @overload
    def call(self, work: Callable[[Broker], T]) -> T: ...
    def call(self, work: Callable[[Broker], Any]) -> Any:
        """Do something with the broker, and return what it returns, awaited if it can be.

        `broker.call(lambda b: b.topics.create("orders"))`
        """
        broker, loop = self._broker, self._loop
        if loop is None or not self._thread.is_alive():
            raise RuntimeError("the broker is not running any more")
        return asyncio.run_coroutine_threadsafe(_done(work, broker), loop).result()

    def __enter__(self) -> Self:
        if self._thread.ident is not None:
            raise RuntimeError("a BlockingBroker is entered once; make another one")
        self._thread.start()
        try:
            self._started.result()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()
        if problem is None and self._problem is not None:  # What the block raised says more.
            raise self._problem

    @property
    def _broker(self) -> Broker:
        if not self._started.done():
            raise RuntimeError("the broker is not running: use `with BlockingBroker(...)`")
        return self._started.result()

    def _stop(self) -> None:
        if self._loop is not None and self._end is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()

    # -- in the thread of the broker -------------------------------------------------------------

    def _live(self) -> None:
        try:
            asyncio.run(self._serve())
        # It is raised by the thread that entered the broker.
        except BaseException as problem:
            if self._started.done():
                self._problem = problem
            else:
                self._started.set_exception(problem)

    async def _serve(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        async with Broker(self._config) as broker:
            self._started.set_result(broker)
            await self._end.wait()


async def _done(work: Callable[[Broker], Any], broker: Broker) -> Any:
    result = work(broker)
    return await result if isawaitable(result) else result
