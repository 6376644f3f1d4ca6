"""Which partitions storage refuses, and the end of that once a full disk has space again."""

import asyncio
import logging
from collections.abc import Mapping

from millstream.errors import NoSpace, StorageError
from millstream.metrics import DISK_FULL, Metrics
from millstream.model import LogId
from millstream.ports import Ports
from millstream.replication.replica import Replica
from millstream.storage.files.reserve import has_space

_log = logging.getLogger(__name__)

SPACE_CHECK_S = 1.0


def refusals(
    replicas: Mapping[LogId, Replica], damaged: Mapping[LogId, StorageError]
) -> dict[LogId, StorageError]:
    """The error of each log whose storage refuses, for now or for good."""
    refused = {
        replica.id: problem
        for replica in replicas.values()
        if (problem := replica.failure or replica.refusal) is not None
    }
    return {**refused, **damaged}


async def watch_space(refused: dict[Replica, None], ports: Ports, metrics: Metrics) -> None:
    """Look for space every second while a partition was refused for want of it.

    `refused` are the replicas that storage refused something; those that it serves again leave.
    """
    metrics.set(DISK_FULL, 0)  # A scrape in the first second finds it.
    while True:
        await asyncio.sleep(SPACE_CHECK_S)
        for replica in [each for each in refused if each.refusal is None or each.is_gone]:
            del refused[replica]
        full = [each for each in refused if isinstance(each.refusal, NoSpace)]
        metrics.set(DISK_FULL, int(bool(full)))
        if not full or not await _has_space(ports):
            continue
        _log.info("the disk has space again partitions=%d", len(full))
        metrics.set(DISK_FULL, 0)
        for replica in full:
            replica.refusal = None


async def _has_space(ports: Ports) -> bool:
    try:
        return await ports.threads.run(lambda: has_space(ports.files))
    except StorageError:
        return False
