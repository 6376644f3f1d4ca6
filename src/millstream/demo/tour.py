"""The tour: starts a broker, sends orders, runs Spark, kills the broker, counts every record again,
and shows a secure broker.

Owns the order of the steps and the lives of all parts: when `run` ends, for whatever reason, the
broker and the pipeline are stopped and all temporary files are removed.
"""

import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from millstream.client import Client, Message, connect
from millstream.config import DEFAULT_LISTENERS, Config, Timing
from millstream.demo import events, orders, secure
from millstream.demo.failures import DemoFailed
from millstream.demo.live import GROUP, go_on
from millstream.demo.pipeline import running, what_spark_lacks
from millstream.testing.process import Subprocess

PARTITIONS = 2
WAIT_SECONDS_MAX = 60.0
PIPELINE_SECONDS_MAX = 600.0
POLL_SECONDS = 0.1
SILENT_SECONDS_MAX = 5.0  # Spark starts for half a minute without a word.
CHECKED_EVERY = 1_000  # Orders between two looks whether to stop.

IsEnough = Callable[[], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The parameters of a tour. Without a directory, data is in a temporary one."""

    order_count: int = 50_000
    directory: Path | None = None
    port: int = 0
    is_once: bool = False
    wants_spark: bool = True


def run(plan: Plan, is_enough: IsEnough) -> Generator[events.Event, None, None]:
    """Run all steps; yield an event after each. Ends after the last, or when `is_enough` says so.

    Raises `DemoFailed` with one sentence. Close the iterator if you leave it early.
    """
    with _directory(plan.directory) as directory:
        broker = Subprocess(
            Config(
                data_dir=str(directory / "broker"),
                port=plan.port,
                flux_port=0,
                classic_port=0,
                http_port=0,
                listeners=(*DEFAULT_LISTENERS, "http"),
                default_partitions=PARTITIONS,
                # The group has one member, so there are no others to wait for.
                timing=Timing(group_initial_rebalance_delay_ms=0),
            ),
            directory / "broker.log",
            is_spared_signals=True,
        )
        yield from _Tour(plan, directory, broker, is_enough).run()
    yield events.Ended(None if plan.directory is None else str(plan.directory))


class _Tour:
    def __init__(
        self, plan: Plan, directory: Path, broker: Subprocess, is_enough: IsEnough
    ) -> None:
        self._plan = plan
        self._directory = directory
        self._broker = broker
        self._is_enough = is_enough
        self._lack = what_spark_lacks() if plan.wants_spark else "Spark was not asked for"
        self._started = time.perf_counter()

    def run(self) -> Iterator[events.Event]:
        with self._serving() as up:
            yield up
            with connect(up.address) as client:
                yield self._write(client)
                yield self._read_as_group(client)
            if self._lack is None:
                yield from self._run_pipeline(up.address)
                with connect(up.address) as client:
                    yield self._show_results(client)
            else:
                yield events.NoSpark(self._lack)
            yield events.Killed()
            self._broker.kill()
        with self._serving(is_again=True) as up:
            yield up
            with connect(up.address) as client:
                yield self._find_again(client)
                self._check()
                yield secure.show()
                yield events.TourDone(time.perf_counter() - self._started)
                if not self._plan.is_once:
                    yield from self._go_on(client)

    def _write(self, client: Client) -> events.Wrote:
        """Each order is acknowledged only once it is on the disk."""
        count = self._plan.order_count
        client.admin.create_topic(orders.ORDERS, partitions=PARTITIONS)
        started = time.perf_counter()
        with client.producer() as producer:
            for number in range(count):
                if number % CHECKED_EVERY == 0:
                    self._check()
                producer.send(orders.ORDERS, orders.order(number), key=str(number))
        return events.Wrote(count=count, seconds=time.perf_counter() - started)

    def _read_as_group(self, client: Client) -> events.GroupRead:
        count = self._plan.order_count
        with client.consumer(orders.ORDERS, group=GROUP) as consumer:
            consumer.wait_assigned()
            started = time.perf_counter()
            read = 0
            deadline = time.monotonic() + WAIT_SECONDS_MAX
            while read < count and time.monotonic() < deadline:
                read += consumer.poll(POLL_SECONDS) is not None
                if read % CHECKED_EVERY == 0:
                    self._check()
            seconds = time.perf_counter() - started
        if read < count:
            raise DemoFailed(f"{read:,} orders of {count:,} came in {WAIT_SECONDS_MAX:.0f} s")
        return events.GroupRead(group=GROUP, count=read, seconds=seconds)

    def _run_pipeline(self, address: str) -> Iterator[events.Event]:
        deadline = time.monotonic() + PIPELINE_SECONDS_MAX
        with running(self._directory, address, is_continuous=False) as pipeline:
            yield events.PipelineBegins(pipeline.command)
            started = spoke_at = time.monotonic()
            while is_running := pipeline.is_running:
                for line in pipeline.new_lines():
                    yield events.PipelineSays(line)
                    spoke_at = time.monotonic()
                if time.monotonic() - spoke_at > SILENT_SECONDS_MAX:
                    spoke_at = time.monotonic()
                    yield events.PipelineSays(f"... at work for {spoke_at - started:.0f} s")
                self._check()
                if time.monotonic() > deadline:
                    break
                time.sleep(POLL_SECONDS)
            if is_running:
                raise DemoFailed(f"the pipeline did not end in {PIPELINE_SECONDS_MAX:.0f} s")
            summary = pipeline.summary()
            for line in pipeline.new_lines():
                yield events.PipelineSays(line)
        yield events.PipelineRan(seconds=summary["total"]["seconds"], flows=summary["flows"])

    def _show_results(self, client: Client) -> events.Results:
        """Read back what the pipeline wrote, as a client that knows nothing of it."""
        results = orders.results(
            self._read(client, orders.PUT_ASIDE), self._read(client, orders.BY_MINUTE)
        )
        orders.check_results(results, self._plan.order_count)
        return results

    def _find_again(self, client: Client) -> events.FoundAgain:
        topics = [orders.ORDERS]
        if self._lack is None:
            topics += [orders.VALID, orders.PUT_ASIDE]
        numbers_by_topic = {
            topic: [orders.number_of(message) for message in self._read(client, topic)]
            for topic in topics
        }
        orders.check_found(numbers_by_topic, self._plan.order_count)
        return events.FoundAgain(
            records={topic: len(numbers) for topic, numbers in numbers_by_topic.items()},
            group=GROUP,
            group_lag=sum(lag.records for lag in client.admin.group_lag(GROUP)),
        )

    def _go_on(self, client: Client) -> Iterator[events.Event]:
        first = self._plan.order_count
        console = f"http://{self._broker.host}:{self._broker.config.http_port}/"
        if self._lack is not None:
            yield from go_on(client, first, self._is_enough, console=console, pipeline=None)
            yield events.Stopping()
            return
        with running(self._directory, client.address, is_continuous=True) as pipeline:
            yield from go_on(client, first, self._is_enough, console=console, pipeline=pipeline)
            yield events.Stopping()

    def _read(self, client: Client, topic: str) -> Iterator[Message]:
        """All committed records of a topic, up to where it ends."""
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        with client.consumer(topic) as consumer:
            left = set(consumer.assignment)
            while left:
                message = consumer.poll(POLL_SECONDS)
                if message is not None:
                    yield message
                    continue
                self._check()
                # Only then: what was fetched to the end may still wait to be handed out.
                left -= consumer.at_end
                if time.monotonic() > deadline:
                    raise DemoFailed(f"{topic} was not read in {WAIT_SECONDS_MAX:.0f} s")

    @contextmanager
    def _serving(self, *, is_again: bool = False) -> Iterator[events.BrokerUp]:
        started = time.perf_counter()
        try:
            self._broker.start()
        except RuntimeError as problem:
            raise DemoFailed(str(problem)) from problem
        try:
            yield events.BrokerUp(
                address=f"{self._broker.host}:{self._broker.port}",
                seconds=time.perf_counter() - started,
                directory=str(self._directory),
                is_again=is_again,
            )
        finally:
            if self._broker.is_running:
                self._broker.stop()

    def _check(self) -> None:
        if self._is_enough():
            raise DemoFailed("stopped before the end")


@contextmanager
def _directory(chosen: Path | None) -> Iterator[Path]:
    if chosen is None:
        with tempfile.TemporaryDirectory(prefix="millstream-demo-") as name:
            yield Path(name)
        return
    chosen.mkdir(parents=True, exist_ok=True)
    if any(chosen.iterdir()):
        raise DemoFailed(f"{chosen} is not empty: name another directory, or remove it")
    yield chosen.resolve()
