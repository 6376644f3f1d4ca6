"""A client with a session sees exactly what one sees that sends everything every time."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.config import Limits
from millstream.kafka_wire.schema import NO_ID
from millstream.model import user_principal
from millstream.protocols.kafka.fetch_sessions import (
    OPENING_EPOCH,
    Part,
    PartitionFetch,
    PartitionState,
    SessionRequest,
    Sessions,
    Turn,
)
from tests.support.tiers import sized

PARTITIONS = 4


class Log:
    """A partition: where it starts and ends, and whether asking for it is an error."""

    def __init__(self) -> None:
        self.start = 0
        self.end = 0
        self.is_broken = False

    def state(self, fetch: PartitionFetch) -> PartitionState:
        if self.is_broken or not self.start <= fetch.offset <= self.end:
            return PartitionState(0, -1, -1, is_special=True)
        return PartitionState(
            min(self.end - fetch.offset, fetch.bytes_max), self.end, self.start, is_special=False
        )


class Consumer:
    """Follows partitions; what it knows of each is what it was last told."""

    def __init__(self) -> None:
        self.offsets: dict[int, int] = {}
        self.known: dict[int, PartitionState] = {}
        self.taken: dict[int, int] = {}

    def partition_fetch(self, number: int) -> PartitionFetch:
        return PartitionFetch(self.offsets[number], 3, -1, -1)

    def take(self, number: int, state: PartitionState, log: Log) -> None:
        self.known[number] = state._replace(size=0)
        if state.is_special and not log.is_broken:
            self.offsets[number] = log.start
        self.offsets[number] += state.size
        self.taken[number] = self.taken.get(number, 0) + state.size


class SessionConsumer(Consumer):
    """Sends only what changed since its last request."""

    def __init__(self, sessions: Sessions) -> None:
        super().__init__()
        self._sessions = sessions
        self._session_id = 0
        self._epoch = OPENING_EPOCH
        self._sent: dict[int, PartitionFetch] = {}

    def fetch(self, logs: list[Log]) -> None:
        now = {number: self.partition_fetch(number) for number in self.offsets}
        is_opening = self._epoch == OPENING_EPOCH
        changed = {n: w for n, w in now.items() if is_opening or self._sent.get(n) != w}
        turn = self._sessions.begin(
            SessionRequest(
                principal=user_principal("p"),
                session_id=self._session_id,
                epoch=self._epoch,
                uses_ids=False,
                fetches={Part("t", NO_ID, n): fetch for n, fetch in changed.items()},
                forgotten=[Part("t", NO_ID, n) for n in self._sent if n not in now],
            ),
            now_ms=0,
        )
        if not isinstance(turn, Turn):
            self._session_id, self._epoch, self._sent = 0, OPENING_EPOCH, {}
            self.fetch(logs)
            return
        self._session_id = turn.session_id
        self._sent = now if turn.session_id else {}
        self._epoch = self._epoch + 1 if turn.session_id else OPENING_EPOCH
        for part, fetch in list(turn.fetches.items()):
            state = logs[part.partition].state(fetch)
            assert fetch == now[part.partition]
            if turn.session_id == 0 or turn.includes(part, state):
                self.take(part.partition, state, logs[part.partition])


class FullConsumer(Consumer):
    def fetch(self, logs: list[Log]) -> None:
        for number in list(self.offsets):
            self.take(number, logs[number].state(self.partition_fetch(number)), logs[number])


steps = st.one_of(
    st.tuples(st.just("append"), st.integers(0, PARTITIONS - 1)),
    st.tuples(st.just("trim"), st.integers(0, PARTITIONS - 1)),
    st.tuples(st.just("break"), st.integers(0, PARTITIONS - 1)),
    st.tuples(st.just("follow"), st.integers(0, PARTITIONS - 1)),
    st.tuples(st.just("forget"), st.integers(0, PARTITIONS - 1)),
    st.tuples(st.just("fetch"), st.just(0)),
    st.tuples(st.just("restart"), st.just(0)),
)


@settings(max_examples=sized(300), deadline=None)
@given(st.lists(steps, max_size=60))
def test_a_session_client_sees_what_a_sessionless_one_sees(script: list[tuple[str, int]]) -> None:
    logs = [Log() for _ in range(PARTITIONS)]
    sessions = Sessions(Limits(), Random(1))
    with_session, other = SessionConsumer(sessions), FullConsumer()

    for word, number in script:
        match word:
            case "append":
                logs[number].end += 2
            case "trim":
                logs[number].start = logs[number].end
            case "break":
                logs[number].is_broken = not logs[number].is_broken
            case "follow":
                with_session.offsets.setdefault(number, 0)
                other.offsets.setdefault(number, 0)
            case "forget":
                for consumer in (with_session, other):
                    consumer.offsets.pop(number, None)
                    consumer.known.pop(number, None)
            case "restart":
                sessions = with_session._sessions = Sessions(Limits(), Random(2))
            case _:
                with_session.fetch(logs)
                other.fetch(logs)
                assert with_session.known == other.known
                assert with_session.offsets == other.offsets
                assert with_session.taken == other.taken
