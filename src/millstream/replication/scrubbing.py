"""Reads all sealed segments again and again, slowly, to find damage before a reader does.

Owns the pace, the place that was reached, and when the last full pass ended; a small file remembers
both over restarts. Verifying is `storage.verifying`'s, on a thread and a step at a time, so that
retention and compaction never wait: a segment that is gone meanwhile is left.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress

import msgspec
from fastcrc import crc32

from millstream.config import Config
from millstream.errors import DamagedLog, DiskFailed, StorageError
from millstream.metrics import SCRUBBED_AT, SCRUBBED_BYTES, Metrics
from millstream.model import LogId, Offset
from millstream.ports import Ports
from millstream.replication.replica import Replica
from millstream.replication.resting import Resting
from millstream.storage.files.replacing import TEMPORARY, write_aside
from millstream.storage.log.segment import Segment

STATE = "scrub"
STEP_BYTES = 2**20  # Read in one go, from a thread.
RESTING_BYTES_MIN = 64 * 1024  # What a log that rests counts as: a file is opened for it.
START_S = 60.0  # After a start others need the disk more.
SAVE_S = 60.0  # What is verified twice after a crash, at most.

_log = logging.getLogger(__name__)


class ScrubState(msgspec.Struct, kw_only=True):
    """Where scrubbing is. Times are -1 where nothing happened yet."""

    pass_started_ms: int = -1
    last_full_pass_ms: int = -1
    pass_bytes: int = 0  # Read since this pass began.
    log: str = ""  # The log that is being read, and the segment.
    base_offset: Offset = 0


def decode_state(data: bytes) -> ScrubState:
    """Read the contents of the file `scrub`; `ValueError` if they are damaged."""
    crc, _, body = data.partition(b" ")
    if int(crc, 16) != crc32.iscsi(body):
        raise ValueError(f"the file {STATE!r} fails its checksum")
    return msgspec.json.decode(body, type=ScrubState)


class Scrubber:
    def __init__(
        self,
        replicas: Mapping[LogId, Replica],
        ports: Ports,
        *,
        config: Config,
        metrics: Metrics,
    ) -> None:
        self.state = ScrubState()
        # Set by the hub: logs that are not open, and what opens one in which damage is found.
        self.resting: Resting | None = None
        self.awake: Callable[[Iterable[LogId]], Awaitable[None]] | None = None
        self._reconfigured = asyncio.Event()
        self.reconfigure(config)
        self._replicas = replicas
        self._ports = ports
        self._metrics = metrics
        self._saved_at = 0.0

    def reconfigure(self, config: Config) -> None:
        """Use the pace of `config` from now on, in the middle of a pass too."""
        is_on_disk = config.storage == "disk"
        self.bytes_per_second = config.limits.scrub_bytes_per_second if is_on_disk else 0
        self._interval_ms = config.timing.scrub_interval_ms
        self._reconfigured.set()

    async def run(self) -> None:
        """Scrub for ever; wait while that is turned off."""
        await self._load()
        await asyncio.sleep(START_S)
        while True:
            if not self.bytes_per_second:
                await self._pause(None)
                continue
            idle_ms = self.state.pass_started_ms + self._interval_ms - self._ports.clock.now_ms()
            is_complete = self.state.last_full_pass_ms >= self.state.pass_started_ms
            if is_complete and self.state.pass_started_ms >= 0 and idle_ms > 0:
                await self._pause(idle_ms / 1000)
                continue
            if is_complete:
                self.state.pass_started_ms, self.state.pass_bytes = self._ports.clock.now_ms(), 0
                self.state.log, self.state.base_offset = "", 0
            await self.scrub_all()

    async def scrub_all(self) -> None:
        """Read every sealed segment from the place that was reached to the end."""
        state = self.state
        for log_id in sorted([*self._replicas, *(self.resting or ())], key=str):
            if str(log_id) < state.log:
                continue
            if str(log_id) != state.log:
                state.log, state.base_offset = str(log_id), 0
            if self.resting is not None and log_id in self.resting:
                await self._scrub_resting(self.resting, log_id)
            replica = self._replicas.get(log_id)
            if replica is not None:
                await self._scrub_log(replica)
        state.log, state.base_offset = "", 0
        state.last_full_pass_ms = self._ports.clock.now_ms()
        self._metrics.set(SCRUBBED_AT, state.last_full_pass_ms / 1000)
        await self._save()

    async def _scrub_resting(self, resting: Resting, log_id: LogId) -> None:
        """Read a log that is not open; if it is not as it was, or long, open it."""
        assert self.awake is not None
        size = resting.health(log_id).size_bytes
        if not await self._ports.threads.run(resting.verification(self._ports.files, log_id)):
            await self.awake([log_id])
        self.state.pass_bytes += size
        self._metrics.add(SCRUBBED_BYTES, size)
        await self._keep_pace(max(size, RESTING_BYTES_MIN))

    async def _scrub_log(self, replica: Replica) -> None:
        for segment in replica.log.sealed():
            if replica.is_gone or segment.base_offset < self.state.base_offset:
                continue
            self.state.base_offset = segment.base_offset
            try:
                await self._scrub_segment(replica, segment)
            except StorageError as problem:
                _log.warning("not scrubbed segment=%s problem=%s", segment.path, problem)

    async def _scrub_segment(self, replica: Replica, segment: Segment) -> None:
        log, at = replica.log, 0
        while at < segment.size and not replica.is_gone and segment in log.sealed():
            work = log.verification_step(
                segment, at, at + STEP_BYTES, boundaries=replica.consensus_log.boundaries
            )
            try:
                await self._ports.threads.run(work.run)
            except (DiskFailed, DamagedLog) as problem:
                work.fail(problem)
            if segment in log.sealed():
                work.finish()
            at += work.size
            self.state.pass_bytes += work.size
            self._metrics.add(SCRUBBED_BYTES, work.size)
            await self._keep_pace(work.size)
            if asyncio.get_running_loop().time() - self._saved_at > SAVE_S:
                await self._save()

    async def _keep_pace(self, size: int) -> None:
        """Wait until `size` bytes may have been read; the pace may change meanwhile, or be 0."""
        owed = float(size)
        while owed >= 1:  # Less is rounding, for which the clock might not move.
            rate, started = self.bytes_per_second, asyncio.get_running_loop().time()
            await self._pause(owed / rate if rate else None)
            owed -= (asyncio.get_running_loop().time() - started) * rate

    async def _pause(self, seconds: float | None) -> None:
        """Wait for so long, or until settings change; None: only for that."""
        self._reconfigured.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._reconfigured.wait()

    async def _load(self) -> None:
        try:
            self.state = await self._ports.threads.run(self._read)
        except (OSError, ValueError, msgspec.DecodeError) as problem:
            _log.warning("scrubbing starts over reason=%s", problem)
        if self.state.last_full_pass_ms >= 0:
            self._metrics.set(SCRUBBED_AT, self.state.last_full_pass_ms / 1000)

    def _read(self) -> ScrubState:
        files = self._ports.files
        if not files.exists(STATE):
            return ScrubState()
        file = files.open(STATE)
        return decode_state(bytes(file.read(0, file.size())))

    async def _save(self) -> None:
        self._saved_at = asyncio.get_running_loop().time()
        body = msgspec.json.encode(self.state)
        data = f"{crc32.iscsi(body):08x} ".encode() + body

        def write() -> None:
            if write_aside(self._ports.files, STATE, [data]):
                self._ports.files.rename(STATE + TEMPORARY, STATE)

        try:
            await self._ports.threads.run(write)
        except OSError as problem:
            _log.warning("place of scrubbing not saved reason=%s", problem)
