"""Work on real threads: outcomes come back to the loop, whatever became of who waits."""

import asyncio
import threading

import pytest

from millstream.config import Config
from millstream.errors import OutOfResources
from millstream.server.system.real_ports import THREADS_MAX, WorkerThreads, real_ports
from tests.support.line_server import LOOPS, run_on

SECONDS_MAX = 20


@pytest.mark.parametrize("loop", LOOPS)
def test_results_and_problems_come_back(loop: str) -> None:
    async def main() -> None:
        threads = WorkerThreads()

        assert await threads.run(lambda: threading.current_thread().name) != "MainThread"
        with pytest.raises(ZeroDivisionError):
            await threads.run(lambda: 1 // 0)
        assert await threads.run(lambda: "still working") == "still working"

    run_on(loop, main())


def test_jobs_run_side_by_side_up_to_the_number_of_threads() -> None:
    async def main() -> None:
        threads = WorkerThreads()
        together = threading.Barrier(THREADS_MAX)

        await asyncio.gather(
            *[threads.run(lambda: together.wait(SECONDS_MAX)) for _ in range(THREADS_MAX)]
        )

        jobs = [threads.run(lambda number=number: number) for number in range(50)]  # type: ignore[misc]
        assert await asyncio.gather(*jobs) == list(range(50))

    run_on("asyncio", main())


def test_without_another_thread_work_waits_for_those_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        threads, nothing = WorkerThreads(), WorkerThreads()
        await threads.run(lambda: None)
        monkeypatch.setattr(threading.Thread, "start", refuse)

        jobs = [threads.run(lambda number=number: number) for number in range(20)]  # type: ignore[misc]

        assert await asyncio.gather(*jobs) == list(range(20))
        with pytest.raises(OutOfResources):
            await nothing.run(lambda: None)

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    run_on("asyncio", main())


def test_a_sync_does_not_wait_for_the_work_of_clients() -> None:
    async def main() -> None:
        ports = real_ports(Config(storage="memory"))
        may_end = threading.Event()
        jobs = [
            asyncio.ensure_future(ports.threads.run(lambda: may_end.wait(SECONDS_MAX)))
            for _ in range(3 * THREADS_MAX)
        ]
        await asyncio.sleep(0)

        async with asyncio.timeout(SECONDS_MAX / 2):
            assert await ports.sync_threads.run(lambda: "synced") == "synced"

        may_end.set()
        await asyncio.gather(*jobs)

    run_on("asyncio", main())


def test_a_waiter_who_is_cancelled_stops_no_thread() -> None:
    async def main() -> None:
        threads = WorkerThreads()
        may_end = threading.Event()
        waiting = asyncio.ensure_future(threads.run(lambda: may_end.wait(SECONDS_MAX)))
        await asyncio.sleep(0)

        waiting.cancel()
        may_end.set()

        assert await threads.run(lambda: 7) == 7

    run_on("asyncio", main())


def test_work_that_ends_after_its_loop_does_no_harm() -> None:
    may_end, has_ended = threading.Event(), threading.Event()
    threads = WorkerThreads()

    def work() -> None:
        may_end.wait(SECONDS_MAX)
        has_ended.set()

    async def main() -> None:
        waiting = asyncio.ensure_future(threads.run(work))
        await asyncio.sleep(0)
        waiting.cancel()

    run_on("asyncio", main())
    may_end.set()
    assert has_ended.wait(SECONDS_MAX)

    async def again() -> None:
        assert await threads.run(lambda: 7) == 7

    run_on("asyncio", again())
