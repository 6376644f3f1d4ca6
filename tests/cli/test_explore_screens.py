"""The explorer's screens, driven by keys, against a real broker."""

import asyncio
import html
import re
import threading
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, time
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import HelpPanel, Input, TextArea

from millstream.cli.explorer.app import Explorer
from millstream.cli.explorer.core import paging, window
from millstream.cli.explorer.screens import browser
from millstream.cli.explorer.screens.browser import Browser
from millstream.cli.explorer.screens.dialogs import ProduceForm, Prompt, Question
from millstream.cli.explorer.screens.frame import Frame
from millstream.cli.explorer.screens.group import GroupScreen
from millstream.cli.explorer.screens.home import Home
from millstream.cli.explorer.screens.topic import TopicScreen
from millstream.client import Client, TopicPartition, connect
from tests.support.broker_process import BrokerProcess

DEADLINE_S = 60.0
# Not so early that retention takes it away.
EARLY = round(time() * 1000) - 3_600_000
TEXT = re.compile(r"<text[^>]*>(.*?)</text>", re.DOTALL)


class User:
    """Somebody at the keyboard, who waits until something is to be seen."""

    def __init__(self, explorer: Explorer, pilot: "Pilot[None]") -> None:
        self.explorer = explorer
        self._pilot = pilot

    @property
    def sees(self) -> str:
        parts = TEXT.findall(self.explorer.export_screenshot())
        return html.unescape("".join(parts)).replace("\xa0", " ")

    @property
    def frame(self) -> Frame:
        """The screen in front, not counting dialogs."""
        return next(
            screen for screen in reversed(self.explorer.screen_stack) if isinstance(screen, Frame)
        )

    @property
    def browser(self) -> Browser:
        assert isinstance(self.frame, TopicScreen)
        return self.frame.browser

    @property
    def value(self) -> bytes | None:
        """Of the record under the cursor."""
        chosen = self.browser.chosen
        return None if chosen is None else chosen.value

    async def press(self, *keys: str) -> None:
        await self._pilot.press(*keys)

    async def until(self, is_true: Callable[[], object], claim: str) -> None:
        deadline = monotonic() + DEADLINE_S
        while not is_true():
            assert monotonic() < deadline, (claim, self.frame.problem, self.sees)
            await self._pilot.pause(0.02)

    async def until_seen(self, *texts: str) -> None:
        for text in texts:
            await self.until(lambda text=text: text in self.sees, f"{text!r} is seen")  # type: ignore[misc]

    async def until_on(self, kind: type) -> None:
        await self.until(lambda: isinstance(self.explorer.screen, kind), f"on {kind.__name__}")

    async def answer(self, text: str) -> None:
        """Type into the prompt that comes up."""
        await self.until_on(Prompt)
        self.explorer.screen.query_one(Input).value = text
        await self.press("enter")

    async def until_read(self) -> None:
        await self.until(lambda: self.browser.chosen is not None, "records are read")


Scenario = Callable[[User], Awaitable[Any]]


def drive(
    client: Client,
    scenario: Scenario,
    *,
    topic: str | None = None,
    size: tuple[int, int] = (120, 36),
) -> None:
    async def run() -> None:
        explorer = Explorer(client, topic)
        async with explorer.run_test(size=size, notifications=True) as pilot:
            await scenario(User(explorer, pilot))
        await asyncio.to_thread(explorer.session.close)

    asyncio.run(run())


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[Client]:
    with connect(broker.address, timeout_s=15) as client:
        yield client


def fill(client: Client, topic: str) -> None:
    with client.producer() as producer:
        for number in range(99):
            producer.send(topic, f"value {number}", key=f"key {number}", timestamp=EARLY + number)


@pytest.fixture
def topic(client: Client, names: Callable[[], str]) -> str:
    """100 records over three partitions, of which the last is JSON."""
    name = names()
    client.admin.create_topic(name, partitions=3)
    fill(client, name)
    client.produce(
        name, '{"bread": [1, 2]}', key="last", headers={"trace": "9"}, timestamp=EARLY + 1_000
    )
    return name


@pytest.fixture
def group(client: Client, topic: str, names: Callable[[], str]) -> str:
    name = names()
    ends = client.admin.offsets(topic, "latest")
    client.admin.reset_group(name, {at: end - 1 for at, end in ends.items()})
    return name


# -- looking around ------------------------------------------------------------------------------


def test_topics_are_listed_with_their_records(client: Client, topic: str) -> None:
    async def scenario(user: User) -> None:
        await user.press("slash", *topic, "enter")
        await user.until_seen(topic, "100", "1 node", f"1 topic with '{topic}'")

    drive(client, scenario)


def test_a_filter_that_matches_nothing_says_how_to_go_on(client: Client, topic: str) -> None:
    async def scenario(user: User) -> None:
        await user.until_seen(topic)
        await user.press("slash", *"no such")
        await user.until_seen("No topic has 'no such' in its name: Escape shows all.")
        await user.press("escape")
        await user.until_seen(topic)

    drive(client, scenario)


def test_a_cluster_without_anything_says_what_to_do(tmp_path: Path) -> None:
    async def scenario(user: User) -> None:
        await user.until_seen("No topics yet: press n to make one.")
        await user.press("g")
        await user.until_seen("No groups yet", "millstream consume TOPIC --group NAME")
        await user.press("n")
        await user.answer("fresh 2")
        await user.until_seen("fresh")
        await user.press("enter")
        await user.until_seen("No records here yet: press p to send one", "2 partitions")

    process = BrokerProcess(tmp_path)
    process.start()
    try:
        with connect(process.address) as client:
            drive(client, scenario)
    finally:
        process.kill()


def test_the_newest_record_is_shown_first_and_decoded(client: Client, topic: str) -> None:
    async def scenario(user: User) -> None:
        await user.until_on(TopicScreen)
        await user.until_read()
        await user.until_seen('"bread"', "trace = 9", "json, 17 B", "3 partitions", "1/1")
        await user.press("d", "d")
        await user.until_seen("decoded as text", '{"bread": [1, 2]}')
        await user.press("d")
        await user.until_seen("decoded as hex", "7b 22 62 72 65 61 64")

    drive(client, scenario, topic=topic)


def test_one_goes_back_and_forth_and_jumps(client: Client, topic: str) -> None:
    async def scenario(user: User) -> None:
        await user.until_read()
        await user.press("up")
        await user.until(lambda: user.value == b"value 98", "the one before")
        await user.press("home")
        await user.until(lambda: user.value == b"value 0", "the first")
        await user.press("up")
        await user.until_seen("this is the oldest")
        await user.press("j")
        await user.answer("noon")
        await user.until_seen("'noon' is not earliest")
        await user.answer(datetime.fromtimestamp((EARLY + 50) / 1000, UTC).isoformat())
        await user.until(lambda: user.value == b"value 50", "the one of that time")
        await user.press("end")
        await user.until(lambda: (user.value or b"").startswith(b"{"), "the last")
        await user.press("down")
        await user.until_seen("this is the newest record")

    drive(client, scenario, topic=topic)


def test_one_partition_is_looked_at_alone(client: Client, topic: str) -> None:
    async def scenario(user: User) -> None:
        await user.until_read()
        await user.press("number_sign")
        await user.answer("1")
        await user.until_seen("partition 1 only")
        await user.until(
            lambda: {record.partition for record in user.browser.window.records} == {1}, "only it"
        )
        await user.press("shift+tab", "home")
        await user.press("number_sign")
        await user.answer("all")
        await user.until(lambda: len(user.browser.window.records) == 100, "all of them")

    drive(client, scenario, topic=topic)


def test_a_search_goes_through_the_whole_log_and_holds_little(
    client: Client, names: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = names()
    client.admin.create_topic(topic, partitions=1)
    fill(client, topic)
    monkeypatch.setattr(paging, "PAGE_RECORDS_MAX", 3)
    monkeypatch.setattr(paging, "SEARCH_RECORDS_MAX", 9)
    monkeypatch.setattr(window, "RECORDS_HELD_MAX", 20)

    async def scenario(user: User) -> None:
        await user.until_read()
        await user.press("slash")
        await user.answer("key:key 4")
        await user.until(lambda: user.value == b"value 49", "the newest match")
        await user.press("n")
        await user.until(lambda: user.value == b"value 48", "the match before")
        await user.press("N")
        await user.until(lambda: user.value == b"value 49", "back again")
        await user.press("slash")
        await user.answer("/no such/")
        await user.until_seen("no match in")
        assert len(user.browser.window.records) <= 20
        await user.press("escape")
        await user.until(lambda: user.browser.sought is None, "the search is over")
        assert isinstance(user.frame, TopicScreen)

    drive(client, scenario, topic=topic)


def test_the_live_tail_shows_what_comes_and_holds_little(
    client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window, "RECORDS_HELD_MAX", 30)

    async def scenario(user: User) -> None:
        await user.until_read()
        await user.press("l")
        await user.until_seen("● live")
        for number in range(50):
            await asyncio.to_thread(client.produce, topic, f"live {number}", partition=number % 3)
        await user.until(lambda: user.value == b"live 49", "the last that came")
        assert len(user.browser.window.records) == 30
        await user.press("escape")
        await user.until(lambda: not user.browser.is_live, "the tail has ended")
        await user.until(lambda: "● live" not in user.sees, "and it is to be seen")

    drive(client, scenario, topic=topic)


def test_a_tail_that_cannot_keep_up_skips_to_the_end(
    client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(browser, "LIVE_BEHIND_MAX", 10)

    async def scenario(user: User) -> None:
        await user.until_read()
        await user.press("l")
        await user.until(lambda: user.browser.is_live, "the tail has begun")
        monkeypatch.setattr(paging, "PAGE_RECORDS_MAX", 1)
        with client.producer() as producer:
            for number in range(500):
                producer.send(topic, f"flood {number}", partition=0)
            await asyncio.to_thread(producer.flush)
        await user.until_seen("skipped about")
        await user.until(lambda: user.value == b"flood 499", "the last that came")

    drive(client, scenario, topic=topic)


def test_a_narrow_terminal_has_room_for_the_records(client: Client, topic: str) -> None:
    async def scenario(user: User) -> None:
        await user.until_read()
        await user.until_seen('{"bread"', "Keys")
        assert not user.frame.query_one("#partitions").size.width

    drive(client, scenario, topic=topic, size=(80, 24))


def test_all_keys_are_shown_on_demand(client: Client, topic: str) -> None:
    async def scenario(user: User) -> None:
        await user.until_read()
        await user.press("question_mark")
        await user.until_seen("Previous match", "Earliest record")
        await user.press("question_mark")
        await user.until(lambda: not user.frame.query(HelpPanel), "they are gone")

    drive(client, scenario, topic=topic)


@pytest.mark.parametrize("key", ["q", "ctrl+c", "ctrl+q"])
def test_one_leaves_at_any_time(client: Client, topic: str, key: str) -> None:
    async def scenario(user: User) -> None:
        await user.until_on(TopicScreen)
        await user.press("l", key)
        await user.until(lambda: user.explorer.return_code == 0, "it has ended")

    drive(client, scenario, topic=topic)


# -- changing something --------------------------------------------------------------------------


def test_a_record_is_sent_and_shown(client: Client, topic: str) -> None:
    async def scenario(user: User) -> None:
        await user.until_read()
        await user.press("p")
        await user.until_on(ProduceForm)
        form = user.explorer.screen
        form.query_one("#key", Input).value = "ann"
        form.query_one("#value", TextArea).text = "typed"
        form.query_one("#headers", TextArea).text = "no pair"
        await user.press("ctrl+s")
        await user.until_seen("takes KEY=VALUE")
        form.query_one("#headers", TextArea).text = "a=b"
        form.query_one("#partition", Input).value = "7"
        await user.press("ctrl+s")
        await user.until_seen("cannot")
        form.query_one("#partition", Input).value = "2"
        await user.press("ctrl+s")
        await user.until_on(TopicScreen)
        await user.until(lambda: user.value == b"typed", "it is shown")

    drive(client, scenario, topic=topic)

    with client.consumer(topic, from_="earliest") as consumer:
        (sent,) = [record for record in consumer.take(101) if record.value == b"typed"]
    assert (sent.key, sent.partition, sent.headers) == (b"ann", 2, (("a", b"b"),))


def test_a_group_shows_its_lag_and_leads_to_its_records(
    client: Client, topic: str, group: str
) -> None:
    async def scenario(user: User) -> None:
        await user.until_on(Home)
        await user.press("g", "slash", *group, "enter")
        await user.until_seen(group, "empty")
        await user.press("enter")
        await user.until_on(GroupScreen)
        await user.until_seen(topic, "0 members", "total lag 3")
        await user.press("down", "enter")
        await user.until_on(TopicScreen)
        assert user.browser.partition == 1
        await user.until_read()  # Until then Escape stops the reading, and the screen stays.
        await user.press("escape")
        await user.until_on(GroupScreen)

    drive(client, scenario)


async def open_group(user: User, group: str) -> None:
    user.explorer.push_screen(GroupScreen(user.explorer.session, group))
    await user.until_on(GroupScreen)
    await user.until_seen("total lag")


def test_a_reset_shows_its_plan_asks_and_moves_the_group(
    client: Client, topic: str, group: str
) -> None:
    async def scenario(user: User) -> None:
        await open_group(user, group)
        for key in ("enter", "n", "escape"):
            await user.press("R")
            await user.answer("earliest")
            await user.until_on(Question)
            await user.until_seen(f"Move group {group} in 3 partitions?", "again")
            await user.press(key)
            await user.until_on(GroupScreen)
            assert 0 not in client.admin.committed(group).values()
        await user.press("R")
        await user.answer(f"0 {topic}")
        await user.until_on(Question)
        await user.press("y")
        await user.until_seen("total lag 100")

    drive(client, scenario)

    assert set(client.admin.committed(group).values()) == {0}


def test_an_offset_is_committed_for_one_partition(client: Client, topic: str, group: str) -> None:
    before = client.admin.committed(group)

    async def scenario(user: User) -> None:
        await open_group(user, group)
        await user.press("down", "o")
        await user.answer("99999")
        await user.until_on(Question)
        await user.press("y")
        await user.until_seen("total lag 2")

    drive(client, scenario)

    at = TopicPartition(topic, 1)
    assert client.admin.committed(group) == before | {at: before[at] + 1}


def test_a_group_can_be_sent_to_the_record_under_the_cursor(
    client: Client, topic: str, group: str
) -> None:
    async def scenario(user: User) -> None:
        await user.until_read()
        await user.press("home")
        await user.until(lambda: user.value == b"value 0", "the first")
        await user.press("o")
        await user.answer(group)
        await user.until_on(Question)
        await user.press("y")
        await user.until(lambda: 0 in client.admin.committed(group).values(), "it is committed")
        await user.until_seen("goes on with")

    drive(client, scenario, topic=topic)


def test_a_group_with_members_is_not_moved_and_the_reason_is_shown(
    client: Client, topic: str, names: Callable[[], str]
) -> None:
    name = names()

    async def scenario(user: User) -> None:
        await open_group(user, name)
        await user.until_seen("its offsets can be set when it has no members")
        await user.press("R")
        await user.answer(f"earliest {topic}")
        await user.until_on(Question)
        await user.press("y")
        await user.until_seen(f"cannot reset group '{name}'")
        await user.press("escape")
        await user.until(lambda: not user.frame.problem, "it is dismissed")
        assert isinstance(user.frame, GroupScreen)

    with client.consumer(topic, group=name) as consumer:
        consumer.wait_assigned()
        drive(client, scenario)


def test_deleting_asks_first(client: Client, topic: str, group: str) -> None:
    async def scenario(user: User) -> None:
        await open_group(user, group)
        await user.press("D")
        await user.until_on(Question)
        await user.press("enter")
        await user.until_on(GroupScreen)
        await user.press("D")
        await user.until_on(Question)
        await user.press("y")
        await user.until_on(Home)
        await user.until_seen(topic)
        await user.press("slash", *topic, "enter", "D")
        await user.until_on(Question)
        await user.until_seen(f"Delete topic {topic}?", "All its records are lost.")
        await user.press("y")
        await user.until_seen("No topic has")

    drive(client, scenario)

    assert group not in {group.group_id for group in client.admin.list_groups()}
    assert topic not in {topic.name for topic in client.admin.list_topics()}


# -- when things go wrong ------------------------------------------------------------------------


def test_a_broker_that_goes_away_is_a_sentence_and_comes_back(tmp_path: Path) -> None:
    process = BrokerProcess(tmp_path)
    process.start()

    async def scenario(user: User) -> None:
        await user.until_seen("kept")
        process.kill()
        await user.press("r")
        await user.until_seen("no broker answers at")
        await user.press("down", "enter")
        await user.until_on(TopicScreen)
        await user.until(lambda: user.frame.problem, "it is said here as well")
        await asyncio.to_thread(process.start)
        await user.press("r")
        await user.until_read()
        await user.until(lambda: not user.frame.problem, "it is well again")
        await user.press("escape")
        await user.until_on(Home)

    try:
        with connect(process.address, timeout_s=2) as client:
            client.admin.create_topic("kept")
            client.produce("kept", "record")
            drive(client, scenario)
    finally:
        process.kill()


def test_a_topic_deleted_meanwhile_is_a_sentence(client: Client, topic: str) -> None:
    async def scenario(user: User) -> None:
        await user.until_read()
        await asyncio.to_thread(client.admin.delete_topic, topic)
        await user.press("r")
        await user.until_seen("no topic", topic)

    drive(client, scenario, topic=topic)


def test_an_unexpected_error_is_a_sentence_as_well(
    client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(user: User) -> None:
        await user.until_read()
        monkeypatch.setattr(user.browser._reader, "begin", lambda *_: 1 / 0)
        await user.press("home")
        await user.until_seen("unexpected ZeroDivisionError")

    drive(client, scenario, topic=topic)


def test_the_screen_answers_while_the_cluster_does_not(
    client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_answered = threading.Event()

    async def scenario(user: User) -> None:
        await user.until_read()
        monkeypatch.setattr(user.browser._reader, "begin", lambda *_: is_answered.wait(DEADLINE_S))
        await user.press("home")
        await user.until_seen("reading…")
        await user.press("up")
        await user.until(lambda: user.value == b"value 98", "the cursor moves")
        await user.press("escape")
        await user.until(lambda: "reading…" not in user.sees, "it is given up")
        is_answered.set()

    drive(client, scenario, topic=topic)
