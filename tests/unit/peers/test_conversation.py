"""Messages between nodes: one side reads what the other wrote, and nonsense is refused."""

from contextlib import suppress
from random import Random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import ProtocolError
from millstream.model import Boundary, Epoch, LogId, Position, ReplicaId
from millstream.peers.conversation import (
    PART_BYTES_MAX,
    STEADY_RECORDS_BYTES_MAX,
    Answer,
    Call,
    Cancel,
    Item,
    Listener,
    Speaker,
    is_bulky,
)
from millstream.peers.wire import FRAME_BYTES_MAX, FrameReader, Kind, encode_frame
from millstream.raft.link_messages import GroupMessage, Heartbeat, Left, PositionsSent
from millstream.raft.messages import (
    Alive,
    Diverged,
    Fetch,
    FetchReply,
    Hint,
    Lead,
    Message,
    PreVote,
    PreVoteGranted,
    Reset,
    TakeOver,
    Vote,
    VoteGranted,
)

BYTES_MAX = 32 * 2**20

numbers = st.integers(0, 2**63 - 1)
epochs = numbers.map(Epoch)
replicas = numbers.map(ReplicaId)
positions = st.builds(Position, epochs, numbers)
logs = st.builds(LogId, st.uuids(), st.integers(0, 2**31 - 1))
boundaries = st.lists(
    st.builds(Boundary, epochs, numbers, st.frozensets(replicas, max_size=5)), max_size=3
).map(tuple)
messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(PreVote, epochs, positions),
    st.builds(PreVoteGranted, epochs),
    st.builds(Vote, epochs, positions),
    st.builds(VoteGranted, epochs),
    st.builds(Lead, epochs),
    st.builds(Alive, epochs),
    st.builds(TakeOver, epochs),
    st.builds(Fetch, epochs, positions, numbers),
    st.builds(
        FetchReply,
        epoch=epochs,
        base=positions,
        boundaries=boundaries,
        records=st.binary(max_size=200),
        high_watermark=numbers,
        start_offset=numbers,
    ),
    st.builds(Diverged, epochs, positions, positions),
    st.builds(Reset, epochs, positions, numbers, boundaries.filter(bool)),
    st.builds(Hint, epochs, st.none() | replicas),
)
words = st.text(alphabet="abcdefghij.", min_size=1, max_size=20)
items: st.SearchStrategy[Item] = st.one_of(
    st.builds(Heartbeat, numbers, numbers, st.booleans()),
    st.builds(Left, logs, replicas, epochs),
    st.just(PositionsSent()),
    st.builds(GroupMessage, logs, replicas, replicas, messages),
    st.builds(Call, numbers, words, st.integers(0, 2**32 - 1), st.binary(max_size=50)),
    st.builds(Answer, numbers, st.just("") | words, st.binary(max_size=50)),
    st.builds(Cancel, numbers),
)


def hear(stream: bytes, *, step: int = 1 << 30, bytes_max: int = BYTES_MAX) -> list[Item]:
    reader, listener = FrameReader(), Listener(message_bytes_max=bytes_max)
    heard: list[Item] = []
    for at in range(0, len(stream), step):
        for kind, payload in reader.feed(stream[at : at + step]):
            heard += listener.receive(kind, payload)
    return heard


def reply_with(records: bytes) -> GroupMessage:
    reply = FetchReply(
        epoch=Epoch(3),
        base=Position(Epoch(2), 7),
        boundaries=(),
        records=records,
        high_watermark=5,
        start_offset=1,
    )
    return GroupMessage(LogId(UUID(int=9), 1), ReplicaId(1), ReplicaId(2), reply)


@given(st.lists(st.lists(items, max_size=6), max_size=4), st.integers(1, 40))
def test_what_was_said_is_heard_however_the_stream_is_cut(
    turns: list[list[Item]], step: int
) -> None:
    speaker = Speaker()
    stream = b"".join(frame for turn in turns for frame in speaker.encode(turn))

    assert hear(stream, step=step) == [item for turn in turns for item in turn]


@given(st.lists(items, min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_a_broken_byte_is_never_taken_for_another_message(said: list[Item], random: Random) -> None:
    stream = bytearray(b"".join(Speaker().encode(said)))
    stream[random.randrange(len(stream))] ^= random.randint(1, 255)

    try:
        heard = hear(bytes(stream))
    except ProtocolError:
        return
    # A longer length waits for bytes that do not come; what came before it is whole.
    assert heard == said[: len(heard)]
    assert len(heard) < len(said)


@given(st.sampled_from(Kind), st.binary(max_size=300))
def test_nonsense_with_a_right_checksum_is_refused_or_understood(kind: Kind, data: bytes) -> None:
    with suppress(ProtocolError):
        assert len(hear(encode_frame(kind, data))) <= len(data)


@given(st.lists(items, min_size=1, max_size=3), st.data())
def test_a_frame_cut_short_is_refused(said: list[Item], data: st.DataObject) -> None:
    frames = list(Speaker().encode(said))
    reader = FrameReader()
    ((kind, payload),) = list(reader.feed(frames[0]))
    size = data.draw(st.integers(0, max(0, len(payload) - 1)))
    try:
        heard = Listener(message_bytes_max=BYTES_MAX).receive(kind, payload[:size])
    except ProtocolError:
        return
    assert len(heard) <= len(said)


def test_many_records_come_in_parts_and_go_the_bulk_way() -> None:
    records = Random(1).randbytes(3 * PART_BYTES_MAX + 5)
    said = [reply_with(records), reply_with(b"x" * STEADY_RECORDS_BYTES_MAX)]
    frames = list(Speaker().encode(said))

    assert len(frames) == 5
    assert all(len(frame) < 2 * PART_BYTES_MAX for frame in frames)
    assert hear(b"".join(frames), step=70_000) == said
    assert [is_bulky(item) for item in said] == [True, False]


def test_a_message_above_its_limit_is_refused_before_it_is_whole() -> None:
    stream = b"".join(Speaker().encode([reply_with(bytes(3 * PART_BYTES_MAX))]))

    with pytest.raises(ProtocolError, match="more than 2000000 bytes"):
        hear(stream, bytes_max=2_000_000)


def test_a_frame_above_the_limit_is_refused_by_its_head() -> None:
    head = (FRAME_BYTES_MAX + 1).to_bytes(4, "big") + bytes(4) + bytes([Kind.GROUPS])

    with pytest.raises(ProtocolError, match="at most"):
        list(FrameReader().feed(head))


def test_a_pair_of_replicas_is_named_once() -> None:
    speaker = Speaker()
    fetch = Fetch(Epoch(1), Position(Epoch(1), 5), 5)
    item = GroupMessage(LogId(UUID(int=1), 0), ReplicaId(1), ReplicaId(2), fetch)
    first, second = (b"".join(speaker.encode([item])) for _ in range(2))

    assert len(first) - len(second) == 41
    assert hear(first + second) == [item, item]
