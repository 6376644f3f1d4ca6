"""Fetch sessions (KIP-227): what clients fetch again and again is remembered here, not sent again.

Owns the sessions of a broker: which partitions each one follows, what its client was last told of
them, and who has to go when there are too many. Reading is not done here. The one thing to know: a
session is a matter of comfort. A client whose session is gone, or was never granted, is told so and
sends everything again, so there is always something safe to answer.

Pure: time and randomness are passed in.
"""

from collections.abc import Iterable, Mapping
from random import Random
from typing import NamedTuple
from uuid import UUID

from millstream.config import Limits
from millstream.kafka_wire.error_codes import ErrorCode

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


class Wanted(NamedTuple):
    """What a client wants of a partition."""

    offset: int
    bytes_max: int
    leader_epoch: int
    last_epoch: int


class Ask(NamedTuple):
    """The part of a fetch request that concerns sessions."""

    principal: str
    session_id: int
    epoch: int
    uses_ids: bool
    wanted: Mapping[Part, Wanted]
    forgotten: Iterable[Part]


class Told(NamedTuple):
    """What a client is to be told of a partition."""

    size: int
    high_watermark: int
    log_start_offset: int
    is_special: bool  # An error or a divergence: always worth telling.


class _Followed:
    """A partition in a session, and what its client knows of it."""

    __slots__ = ("high_watermark", "log_start_offset", "wanted")

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.high_watermark = -1
        self.log_start_offset = -1


class Session:
    """Made by `Sessions`. Partitions are in the order in which they are served."""

    __slots__ = ("created_ms", "epoch", "followed", "id", "principal", "used_ms", "uses_ids")

    def __init__(self, session_id: int, ask: Ask, now_ms: int) -> None:
        self.id = session_id
        self.principal = ask.principal
        self.uses_ids = ask.uses_ids
        self.epoch = OPENING_EPOCH + 1  # That the next request has to carry.
        self.created_ms = self.used_ms = now_ms
        self.followed = {part: _Followed(wanted) for part, wanted in ask.wanted.items()}

    def update(self, ask: Ask, now_ms: int) -> None:
        for part, wanted in ask.wanted.items():
            followed = self.followed.get(part)
            if followed is None:
                self.followed[part] = _Followed(wanted)
            else:
                followed.wanted = wanted
        for part in ask.forgotten:
            self.followed.pop(part, None)
        self.epoch = 1 if self.epoch == EPOCH_MAX else self.epoch + 1
        self.used_ms = now_ms


class Turn:
    """One fetch: what to read, and then what of it to tell."""

    def __init__(self, wanted: Mapping[Part, Wanted], session: Session | None, *, is_full: bool):
        self.wanted = wanted
        self.session_id = NO_SESSION if session is None else session.id
        self._session = session
        self._is_full = is_full

    def tells(self, part: Part, told: Told) -> bool:
        """Take note of what is there; say whether the client must be told, or knows it all."""
        assert self._session is not None, "without a session everything is told"
        followed = self._session.followed.get(part)
        if followed is None:
            return True
        is_news = (
            told.size > 0
            or told.is_special
            or told.high_watermark != followed.high_watermark
            or told.log_start_offset != followed.log_start_offset
        )
        # After an error there is no watermark, so the first answer without one is news again.
        followed.high_watermark = told.high_watermark
        followed.log_start_offset = told.log_start_offset
        if told.size > 0:
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
        """In all sessions together: what they take memory for."""
        return self._partition_count

    def begin(self, ask: Ask, now_ms: int) -> Turn | ErrorCode:
        """Find out what a request wants, with or without a session, or why that cannot be."""
        if ask.epoch in (OPENING_EPOCH, FINAL_EPOCH):
            known = self._sessions.get(ask.session_id)
            if known is not None and known.principal == ask.principal:
                self._remove(known)
            session = self._create(ask, now_ms) if ask.epoch == OPENING_EPOCH else None
            return Turn(ask.wanted, session, is_full=True)
        session = self._sessions.get(ask.session_id)
        if session is None or session.principal != ask.principal:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != ask.epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.uses_ids != ask.uses_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        return self._continue(session, ask, now_ms)

    def _continue(self, session: Session, ask: Ask, now_ms: int) -> Turn | ErrorCode:
        count = len(session.followed)
        session.update(ask, now_ms)
        self._partition_count += len(session.followed) - count
        if not session.followed:
            self._remove(session)
            return Turn({}, None, is_full=True)
        if self._is_too_large(len(session.followed)) or self._is_full(0):
            self._remove(session)
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND  # It may ask for everything anew.
        del self._sessions[session.id]
        self._sessions[session.id] = session
        wanted = {part: followed.wanted for part, followed in session.followed.items()}
        return Turn(wanted, session, is_full=False)

    def _create(self, ask: Ask, now_ms: int) -> Session | None:
        count = len(ask.wanted)
        if count == 0 or self._is_too_large(count):
            return None
        while len(self._sessions) >= self._limits.fetch_sessions_max or self._is_full(count):
            if not self._evict_for(count, now_ms):
                return None
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._random.randint(1, EPOCH_MAX)
        session = self._sessions[session_id] = Session(session_id, ask, now_ms)
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
