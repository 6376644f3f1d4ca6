"""Runs a broker in a thread of the test's own process: ready at once, every fault possible.

Owns the thread and its event loop, one for each start of the broker. Files in memory and the clock
outlive a start, as a disk and the time of day do.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from millstream.config import Config
from millstream.embedding.broker import Broker
from millstream.ports import Files
from millstream.storage.files.disk import DiskFiles
from millstream.storage.files.memory import MemoryFiles
from millstream.testing.clock import MovableClock, MovableLoop
from millstream.testing.lives import START_SECONDS_MAX, STOP_SECONDS_MAX, with_ports
from millstream.testing.lost_acks import AckLoss, LostAcks, What

T = TypeVar("T")

# The clock is moved in steps, each with a few turns of the loop and a sync, so that what is done
# again and again is done more than once: retention seals a segment first, and deletes it next time.
_STEPS, _TURNS = 8, 3


class InProcess:
    def __init__(self, config: Config) -> None:
        self.config = config
        self._clock = MovableClock()
        self._losses = AckLoss()
        is_in_memory = config.storage == "memory"
        self._files: Files = MemoryFiles() if is_in_memory else DiskFiles(Path(config.data_dir))
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._broker: Broker | None = None
        self._problem: BaseException | None = None  # That ended the last life.
        self._end = asyncio.Event()  # Of this life; belongs to the loop.
        self._go_on = threading.Event()  # Clear while it is paused.

    def start(self) -> None:
        started: Future[None] = Future()
        self._go_on.set()
        self._thread = threading.Thread(
            target=self._live, args=(started,), name="millstream-broker", daemon=True
        )
        self._thread.start()
        try:
            started.result(START_SECONDS_MAX)
        except BaseException:
            self._join()
            raise

    def stop(self) -> None:
        self._tell(self._end.set)
        self._join()

    def kill(self) -> None:
        assert self._broker is not None
        killing = self._submit(self._broker.kill())
        self.resume()
        killing.result(STOP_SECONDS_MAX)
        self.stop()

    def pause(self) -> None:
        """Hold the loop's thread: nothing is read, answered or timed, as under SIGSTOP."""
        has_stopped = threading.Event()
        self._go_on.clear()

        def hold() -> None:
            has_stopped.set()
            self._go_on.wait()

        self._tell(hold)
        if not has_stopped.wait(STOP_SECONDS_MAX):
            raise TimeoutError(f"the broker did not pause in {STOP_SECONDS_MAX} s")

    def resume(self) -> None:
        self._go_on.set()

    def drop_acks(self, of: What, count: int | None) -> LostAcks:
        return self._losses.begin(of, count)

    def advance_clock(self, ms: int) -> None:
        self._submit(self._advance(ms)).result(STOP_SECONDS_MAX)

    def keep_acks(self) -> None:
        self._losses.end_all()

    def create_topic(self, name: str, partitions: int, settings: Mapping[str, object]) -> None:
        assert self._broker is not None
        spelt = {key.replace(".", "_"): _text(value) for key, value in settings.items()}
        creating = self._broker.topics.create(name, partitions=partitions, settings=spelt)
        self._submit(creating).result(STOP_SECONDS_MAX)

    # -- in the thread of the broker -------------------------------------------------------------

    def _live(self, started: "Future[None]") -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: MovableLoop(self._clock)) as runner:
                runner.run(self._serve(started))
        except BaseException as problem:
            if started.done():
                self._problem = problem
            else:
                started.set_exception(problem)

    async def _serve(self, started: "Future[None]") -> None:
        self._loop = asyncio.get_running_loop()
        self._end = asyncio.Event()
        self._broker = Broker(
            self.config,
            clock=self._clock,
            files=self._files,
            interpose=self._losses.interpose,
        )
        async with self._broker:
            ports = {name: at.port for name, at in self._broker.addresses.items()}
            self.config = with_ports(self.config, ports)
            started.set_result(None)
            await self._end.wait()

    async def _advance(self, ms: int) -> None:
        assert self._broker is not None
        for step in range(_STEPS):
            self._clock.ahead_ms += ms * (step + 1) // _STEPS - ms * step // _STEPS
            for _ in range(_TURNS):
                await asyncio.sleep(0)
            await self._broker.sync()

    # -- from the thread of the test -------------------------------------------------------------

    def _tell(self, call: Callable[[], object]) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(call)

    # Any: PEP 492 leaves the yield type to the loop.
    def _submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _join(self) -> None:
        assert self._thread is not None
        self._thread.join(STOP_SECONDS_MAX)
        if self._thread.is_alive():
            raise TimeoutError(f"the broker did not stop in {STOP_SECONDS_MAX} s")
        self._thread = None
        problem, self._problem = self._problem, None
        if problem is not None:
            raise RuntimeError("the broker broke") from problem


def _text(value: object) -> str:
    """A setting as brokers spell it: `true`, not `True`."""
    return str(value).lower() if isinstance(value, bool) else str(value)
