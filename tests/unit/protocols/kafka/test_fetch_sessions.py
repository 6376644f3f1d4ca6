"""Fetch sessions as a client of them sees it: epochs, what is sent again, eviction."""

from collections.abc import Iterable
from random import Random
from uuid import UUID

import pytest

from millstream.config import Limits
from millstream.kafka_wire.error_codes import ErrorCode
from millstream.kafka_wire.schema import NO_ID
from millstream.model import user_principal
from millstream.protocols.kafka.fetch_sessions import (
    EPOCH_MAX,
    FINAL_EPOCH,
    NO_SESSION,
    OPENING_EPOCH,
    SAFE_MS,
    Part,
    PartitionFetch,
    PartitionState,
    SessionRequest,
    Sessions,
    Turn,
)

QUIET = PartitionState(size=0, high_watermark=5, log_start_offset=0, is_special=False)


def part(number: int, topic: str = "orders", topic_id: UUID = NO_ID) -> Part:
    return Part(topic, topic_id, number)


def wanting(offset: int = 0) -> PartitionFetch:
    return PartitionFetch(offset, 2**20, -1, -1)


class Client:
    """Asks as one client does; a fetch without an id or epoch goes on where the last one was."""

    def __init__(self, sessions: Sessions, principal: str = "anna") -> None:
        self.sessions = sessions
        self.principal = user_principal(principal)
        self.session_id = NO_SESSION
        self.epoch = OPENING_EPOCH
        self.now_ms = 0

    def ask(
        self,
        parts: Iterable[Part] = (),
        *,
        forgotten: Iterable[Part] = (),
        epoch: int | None = None,
        uses_ids: bool = False,
    ) -> Turn | ErrorCode:
        return self.sessions.begin(
            SessionRequest(
                principal=self.principal,
                session_id=self.session_id,
                epoch=self.epoch if epoch is None else epoch,
                uses_ids=uses_ids,
                fetches={each: wanting() for each in parts},
                forgotten=forgotten,
            ),
            self.now_ms,
        )

    def fetch(self, parts: Iterable[Part] = (), *, forgotten: Iterable[Part] = ()) -> Turn:
        turn = self.ask(parts, forgotten=forgotten)
        assert isinstance(turn, Turn)
        self.session_id = turn.session_id
        self.epoch += 1
        return turn


def sessions(**limits: int) -> Sessions:
    return Sessions(Limits(**limits), Random(1))


def test_a_session_remembers_what_its_client_wants() -> None:
    client = Client(sessions())
    client.fetch([part(0), part(1)])

    assert list(client.fetch().fetches) == [part(0), part(1)]
    assert list(client.fetch([part(2)], forgotten=[part(0)]).fetches) == [part(1), part(2)]
    assert client.sessions.partition_count == 2


def test_the_first_answer_tells_everything_and_later_ones_only_news() -> None:
    client = Client(sessions())
    first = client.fetch([part(0)])
    assert first.includes(part(0), QUIET)

    assert not client.fetch().includes(part(0), QUIET)


@pytest.mark.parametrize(
    "news",
    [
        QUIET._replace(size=1),
        QUIET._replace(high_watermark=6),
        QUIET._replace(log_start_offset=1),
        QUIET._replace(is_special=True),
    ],
)
def test_data_errors_and_moved_marks_are_news(news: PartitionState) -> None:
    client = Client(sessions())
    client.fetch([part(0)]).includes(part(0), QUIET)

    assert client.fetch().includes(part(0), news)


def test_the_first_answer_after_an_error_is_news() -> None:
    client = Client(sessions())
    client.fetch([part(0)]).includes(part(0), QUIET)
    error = PartitionState(size=0, high_watermark=-1, log_start_offset=-1, is_special=True)
    client.fetch().includes(part(0), error)

    assert client.fetch().includes(part(0), QUIET)


def test_a_partition_that_had_data_goes_to_the_end_of_the_line() -> None:
    client = Client(sessions())
    turn = client.fetch([part(0), part(1), part(2)])

    turn.includes(part(0), QUIET._replace(size=100))
    turn.includes(part(1), QUIET)

    assert list(client.fetch().fetches) == [part(1), part(2), part(0)]


def test_a_wrong_epoch_or_id_is_refused_and_the_session_goes_on() -> None:
    client = Client(sessions())
    client.fetch([part(0)])

    assert client.ask(epoch=7) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    stranger = Client(client.sessions)
    stranger.session_id, stranger.epoch = client.session_id + 1, 1
    assert stranger.ask() is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert list(client.fetch().fetches) == [part(0)]


def test_a_session_is_its_principals_alone() -> None:
    client = Client(sessions())
    client.fetch([part(0)])
    other = Client(client.sessions, principal="berta")
    other.session_id, other.epoch = client.session_id, client.epoch

    assert other.ask() is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    other.ask(epoch=FINAL_EPOCH)
    assert list(client.fetch().fetches) == [part(0)]


def test_names_and_ids_do_not_mix_in_a_session() -> None:
    client = Client(sessions())
    client.fetch([part(0)])

    refusal = client.ask([part(1, "", UUID(int=7))], uses_ids=True)

    assert refusal is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_after_the_last_epoch_comes_the_first() -> None:
    client = Client(sessions())
    client.fetch([part(0)])
    (session,) = client.sessions._sessions.values()
    session.epoch = client.epoch = EPOCH_MAX
    client.fetch()

    client.epoch = 1

    assert list(client.fetch().fetches) == [part(0)]


def test_the_final_epoch_ends_a_session_and_is_served_without_one() -> None:
    client = Client(sessions())
    client.fetch([part(0)])

    turn = client.ask([part(1)], epoch=FINAL_EPOCH)

    assert isinstance(turn, Turn)
    assert (turn.session_id, list(turn.fetches)) == (NO_SESSION, [part(1)])
    assert (len(client.sessions), client.sessions.partition_count) == (0, 0)


def test_opening_again_replaces_the_session() -> None:
    client = Client(sessions())
    client.fetch([part(0), part(1)])
    first_id = client.session_id
    client.epoch = OPENING_EPOCH

    client.fetch([part(2)])

    assert client.session_id != first_id
    assert (len(client.sessions), client.sessions.partition_count) == (1, 1)


def test_a_session_that_follows_nothing_any_more_ends() -> None:
    client = Client(sessions())
    client.fetch([part(0)])

    turn = client.fetch(forgotten=[part(0)])

    assert turn.session_id == NO_SESSION
    assert len(client.sessions) == 0


def test_when_there_are_enough_sessions_a_client_is_served_without_one() -> None:
    shared = sessions(fetch_sessions_max=2)
    first, second, third = Client(shared), Client(shared), Client(shared)
    first.fetch([part(0)])
    second.fetch([part(0)])

    assert third.fetch([part(0), part(1)]).session_id == NO_SESSION
    assert list(first.fetch().fetches) == [part(0)]


def test_the_session_that_was_unused_for_longest_goes_first() -> None:
    shared = sessions(fetch_sessions_max=2)
    idle, busy, late = Client(shared), Client(shared), Client(shared)
    idle.fetch([part(0)])
    busy.fetch([part(0)])
    busy.now_ms = late.now_ms = SAFE_MS + 1
    busy.fetch()

    assert late.fetch([part(0)]).session_id != NO_SESSION
    assert idle.ask() is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert list(busy.fetch().fetches) == [part(0)]


def test_a_small_session_gives_way_to_a_larger_one_but_not_to_its_like() -> None:
    shared = sessions(fetch_sessions_max=1)
    small, same, large = Client(shared), Client(shared), Client(shared)
    small.fetch([part(0)])
    small.now_ms = same.now_ms = large.now_ms = SAFE_MS + 1
    small.fetch()

    assert same.fetch([part(0)]).session_id == NO_SESSION
    assert large.fetch([part(0), part(1)]).session_id != NO_SESSION
    assert small.ask() is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_partitions_are_bounded_in_one_session_and_in_all_together() -> None:
    shared = sessions(fetch_session_partitions_max=3, fetch_sessions_partitions_max=5)
    first, second = Client(shared), Client(shared)
    four = [part(number) for number in range(4)]

    assert Client(shared).fetch(four).session_id == NO_SESSION
    assert first.fetch(four[:3]).session_id != NO_SESSION
    assert second.fetch(four[:3]).session_id == NO_SESSION
    assert first.ask([part(9)]) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (len(shared), shared.partition_count) == (0, 0)
