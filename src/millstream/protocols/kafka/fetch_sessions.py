"""Fetch sessions (KIP-227): remember what clients fetch again and again, so it is not sent again.

Owns the sessions of a broker: the partitions of each, the state of each partition that its client
has seen, and the eviction when there are too many. Reading is not done here. A session only saves
bytes: a client whose session is gone, or was never granted, gets an error code and sends everything
again, so there is always a safe answer.

Pure: time and randomness are passed in.
"""

from collections.abc import Iterable, Mapping
from random import Random
from typing import NamedTuple
from uuid import UUID

from millstream.config import Limits
from millstream.kafka_wire.error_codes import ErrorCode
from millstream.model import Principal

NO_SESSION = 0
OPENING_EPOCH = 0
FINAL_EPOCH = -1
EPOCH_MAX = 2**31 - 1
# A session younger, or used more recently, than this is not given up for another one.
SAFE_MS = 120_000


class Part(NamedTuple):
    """A partition as the client names it: by the topic's name, or from v13 on by its id."""

    topic: str
    topic_id: UUID
    partition: int


class PartitionFetch(NamedTuple):
    """A partition in a fetch request."""

    offset: int
    bytes_max: int
    leader_epoch: int
    last_epoch: int


class SessionRequest(NamedTuple):
    """The part of a fetch request that concerns sessions."""

    principal: Principal
    session_id: int
    epoch: int
    uses_ids: bool
    fetches: Mapping[Part, PartitionFetch]
    forgotten: Iterable[Part]


class PartitionState(NamedTuple):
    """A partition in a fetch response."""

    size: int
    high_watermark: int
    log_start_offset: int
    is_special: bool  # An error or a divergence: always in the response.


class _SessionPartition:
    """A partition in a session, with the state that its client has seen."""

    __slots__ = ("fetch", "high_watermark", "log_start_offset")

    def __init__(self, fetch: PartitionFetch) -> None:
        self.fetch = fetch
        self.high_watermark = -1
        self.log_start_offset = -1


class Session:
    """Made by `Sessions`. Partitions are in the order in which they are served."""

    __slots__ = ("created_ms", "epoch", "followed", "id", "principal", "used_ms", "uses_ids")

    def __init__(self, session_id: int, request: SessionRequest, now_ms: int) -> None:
        self.id = session_id
        self.principal = request.principal
        self.uses_ids = request.uses_ids
        self.epoch = OPENING_EPOCH + 1  # That the next request has to carry.
        self.created_ms = self.used_ms = now_ms
        self.followed = {part: _SessionPartition(fetch) for part, fetch in request.fetches.items()}

    def update(self, request: SessionRequest, now_ms: int) -> None:
        for part, fetch in request.fetches.items():
            followed = self.followed.get(part)
            if followed is None:
                self.followed[part] = _SessionPartition(fetch)
            else:
                followed.fetch = fetch
        for part in request.forgotten:
            self.followed.pop(part, None)
        self.epoch = 1 if self.epoch == EPOCH_MAX else self.epoch + 1
        self.used_ms = now_ms


class Turn:
    """One fetch: the partitions to read, and then those to include in the response."""

    def __init__(
        self, fetches: Mapping[Part, PartitionFetch], session: Session | None, *, is_full: bool
    ):
        self.fetches = fetches
        self.session_id = NO_SESSION if session is None else session.id
        self._session = session
        self._is_full = is_full

    def includes(self, part: Part, state: PartitionState) -> bool:
        """Record the state of a partition; return whether the response must have it."""
        assert self._session is not None, "without a session every partition is included"
        followed = self._session.followed.get(part)
        if followed is None:
            return True
        is_news = (
            state.size > 0
            or state.is_special
            or state.high_watermark != followed.high_watermark
            or state.log_start_offset != followed.log_start_offset
        )
        # After an error there is no watermark, so the first answer without one is news again.
        followed.high_watermark = state.high_watermark
        followed.log_start_offset = state.log_start_offset
        if state.size > 0:
            # To the end of the line: a busy partition must not starve those behind it.
            del self._session.followed[part]
            self._session.followed[part] = followed
        return is_news or self._is_full


class Sessions:
    """All sessions of a broker."""

    def __init__(self, limits: Limits, random: Random) -> None:
        self._limits = limits
        self._random = random
        self._sessions: dict[int, Session] = {}  # Least recently used first.
        self._partition_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        """The number of partitions in all sessions, which take memory."""
        return self._partition_count

    def begin(self, request: SessionRequest, now_ms: int) -> Turn | ErrorCode:
        """The partitions of a request, with or without a session, or the error code."""
        if request.epoch in (OPENING_EPOCH, FINAL_EPOCH):
            known = self._sessions.get(request.session_id)
            if known is not None and known.principal == request.principal:
                self._remove(known)
            session = self._create(request, now_ms) if request.epoch == OPENING_EPOCH else None
            return Turn(request.fetches, session, is_full=True)
        session = self._sessions.get(request.session_id)
        if session is None or session.principal != request.principal:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != request.epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.uses_ids != request.uses_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        return self._continue(session, request, now_ms)

    def _continue(self, session: Session, request: SessionRequest, now_ms: int) -> Turn | ErrorCode:
        count = len(session.followed)
        session.update(request, now_ms)
        self._partition_count += len(session.followed) - count
        if not session.followed:
            self._remove(session)
            return Turn({}, None, is_full=True)
        if self._is_too_large(len(session.followed)) or self._is_full(0):
            self._remove(session)
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND  # The client sends everything again.
        del self._sessions[session.id]
        self._sessions[session.id] = session
        fetches = {part: followed.fetch for part, followed in session.followed.items()}
        return Turn(fetches, session, is_full=False)

    def _create(self, request: SessionRequest, now_ms: int) -> Session | None:
        count = len(request.fetches)
        if count == 0 or self._is_too_large(count):
            return None
        while len(self._sessions) >= self._limits.fetch_sessions_max or self._is_full(count):
            if not self._evict_for(count, now_ms):
                return None
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._random.randint(1, EPOCH_MAX)
        session = self._sessions[session_id] = Session(session_id, request, now_ms)
        self._partition_count += count
        return session

    def _is_too_large(self, count: int) -> bool:
        return count > self._limits.fetch_session_partitions_max

    def _is_full(self, added: int) -> bool:
        return self._partition_count + added > self._limits.fetch_sessions_partitions_max

    def _evict_for(self, count: int, now_ms: int) -> bool:
        """Give up the session that was unused for longest, or a smaller one than the new one."""
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if now_ms - oldest.used_ms > SAFE_MS:
            self._remove(oldest)
            return True
        smallest = min(self._sessions.values(), key=lambda session: len(session.followed))
        if len(smallest.followed) < count and now_ms - smallest.created_ms > SAFE_MS:
            self._remove(smallest)
            return True
        return False

    def _remove(self, session: Session) -> None:
        del self._sessions[session.id]
        self._partition_count -= len(session.followed)
