"""Every batch of a query is taken in once, and few of its reports are turned into Python."""

import json
from dataclasses import dataclass, field
from random import Random

from millstream.spark.pipelines.progress import NewProgress

KEPT = 100  # By Spark.


@dataclass(frozen=True)
class Report:
    json: str


@dataclass
class Query:
    """Reports as Spark does: of batches that were run, and of one that waits to be."""

    reports: list[Report] = field(default_factory=list)
    next_batch: int = 0
    converted: int = 0

    def run(self, rows: int) -> None:
        self._add(rows, {"addBatch": 5, "triggerExecution": 6})
        self.next_batch += 1

    def wait(self) -> None:
        self._add(0, {"latestOffset": 1, "triggerExecution": 1})

    @property
    def lastProgress(self) -> Report | None:  # Spark's name.
        self.converted += 1
        return self.reports[-1] if self.reports else None

    @property
    def recentProgress(self) -> list[Report]:  # Spark's name.
        found = self.reports[-KEPT:]
        self.converted += len(found)
        return found

    def _add(self, rows: int, durations: dict[str, int]) -> None:
        time_ms = len(self.reports)
        progress = {
            "batchId": self.next_batch,
            "timestamp": f"2026-01-01T00:00:{time_ms // 1000:02}.{time_ms % 1000:03}Z",
            "numInputRows": rows,
            "durationMs": durations,
        }
        self.reports.append(Report(json.dumps(progress)))


def rows(found: list[dict[str, object]]) -> dict[object, object]:
    """Of the batches that were run, by their number."""
    ran = [item for item in found if "addBatch" in dict(item["durationMs"])]  # type: ignore[call-overload]
    assert len({one["batchId"] for one in ran}) == len(ran)
    return {one["batchId"]: one["numInputRows"] for one in ran}


def test_every_batch_is_taken_once_however_seldom_one_looks() -> None:
    random = Random(1)
    query, taken, ran = Query(), [], 0
    progress = NewProgress(query)
    for _ in range(300):
        for _ in range(random.choice([0, 1, 1, 2, 9])):
            if random.random() < 0.3:
                query.wait()
            else:
                ran += 1
                query.run(rows=ran)
        taken += progress.take()

    assert rows(taken) == {number: number + 1 for number in range(ran)}


def test_a_query_that_is_watched_for_long_costs_one_report_for_each_look() -> None:
    query = Query()
    progress = NewProgress(query)
    for _ in range(1000):
        query.run(rows=1)
        progress.take()  # Once with the batch, and some more while nothing happens.
        progress.take()
        progress.take()

    assert query.converted <= 3 * 1000 + 1


def test_a_query_that_has_not_begun_has_no_progress() -> None:
    assert NewProgress(Query()).take() == []
