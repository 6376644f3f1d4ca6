"""Every batch that Spark tells a listener is taken once, in order, and the end is known."""

import json
from types import SimpleNamespace
from typing import Any

from millstream.spark.pipelines.progress import ProgressListener


def event(run_id: str, batch: int) -> Any:
    text = json.dumps({"batchId": batch})
    return SimpleNamespace(progress=SimpleNamespace(runId=run_id, json=text))


def batches(listener: ProgressListener, run_id: str) -> list[int]:
    return [progress["batchId"] for progress in listener.take(run_id)]


def test_progress_is_taken_once_and_apart_for_each_run() -> None:
    listener = ProgressListener()
    for batch in range(3):
        listener.onQueryProgress(event("a", batch))
    listener.onQueryProgress(event("b", 7))

    assert batches(listener, "a") == [0, 1, 2]
    assert batches(listener, "a") == []
    assert batches(listener, "b") == [7]


def test_the_end_of_a_run_is_known_after_it_was_told() -> None:
    listener = ProgressListener()
    assert not listener.wait_ended("a", 0)

    ended: Any = SimpleNamespace(runId="a")
    listener.onQueryTerminated(ended)

    assert listener.wait_ended("a", 0)
    assert not listener.has_ended("b")
