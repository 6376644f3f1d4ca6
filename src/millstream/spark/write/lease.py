"""Keeps a batch alive while one of its tasks writes, and notices when its transaction is lost.

The transactions of a batch share one lease in the broker. Every task that runs renews the lease of
all, so a batch may take as long as it needs. A thread of its own does so: a task may wait for its
next row, or its first, for longer than a lease lasts.
"""

import logging
import threading

from millstream.errors import MillstreamError
from millstream.kafka_client.cluster import Cluster
from millstream.kafka_client.settings import ClientSettings
from millstream.spark.errors import BatchRefused, Fenced
from millstream.spark.write import transactions
from millstream.spark.write.transactions import Member

log = logging.getLogger(__name__)

RENEWALS_PER_TIMEOUT = 4  # Several may fail before the lease is over.


class Lease:
    """Renews the lease of a batch until it is closed. `member` is set once there is one."""

    def __init__(self, settings: ClientSettings, group: str, term: int, *, timeout_ms: int) -> None:
        self.member: Member | None = None
        self._settings = settings
        self._group = group
        self._term = term
        self._interval_s = timeout_ms / 1000 / RENEWALS_PER_TIMEOUT
        self._closed = threading.Event()
        self._problem: Fenced | BatchRefused | None = None
        self._thread = threading.Thread(target=self._run, name="batch-lease", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise what the broker said when it refused to renew."""
        if self._problem is not None:
            raise self._problem

    def close(self) -> None:
        self._closed.set()

    def _run(self) -> None:
        if self._closed.wait(self._interval_s):
            return  # Most batches are over by now, and no connection was needed.
        cluster = Cluster(self._settings)  # Of its own: a cluster serves one thread.
        try:
            if not transactions.renews_batches(cluster):
                return
            while True:
                self._renew(cluster)
                if self._problem is not None or self._closed.wait(self._interval_s):
                    return
        except MillstreamError as problem:
            log.warning("could not reach a broker group=%s problem=%s", self._group, problem)
        finally:
            cluster.forget()

    def _renew(self, cluster: Cluster) -> None:
        try:
            transactions.renew_batch(cluster, self._group, self._term, self.member)
        except (Fenced, BatchRefused) as problem:
            if not self._closed.is_set():
                self._problem = problem
        except MillstreamError as problem:
            log.warning("could not renew group=%s problem=%s", self._group, problem)
