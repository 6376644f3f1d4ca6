"""Removes the files of deleted logs, on a thread: there may be thousands. Keys go before files.

Owns which logs those are. The journal forgets a log when its files are gone; a node that stops
before finds the command in the control log at its next start, and tries again. A log that is placed
here again meanwhile is opened when nothing of the old one is left.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from millstream.errors import StorageError
from millstream.model import LogId
from millstream.ports import Files, Threads
from millstream.replication.opening import log_directory
from millstream.storage.journal.journal import Journal

if TYPE_CHECKING:
    from millstream.storage.sealing.keyring import Keyring

STRIDES_CHECK_S = 10.0  # A stride of 2^24 batches lasts for minutes at least.

_log = logging.getLogger(__name__)


class Removals:
    def __init__(
        self,
        files: Files,
        threads: Threads,
        journal: Journal,
        *,
        keyring: "Keyring | None",
        is_kept: Callable[[UUID], bool],
    ) -> None:
        """`is_kept` says whether some partition of a topic stays on this node."""
        self._keyring = keyring
        self._is_kept = is_kept
        self._files = files
        self._threads = threads
        self._journal = journal
        # What is to be done when it is gone, or None.
        self._removing: dict[LogId, Callable[[], None] | None] = {}
        self._awaited: set[LogId] = set()  # A thread has them open still.
        self._wake = asyncio.Event()

    def __contains__(self, log_id: object) -> bool:
        return log_id in self._removing

    def expect(self, log_id: LogId) -> None:
        """Count a log as one that is being removed, until `add` says that it can be."""
        self._removing[log_id] = None
        self._awaited.add(log_id)

    def add(self, log_id: LogId) -> None:
        if log_id in self._awaited:  # What is to be done then stays.
            self._awaited.discard(log_id)
        else:
            self._removing[log_id] = None
        self._wake.set()

    def postpone(self, log_id: LogId, act: Callable[[], None]) -> bool:
        """Call `act` when the log is gone, if it is being removed; not if it cannot be."""
        if log_id in self._removing:
            self._removing[log_id] = act
            return True
        return False

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while ready := [each for each in self._removing if each not in self._awaited]:
                for log_id in ready:
                    is_gone = await self._remove(log_id)
                    act = self._removing.pop(log_id)
                    if act is not None and is_gone:
                        act()

    async def _remove(self, log_id: LogId) -> bool:
        keyring, topic_id = self._keyring, log_id.topic_id
        try:
            if keyring is not None and keyring.has(topic_id) and not self._is_kept(topic_id):
                await self._threads.run(partial(keyring.shred, topic_id))
            await self._threads.run(partial(self._files.remove_directory, log_directory(log_id)))
            self._journal.forget(log_id)
        except (OSError, StorageError) as problem:
            # The command stays in the control log: the next start tries again.
            _log.warning("could not remove a deleted log log=%s problem=%s", log_id, problem)
            return False
        return True


async def take_strides(keyring: "Keyring", threads: Threads) -> None:
    """Let keys that are much used seal more batches, before they have to wait for it."""
    while True:
        await asyncio.sleep(STRIDES_CHECK_S)
        topic_ids = keyring.low()
        if topic_ids:
            try:
                await threads.run(partial(keyring.take_strides, topic_ids))
            except (OSError, StorageError) as problem:
                _log.warning("could not write the keyring problem=%s", problem)
