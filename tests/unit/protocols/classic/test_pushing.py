"""When records are pushed, on virtual time: what unmodified clients would lose is held back."""

import asyncio
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import cast

from millstream.codec.records import Record
from millstream.engine.push import Delivered, Member, Send
from millstream.model import Buffer, TopicPartition
from millstream.protocols.classic.context import Name, Roster
from millstream.protocols.classic.pushing import NUMBERS_AHEAD, Pusher
from millstream.protocols.classic.wire import decode
from tests.support.virtual_loop import run

TARGET = TopicPartition("orders", 0)
PAUSE_S = 0.05


class FakePushChannel:
    def __init__(self) -> None:
        self.is_awaited = False
        self.has_room = True
        self.on_room: Callable[[], None] | None = None
        self.numbers: list[int] = []  # Of what was pushed.

    def fail(self, problem: Exception, /) -> None:
        raise problem

    def send(self, buffers: Iterable[Buffer], /) -> bool:
        if self.has_room:
            self.numbers += [decode(frame).sequence for frame in buffers]
        return self.has_room


class Conversation:
    """A pusher with one member."""

    def __init__(self) -> None:
        self.push_channel = FakePushChannel()
        self.roster = Roster()
        self.pusher = Pusher(self.push_channel, self.roster, pause_s=PAUSE_S)
        self.acknowledged: list[int] = []
        self.resumed = 0
        self.send = self.join("billing")

    def join(self, subscription: str) -> Send:
        def resume() -> None:
            self.resumed += 1

        # All that is asked of a member.
        member = SimpleNamespace(
            ack=lambda _, offset: self.acknowledged.append(offset),
            resume=resume,
            close=lambda: None,
            on_end=None,
        )
        name = Name(subscription, "me")
        send = self.pusher.send_for(name)
        self.roster.enter(name, ["orders"])
        self.pusher.add(name, cast(Member, member))
        return send

    def ask(self, number: int) -> None:
        self.pusher.heard(number)
        self.pusher.asked()


def _records(*offsets: int) -> list[Delivered]:
    return [Delivered(TARGET, Record(at, 0, None, b""), "orders", 1) for at in offsets]


def test_records_wait_for_the_pause_after_joining() -> None:
    async def story() -> None:
        talk = Conversation()

        assert talk.send(_records(0, 1))
        await asyncio.sleep(PAUSE_S / 2)
        assert talk.send(_records(2))
        assert talk.push_channel.numbers == talk.acknowledged == []

        await asyncio.sleep(PAUSE_S)
        assert talk.push_channel.numbers == talk.acknowledged == [0, 1, 2]
        assert talk.send(_records(3))
        assert talk.push_channel.numbers == [0, 1, 2, 3]

    run(story())


def test_records_wait_for_the_answer_to_a_request() -> None:
    async def story() -> None:
        talk = Conversation()
        await asyncio.sleep(PAUSE_S)
        talk.ask(1)
        talk.ask(2)

        assert talk.send(_records(90))
        talk.pusher.answered()
        await asyncio.sleep(1)
        assert talk.push_channel.numbers == []
        talk.pusher.answered()
        assert talk.push_channel.numbers == []  # The answer is not out yet.
        await asyncio.sleep(0.001)
        assert talk.push_channel.numbers == [90]

    run(story())


def test_a_number_that_the_next_requests_may_have_waits_until_they_are_past_or_do_not_come() -> (
    None
):
    async def story() -> None:
        talk = Conversation()
        await asyncio.sleep(PAUSE_S)
        talk.ask(4)
        talk.pusher.answered()
        await asyncio.sleep(0.001)

        assert talk.send(_records(4, 5 + NUMBERS_AHEAD))
        assert talk.send(_records(5))
        assert talk.send(_records(6))
        assert talk.push_channel.numbers == [4, 5 + NUMBERS_AHEAD]
        talk.ask(5)
        talk.pusher.answered()
        await asyncio.sleep(0.001)
        assert talk.push_channel.numbers[2:] == [5]
        await asyncio.sleep(PAUSE_S)
        assert talk.push_channel.numbers[2:] == [5, 6]
        assert talk.send(_records(7))
        assert talk.push_channel.numbers[2:] == [5, 6, 7]

    run(story())


def test_a_client_without_room_loses_its_turn_until_there_is_some() -> None:
    async def story() -> None:
        talk = Conversation()
        await asyncio.sleep(2 * PAUSE_S)
        talk.push_channel.has_room = False

        assert not talk.send(_records(0))
        talk.push_channel.has_room = True
        assert talk.push_channel.on_room is not None
        talk.push_channel.on_room()

        assert talk.resumed == 1
        assert talk.push_channel.numbers == talk.acknowledged == []

    run(story())


def test_what_was_held_and_finds_no_room_goes_before_all_else() -> None:
    async def story() -> None:
        talk = Conversation()
        assert talk.send(_records(0))
        talk.push_channel.has_room = False
        await asyncio.sleep(2 * PAUSE_S)

        assert not talk.send(_records(1))
        talk.push_channel.has_room = True
        assert not talk.send(_records(1))
        assert talk.push_channel.on_room is not None
        talk.push_channel.on_room()

        assert talk.push_channel.numbers == talk.acknowledged == [0]
        assert talk.resumed == 1

    run(story())


def test_what_is_held_for_who_leaves_is_not_acknowledged() -> None:
    async def story() -> None:
        talk = Conversation()
        send = talk.join("audit")
        assert talk.send(_records(0))
        assert send(_records(0, 1))

        talk.pusher.remove(Name("billing", "me"))
        assert talk.push_channel.is_awaited
        await asyncio.sleep(2 * PAUSE_S)
        assert talk.push_channel.numbers == talk.acknowledged == [0, 1]

        talk.pusher.close()
        assert not talk.push_channel.is_awaited
        assert talk.roster.reached("orders") == 0

    run(story())
