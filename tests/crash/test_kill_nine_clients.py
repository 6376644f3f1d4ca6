"""kill -9 again and again, while real clients write, copy and commit: nothing lost, nothing twice,
nothing out of order.
"""

import time
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from tests.crash.copying_job import QUIET, Copier, Writer, read_all
from tests.support.deaths import few_or_many_deaths, mortal_broker

PARTITIONS = 3
CATCH_UP_SECONDS_MAX = 120


@few_or_many_deaths
def test_clients_do_not_notice_that_the_broker_dies(tmp_path: Path, deaths: int, seed: int) -> None:
    with mortal_broker(tmp_path, TIMING__GROUP_INITIAL_REBALANCE_DELAY_MS=100) as broker:
        _create(broker.address, "numbers", "copies")
        writer = Writer(broker.address, "numbers", PARTITIONS)
        copier = Copier(broker.address, "numbers", "copies", name="copier")
        writer.start()
        copier.start()
        try:
            _wait_for_a_commit(copier)
            broker.die_often(deaths, seed=seed)
        finally:
            writer.stop()
        written = writer.acknowledged
        copies = read_all(broker.address, "copies", written, seconds_max=CATCH_UP_SECONDS_MAX)
        copier.stop()
        numbers = read_all(broker.address, "numbers", written, seconds_max=CATCH_UP_SECONDS_MAX)
    assert writer.problems == []
    assert copier.problems == []
    assert sum(written) > 0
    assert numbers == [list(range(count)) for count in written]
    assert copies == numbers


def _create(address: str, *topics: str) -> None:
    admin = AdminClient({"bootstrap.servers": address, **QUIET})  # type: ignore[dict-item]
    created = admin.create_topics([NewTopic(topic, PARTITIONS) for topic in topics])
    for done in created.values():
        done.result(30)


def _wait_for_a_commit(copier: Copier) -> None:
    deadline = time.monotonic() + CATCH_UP_SECONDS_MAX
    while copier.commits == 0:
        assert copier.is_alive(), copier.problems
        assert time.monotonic() < deadline, "the job never committed"
        time.sleep(0.05)
