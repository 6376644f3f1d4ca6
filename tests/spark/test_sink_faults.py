"""Hundreds of batches with every fault that a driver, a task or a broker can have, without Spark.

Spark's part is played here: it runs a batch again until its own log has it, gives tasks other rows
each time, runs some of them twice, and calls abort after a commit that it took for failed.
"""

import hashlib
import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from millstream.errors import MillstreamError
from millstream.kafka_client.cluster import cluster_for
from millstream.kafka_client.settings import ClientSettings
from millstream.spark.errors import BatchRefused, Fenced, OlderCheckpoint, OtherQuery
from millstream.spark.options.sink import SinkOptions, sink_options
from millstream.spark.write import atomic_batch
from millstream.spark.write.atomic_batch import Plan, Task, WriteMode, Written
from millstream.spark.write.query_identity import QueryIdentity
from tests.spark.sinks import each_once, numbers, until
from tests.support.broker_process import BrokerProcess

BATCHES = 200
BATCHES_OF_SOAK = int(os.environ.get("MILLSTREAM_SOAK_SEEDS", "3000"))
SOAK_FIRST_SEED = 1_000
BATCHES_PER_KILL = 40
ROWS_MAX = 40


_used: set[ClientSettings] = set()


@pytest.fixture(autouse=True)
def hang_up() -> Iterator[None]:
    """Close the connections that Spark's workers would keep for the next task."""
    yield
    for client in _used:
        cluster_for(client).forget()
    _used.clear()


class Broken(Exception):
    """What a test has go wrong in a task."""


def options(address: str, topic: str, **more: str) -> SinkOptions:
    needed = {
        "kafka.bootstrap.servers": address,
        "topic": topic,
        "transactionalIdPrefix": topic,
        "kafka.retry.backoff.ms": "20",
        "kafka.batch.size": "200",  # So that a task sends several requests.
    }
    made = sink_options(needed | more, is_streaming=True)
    _used.add(made.client)
    return made


def rows(numbers_: list[int], *, broken_after: int | None = None) -> Iterator[object]:
    """Arrow batches of a few rows; the task breaks behind some of them."""
    for at in range(0, len(numbers_), 5):
        if broken_after is not None and at >= broken_after:
            raise Broken
        part = numbers_[at : at + 5]
        yield pa.record_batch({"value": pa.array([str(number) for number in part])})
    if broken_after is not None:
        raise Broken


@dataclass
class Run:
    """A query: which rows are in which batch, and what Spark's log has."""

    broker: BrokerProcess
    topic: str
    random: Random
    series: str = "query"
    row_count: int = 0
    attempts: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    zombies: list[tuple[Plan, Task, list[int]]] = field(default_factory=list)

    @property
    def options(self) -> SinkOptions:
        return options(self.broker.address, self.topic)

    def batch(self, batch_id: int) -> None:
        """Run a batch until it is in Spark's log."""
        expected = list(range(self.row_count, self.row_count + self.random.randint(0, ROWS_MAX)))
        self.row_count += len(expected)
        while not self._attempt(batch_id, expected):
            pass

    def _attempt(self, batch_id: int, numbers_of_batch: list[int]) -> bool:
        """Run a batch once, as a driver does; say whether Spark's log has it now."""
        plan = atomic_batch.open_batch(self.options)
        messages = [self._task(plan, batch_id, part) for part in self._dealt(numbers_of_batch)]
        fault = self.random.choice(
            [
                *["none"] * 6,
                *["died before", "died after", "lost answer", "rival", "zombie"],
                *["killed", "killed after"],
            ]
        )
        kill_count = self.faults["killed"] + self.faults["killed after"]
        if fault.startswith("killed") and kill_count > batch_id // BATCHES_PER_KILL:
            fault = "none"  # A broker takes a second to start, and a batch some milliseconds.
        self.faults[fault] += 1
        if fault == "died before":
            return False
        if fault == "rival":
            atomic_batch.open_batch(self.options)
        if fault == "zombie":
            self._raise_the_dead()
        if fault == "killed":
            self.broker.kill()
            self.broker.start()
        try:
            atomic_batch.commit(self.options, messages, batch_id)
        except (Fenced, BatchRefused):
            assert fault == "rival"
            atomic_batch.abort(self.options, messages, batch_id)
            return False
        if fault == "killed after":
            self.broker.kill()  # What is committed may not have its markers yet.
            self.broker.start()
        if fault == "lost answer":
            atomic_batch.abort(self.options, messages, batch_id)
            return False
        return fault != "died after"

    def _dealt(self, numbers_of_batch: list[int]) -> list[list[int]]:
        """Rows as a shuffle deals them: never twice in the same mode."""
        mixed = self.random.sample(numbers_of_batch, len(numbers_of_batch))
        tasks = self.random.randint(1, 3)
        return [mixed[at::tasks] for at in range(tasks)]

    def _task(self, plan: Plan, batch_id: int, part: list[int]) -> Written:
        """Run a task until an attempt of it succeeds, and sometimes once more."""
        task = self._new_task(batch_id, len(part))
        if self.random.random() < 0.15:
            with pytest.raises(Broken):
                atomic_batch.write(plan, task, rows(part, broken_after=self.random.randint(0, 20)))
        message = atomic_batch.write(plan, self._new_task(batch_id, len(part)), rows(part))
        if self.random.random() < 0.15:
            atomic_batch.write(plan, self._new_task(batch_id, len(part)), rows(part))
        if self.random.random() < 0.2:
            self.zombies.append((plan, self._new_task(batch_id, len(part)), part))
        return message

    def _new_task(self, batch_id: int, partition: int) -> Task:
        self.attempts += 1
        return Task(
            series=self.series, batch_id=batch_id, partition=partition, attempt=self.attempts
        )

    def _raise_the_dead(self) -> None:
        """Tasks of runs that were given up wake up and write."""
        for plan, task, part in self.zombies:
            try:
                atomic_batch.write(plan, task, rows(part))
            except MillstreamError:
                self.faults["fenced"] += 1
        self.zombies.clear()


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path, DEFAULT_PARTITIONS=3)
    process.start()
    yield process
    process.kill()


def check(broker: BrokerProcess, topic: str, batch_count: int, seed: int) -> None:
    run = Run(broker, topic, Random(seed))
    for batch_id in range(batch_count):
        run.batch(batch_id)

    written = numbers(broker.address, topic)
    missing, doubled = each_once(run.row_count) - written, written - each_once(run.row_count)
    assert (missing, doubled) == (Counter(), Counter()), f"MILLSTREAM_SEED={seed}, {run.faults}"
    assert set(run.faults) >= {"died before", "died after", "lost answer", "rival", "fenced"}


@pytest.mark.timeout(300)
def test_no_row_is_missing_and_none_is_doubled_whatever_goes_wrong(
    own_broker: BrokerProcess, topic: str
) -> None:
    check(own_broker, topic, BATCHES, int(os.environ.get("MILLSTREAM_SEED", "1")))


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_no_row_is_missing_and_none_is_doubled_in_thousands_of_batches(
    own_broker: BrokerProcess, topic: str
) -> None:
    for run in range(-(-BATCHES_OF_SOAK // BATCHES)):
        check(own_broker, f"{topic}-{run}", BATCHES, SOAK_FIRST_SEED + run)


# -- single stories --------------------------------------------------------------------------------


def written(address: str, topic: str) -> list[int]:
    return sorted(numbers(address, topic).elements())


def task(batch_id: int = 0, *, partition: int = 0, attempt: int = 0, series: str = "query") -> Task:
    return Task(series=series, batch_id=batch_id, partition=partition, attempt=attempt)


@pytest.mark.smoke
def test_of_two_attempts_that_both_end_only_the_chosen_one_counts(
    broker: BrokerProcess, topic: str
) -> None:
    chosen = options(broker.address, topic)
    plan = atomic_batch.open_batch(chosen)
    first = atomic_batch.write(plan, task(attempt=1), rows([1, 2]))
    atomic_batch.write(plan, task(attempt=2), rows([1, 2]))

    atomic_batch.commit(chosen, [first], 0)

    assert written(broker.address, topic) == [1, 2]


@pytest.fixture
def strict_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker that looks for silent batches ten times a second."""
    process = BrokerProcess(tmp_path, DEFAULT_PARTITIONS=1, TIMING__TRANSACTION_CHECK_MS=100)
    process.start()
    yield process
    process.kill()


def slow_rows(numbers_: list[int], *, seconds: float) -> Iterator[object]:
    """Rows of a task that waits for the second one."""
    yield from rows(numbers_[:1])
    time.sleep(seconds)
    yield from rows(numbers_[1:])


def test_a_batch_may_take_longer_than_its_transactions_as_long_as_a_task_writes(
    strict_broker: BrokerProcess, topic: str
) -> None:
    chosen = options(strict_broker.address, topic, **{"kafka.transaction.timeout.ms": "3000"})
    plan = atomic_batch.open_batch(chosen)
    done = atomic_batch.write(plan, task(), rows([1]))
    slow = atomic_batch.write(plan, task(partition=1), slow_rows([2, 3], seconds=5))

    atomic_batch.commit(chosen, [done, slow], 0)

    assert written(strict_broker.address, topic) == [1, 2, 3]


def test_a_task_learns_that_its_batch_is_lost_before_the_end(
    strict_broker: BrokerProcess, topic: str
) -> None:
    chosen = options(strict_broker.address, topic, **{"kafka.transaction.timeout.ms": "400"})
    plan = atomic_batch.open_batch(chosen)

    def rows_of_a_fenced_task() -> Iterator[object]:
        yield from slow_rows([1, 2], seconds=0.3)
        atomic_batch.open_batch(chosen)
        for number in range(100):
            taken.append(number)
            time.sleep(0.05)
            yield pa.record_batch(
                {"value": pa.array(["0" * (atomic_batch.CHUNK_BYTES // 40)] * 40)}
            )

    taken: list[int] = []
    with pytest.raises(Fenced):
        atomic_batch.write(plan, task(), rows_of_a_fenced_task())

    assert len(taken) < 50


def test_a_batch_whose_tasks_are_silent_for_too_long_fails_and_leaves_nothing(
    strict_broker: BrokerProcess, topic: str
) -> None:
    broker = strict_broker
    chosen = options(broker.address, topic, **{"kafka.transaction.timeout.ms": "200"})
    plan = atomic_batch.open_batch(chosen)
    message = atomic_batch.write(plan, task(), rows([1, 2]))
    until(lambda: "aborting a silent batch" in broker.log, "the time to be up")

    with pytest.raises((BatchRefused, Fenced)):
        atomic_batch.commit(chosen, [message], 0)
    atomic_batch.abort(chosen, [message], 0)

    again = atomic_batch.open_batch(chosen)
    atomic_batch.commit(chosen, [atomic_batch.write(again, task(), rows([1, 2]))], 0)
    assert written(broker.address, topic) == [1, 2]


@pytest.mark.smoke
def test_an_abort_after_the_commit_takes_nothing_back(broker: BrokerProcess, topic: str) -> None:
    chosen = options(broker.address, topic)
    plan = atomic_batch.open_batch(chosen)
    message = atomic_batch.write(plan, task(), rows([1]))

    atomic_batch.commit(chosen, [message], 0)
    atomic_batch.abort(chosen, [message], 0)
    atomic_batch.commit(chosen, [message], 0)

    assert written(broker.address, topic) == [1]


def test_a_task_of_a_committed_batch_takes_its_rows_and_writes_none(
    broker: BrokerProcess, topic: str
) -> None:
    chosen = options(broker.address, topic)
    for _ in range(2):
        plan = atomic_batch.open_batch(chosen)
        message = atomic_batch.write(plan, task(), rows([1]))
        atomic_batch.commit(chosen, [message], 0)

    assert (message.row_count, message.member) == (0, None)
    assert written(broker.address, topic) == [1]


# -- which query it is -----------------------------------------------------------------------------


def checkpoint_at(folder: Path, query_id: str) -> Path:
    """A checkpoint as Spark makes it before the first batch."""
    folder.mkdir(parents=True)
    (folder / "metadata").write_text(f'{{"id":"{query_id}"}}', encoding="utf-8")
    return folder


def by_checkpoint(address: str, topic: str, location: str, **more: str) -> SinkOptions:
    return options(
        address, topic, **{"transactionalIdPrefix": "", "checkpointLocation": location} | more
    )


def run_batch(chosen: SinkOptions, batch_id: int, numbers_: list[int]) -> None:
    """In these stories, the query is called like the topic that it writes to."""
    plan = atomic_batch.open_batch(chosen)
    message = atomic_batch.write(plan, task(batch_id, series=str(chosen.topic)), rows(numbers_))
    atomic_batch.commit(chosen, [message], batch_id)


def test_a_batch_that_is_run_again_is_known_however_the_checkpoint_is_spelt(
    broker: BrokerProcess, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = checkpoint_at(tmp_path / "a" / "ck", topic)
    monkeypatch.chdir(tmp_path)
    run_batch(by_checkpoint(broker.address, topic, str(path)), 0, [0])

    for spelling in (f"{path.parent}//ck", f"file:{path}", f"file://{path}", "a/ck"):
        run_batch(by_checkpoint(broker.address, topic, spelling), 1, [1])

    assert written(broker.address, topic) == [0, 1]


@pytest.mark.parametrize("spelling_now", ["{}", "file://{}"])
def test_a_checkpoint_of_an_earlier_version_goes_on_exactly_once(
    broker: BrokerProcess, topic: str, tmp_path: Path, spelling_now: str
) -> None:
    path = checkpoint_at(tmp_path / "ck", topic)
    name_then = hashlib.sha256(str(path).encode()).hexdigest()[:24]
    then = options(broker.address, topic, transactionalIdPrefix=name_then)
    run_batch(then, 0, [0])
    run_batch(then, 1, [1])
    left_over = atomic_batch.open_batch(then)
    message = atomic_batch.write(left_over, task(2, series=topic), rows([2]))

    now = by_checkpoint(broker.address, topic, spelling_now.format(path))
    for batch_id in (1, 1, 2, 2):
        run_batch(now, batch_id, [batch_id])

    assert written(broker.address, topic) == [0, 1, 2]
    with pytest.raises(Fenced):
        atomic_batch.commit(then, [message], 2)


def test_rows_of_another_query_than_the_checkpoints_are_refused(
    broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    path = checkpoint_at(tmp_path / "ck", topic)
    plan = atomic_batch.open_batch(by_checkpoint(broker.address, topic, str(path)))

    with pytest.raises(OtherQuery, match="query another is not the one"):
        atomic_batch.write(plan, task(series="another"), rows([1]))


def test_an_older_checkpoint_is_refused_with_the_way_out(broker: BrokerProcess, topic: str) -> None:
    chosen = options(broker.address, topic)
    for batch_id in range(3):
        run_batch(chosen, batch_id, [batch_id])

    with pytest.raises(OlderCheckpoint) as problem:
        run_batch(chosen, 1, [10])
    sentence = str(problem.value)
    assert f"query {topic} runs batch 1" in sentence
    assert "committed its batches up to 2" in sentence
    assert "transactionalIdPrefix" in sentence

    run_batch(options(broker.address, topic, transactionalIdPrefix=f"{topic}-new"), 1, [10])
    assert written(broker.address, topic) == [0, 1, 2, 10]


# -- foreachBatch ----------------------------------------------------------------------------------


def batch_options(address: str, topic: str, batch_id: int) -> SinkOptions:
    """As `write_once` has them."""
    needed = {
        "kafka.bootstrap.servers": address,
        "topic": topic,
        "transactionalIdPrefix": "query",
        "batchId": str(batch_id),
    }
    made = sink_options(needed, is_streaming=False)
    _used.add(made.client)
    return made


@pytest.mark.smoke
def test_a_batch_of_foreachbatch_that_is_run_again_writes_nothing(
    broker: BrokerProcess, topic: str
) -> None:
    for batch_id in (0, 0, 1, 1, 2):
        chosen = batch_options(broker.address, topic, batch_id)
        plan = atomic_batch.open_batch(chosen)
        message = atomic_batch.write(plan, task(batch_id, series=topic), rows([batch_id]))
        atomic_batch.commit(chosen, [message], batch_id)

    assert written(broker.address, topic) == [0, 1, 2]
    older = batch_options(broker.address, topic, 0)
    with pytest.raises(OlderCheckpoint, match=r"runs batch 0, but .* up to 2"):
        atomic_batch.write(atomic_batch.open_batch(older), task(0, series=topic), rows([0]))


# -- plain Kafka -----------------------------------------------------------------------------------


def fallback(address: str, topic: str) -> Plan:
    """What is planned where batches can't be ended as one: the same broker, asked no more."""
    chosen = options(address, topic, assumeDeterministicTasks="true")
    return Plan(options=chosen, mode=WriteMode.TASKS, identity=QueryIdentity(name=topic))


def test_tasks_that_commit_by_themselves_do_so_once(broker: BrokerProcess, topic: str) -> None:
    plan = fallback(broker.address, topic)
    for batch_id in (0, 0, 1, 1):
        for partition in range(2):
            start = 100 * batch_id + 10 * partition
            atomic_batch.write(plan, task(batch_id, partition=partition), rows([start, start + 1]))

    assert written(broker.address, topic) == [0, 1, 10, 11, 100, 101, 110, 111]


def test_a_task_that_breaks_leaves_nothing_and_its_next_attempt_writes(
    broker: BrokerProcess, topic: str
) -> None:
    plan = fallback(broker.address, topic)
    with pytest.raises(Broken):
        atomic_batch.write(plan, task(), rows([1, 2], broken_after=5))

    atomic_batch.write(plan, task(attempt=1), rows([1, 2]))

    assert written(broker.address, topic) == [1, 2]


def test_a_task_of_an_older_checkpoint_is_refused(broker: BrokerProcess, topic: str) -> None:
    plan = fallback(broker.address, topic)
    for batch_id in range(3):
        atomic_batch.write(plan, task(batch_id), rows([batch_id]))

    with pytest.raises(OlderCheckpoint, match=r"runs batch 1, but .* up to 2"):
        atomic_batch.write(plan, task(1), rows([10]))

    assert written(broker.address, topic) == [0, 1, 2]


def test_a_task_remembers_what_it_did_under_a_former_name(
    broker: BrokerProcess, topic: str
) -> None:
    plan = fallback(broker.address, topic)
    for batch_id in range(2):
        atomic_batch.write(plan, task(batch_id), rows([batch_id]))

    renamed = QueryIdentity(name=f"{topic}-new", former_names=("never", topic))
    for batch_id in (1, 2, 2):
        atomic_batch.write(replace(plan, identity=renamed), task(batch_id), rows([batch_id]))

    assert written(broker.address, topic) == [0, 1, 2]
